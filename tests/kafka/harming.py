"""Faults done to live workers and their brokers, by a schedule that a seed decides."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from threading import Event, Thread
from time import monotonic

from tests.kafka.cluster import Cluster
from tests.kafka.living import Worker

# A worker that is not heard of for this long has lost its share; a freeze is longer.
SESSION_SECONDS = 6
FREEZE_SECONDS = 10.0
# Two brokers must have a record: one that is back has to catch up before another one goes.
SETTLE_SECONDS = 10.0


@dataclass
class Harm:
    """Does faults one after the other until there were enough or the run is over, and starts what has ended."""

    cluster: Cluster
    workers: Sequence[Worker]
    dice: Random
    faults: int
    log: list[str] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)
    _over: Event = field(default_factory=Event)

    def run(self) -> None:
        """Do all of it."""
        for _ in range(self.faults):
            if self._rest(self.dice.uniform(1.0, 4.0)):
                break
            self._one()()
        while not self._rest(0.3):
            pass

    def _one(self) -> Callable[[], None]:
        kinds = [self._kill, self._kill, self._freeze]
        if len(self.cluster.brokers) == 3:
            kinds += [self._break, self._break]
        return self.dice.choice(kinds)

    def _kill(self) -> None:
        worker = self.dice.choice(list(self.workers))
        self.log.append(f"kill {worker.role}")
        worker.send(signal.SIGKILL)

    def _freeze(self) -> None:
        worker = self.dice.choice(list(self.workers))
        self.log.append(f"freeze {worker.role}")
        worker.send(signal.SIGSTOP)
        self._rest(FREEZE_SECONDS)
        worker.send(signal.SIGCONT)

    def _break(self) -> None:
        number = self.dice.choice(list(self.cluster.brokers))
        how = self.dice.choice(("kill", "stop"))
        self.log.append(f"{how} broker {number}")
        getattr(self.cluster.brokers[number], how)()
        self._rest(self.dice.uniform(1.0, 6.0))
        self.cluster.brokers[number].launch()
        while not self.cluster.brokers[number].listens and not self._rest(0.5):
            pass
        self._rest(SETTLE_SECONDS)

    def _rest(self, seconds: float) -> bool:
        """Let time pass, starting what has ended; return whether the run is over."""
        until_s = monotonic() + seconds
        while (left_s := until_s - monotonic()) > 0 and not self._over.wait(min(left_s, 0.2)):
            self._revive()
        self._revive()
        return self._over.is_set()

    def _revive(self) -> None:
        for worker in self.workers:
            if worker.code is not None:
                self.codes.append(worker.code)
                worker.start()

    def stop(self) -> None:
        """The run is over."""
        self._over.set()


@contextmanager
def harmed(harm: Harm) -> Iterator[Harm]:
    """Do the faults beside what happens within."""
    thread = Thread(target=harm.run, name="harm")
    thread.start()
    try:
        yield harm
    finally:
        harm.stop()
        thread.join()
        for worker in harm.workers:
            worker.send(signal.SIGCONT)
        for broker in harm.cluster.brokers.values():
            broker.launch()
