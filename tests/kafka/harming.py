"""Faults done to live workers and their brokers, by a schedule that a seed decides."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from random import Random
from threading import Event, Thread
from time import monotonic

from tests.kafka.cluster import Cluster
from tests.kafka.living import OpenTransactions, Worker

# A worker that is not heard of for this long has lost its share; a freeze is longer.
SESSION_SECONDS = 6
FREEZE_SECONDS = 10.0
# Two brokers must have a record: one that is back has to catch up before another one goes.
SETTLE_SECONDS = 10.0
# So many come and go in a storm, each within a moment.
STORM = 8
# How long to look for a worker in the middle of a transaction: each takes some milliseconds.
CATCH_SECONDS = 30.0
USUAL = ("kill", "kill", "freeze")
WITH_BROKERS = (*USUAL, "lose", "lose")


@dataclass
class Harm:
    """Does faults one after the other until there were enough or the run is over, and starts what has ended.

    `kinds`: what is chosen from (kill, freeze, freeze_within, lose, storm); `away_s`: how long a broker that is lost is
    away, at least and at most.
    """

    cluster: Cluster
    workers: Sequence[Worker]
    dice: Random
    faults: int
    kinds: Sequence[str] = WITH_BROKERS
    away_s: tuple[float, float] = (1.0, 6.0)
    log: list[str] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)
    _over: Event = field(default_factory=Event)

    def run(self) -> None:
        """Do all of it."""
        for _ in range(self.faults):
            if self._rest(self.dice.uniform(1.0, 4.0)):
                break
            getattr(self, f"_{self.dice.choice(self.kinds)}")()
        while not self._rest(0.3):
            pass

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

    def _freeze_within(self) -> None:
        """Halt a worker that is writing: its transaction stays open until the coordinator or its successor ends it."""
        until_s = monotonic() + CATCH_SECONDS
        while monotonic() < until_s and not self._over.is_set():
            worker = self.dice.choice(list(self.workers))
            if not self.open.transactions(worker.role):
                continue
            worker.send(signal.SIGSTOP)
            # Those of others of its role are over in a moment.
            if all(not self._rest(0.2) and self.open.transactions(worker.role) for _ in range(3)):
                self.log.append(f"freeze {worker.role} within a transaction")
                self._rest(FREEZE_SECONDS)
                worker.send(signal.SIGCONT)
                return
            worker.send(signal.SIGCONT)

    def _storm(self) -> None:
        """Let workers come and go faster than a group settles."""
        worker = self.dice.choice(list(self.workers))
        self.log.append(f"storm {worker.role}")
        guests: list[Worker] = []
        for _ in range(STORM):
            guests.append(worker.twin())
            guests[-1].start()
            self._rest(self.dice.uniform(0.5, 4.0))
            if len(guests) > 2:
                guests.pop(0).end(self.dice.choice((signal.SIGTERM, signal.SIGKILL)))
        for guest in guests:
            guest.end()

    def _lose(self) -> None:
        number = self.dice.choice(list(self.cluster.brokers))
        how = self.dice.choice(("kill", "stop"))
        self.log.append(f"{how} broker {number}")
        getattr(self.cluster.brokers[number], how)()
        self._rest(self.dice.uniform(*self.away_s))
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

    @cached_property
    def open(self) -> OpenTransactions:
        """What of the states is being written."""
        return OpenTransactions(self.cluster)

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
