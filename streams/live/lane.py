"""One lane at work: records in, a batch out, written before anything is acknowledged."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from threading import Lock
from typing import Final, Protocol

from faultlens.errors import WorldError
from streams.live.arrived import Consumed, as_recorded, ends_recording
from streams.live.changelog import Change, Changelog, DamagedError
from streams.runtime.records import Record, Role, Sent
from streams.runtime.task import Task

# One lane thinks at a time: threads that compete for the interpreter starve the one that keeps us in the group.
_STEPPING: Final = Lock()

Arrival = Callable[[Consumed], Record]


class Log(Protocol):
    """Where a lane's states come from and its batches go, whole or not at all."""

    def open(self) -> dict[bytes, bytes]: ...
    def write(self, sent: Iterable[Sent], changes: Iterable[Change]) -> None: ...


@dataclass
class LaneCounts:
    """What a lane did so far, for whoever exports it. Times in seconds."""

    records: int = 0
    batches: int = 0
    sent: dict[str, int] = field(default_factory=dict)
    keys: int = 0


class Lane:
    """Partition `number` of every topic of a role. Its methods block, and are called one at a time."""

    def __init__(self, role: Role, number: int, log: Log, arrival: Arrival) -> None:
        self.role = role
        self.number = number
        self.counts = LaneCounts()
        self._log = log
        self._arrival = arrival
        self._changelog = Changelog(role)
        self._task: Task | None = None
        self._written: object = None

    @property
    def task(self) -> Task:
        """The task, once the lane is open."""
        if self._task is None:
            raise RuntimeError(f"lane {self.role.name}/{self.number} is not open")
        return self._task

    def open(self) -> None:
        """Take the lane over from whoever had it, as it was last committed; WorldError where that is no use."""
        try:
            states, lane = self._changelog.restore(self._log.open().items())
        except DamagedError as error:
            raise WorldError(f"the states of lane {self.role.name}/{self.number} are no use: {error}") from error
        self._task = Task(self.role, self.number, states=states, lane=lane, ticking=True)
        self.counts.keys = len(states)

    def step(self, consumed: Iterable[Consumed], *, settle: bool) -> bool:
        """Step the records and write what follows from them; return whether they are done with for good.

        Records from which nothing follows are not written for, unless `settle`: they stay open with those to come.
        """
        task = self.task
        with _STEPPING:
            for record in consumed:
                self._take(record)
            batch = task.seal()
        context = batch.lane.context
        if not (batch.changed or batch.sent or settle or context is not self._written):
            return False
        self._log.write(batch.sent, self._changelog.changes(batch.changed, batch.lane))
        self._written = context
        self._count(batch.sent)
        return True

    def _take(self, consumed: Consumed) -> None:
        self.counts.records += 1
        self.task.take(self._arrival(consumed))
        if self._arrival is as_recorded and ends_recording(consumed):
            self.task.finish()

    def _count(self, sent: Iterable[Sent]) -> None:
        counts = self.counts
        counts.batches += 1
        counts.keys = len(self.task.states)
        for record in sent:
            counts.sent[record.topic] = counts.sent.get(record.topic, 0) + 1
