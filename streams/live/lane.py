"""One lane at work: records in, a batch out, written before anything is acknowledged."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import Lock
from typing import Final, Protocol

from faultlens.clock import SECOND_MS, monotonic_s
from faultlens.errors import WorldError
from faultlens.events import DeadLetter
from faultlens.meters import RoleMeters
from streams.live.arrived import Consumed, as_recorded, ends_recording
from streams.live.changelog import Change, Changelog, DamagedError
from streams.runtime.records import Batch, Record, Role, Sent
from streams.runtime.task import Task

# Contract, "Silence": ticks come each second; when more than this lies between two, nobody was there to hear.
HOLE_MS: Final = 3 * SECOND_MS
# One lane thinks at a time: threads that compete for the interpreter starve the one that keeps us in the group.
_STEPPING: Final = Lock()

Arrival = Callable[[Consumed], Record]


class Log(Protocol):
    """Where a lane's states come from and its batches go, whole or not at all."""

    @property
    def retries(self) -> int: ...
    def open(self) -> dict[bytes, bytes]: ...
    def write(self, sent: Iterable[Sent], changes: Iterable[Change]) -> None: ...


class Lane:
    """Partition `number` of every topic of a role. Its methods block, and are called one at a time."""

    def __init__(self, role: Role, number: int, log: Log, arrival: Arrival, meters: RoleMeters) -> None:
        self.role = role
        self.number = number
        self.is_open = False
        self._log = log
        self._arrival = arrival
        self._meters = meters
        self._changelog = Changelog(role)
        self._task: Task | None = None
        self._written: object = None
        self._retries = 0

    @property
    def task(self) -> Task:
        """The task, once the lane is open."""
        if self._task is None:
            raise RuntimeError(f"lane {self.role.name}/{self.number} is not open")
        return self._task

    def open(self) -> None:
        """Take the lane over from whoever had it, as it was last committed; WorldError where that is no use."""
        found = self._log.open()
        try:
            with _STEPPING:
                states, lane = self._changelog.restore(found.items())
                self._task = Task(self.role, self.number, states=states, lane=lane, ticking=True, hole_ms=HOLE_MS)
        except DamagedError as error:
            raise WorldError(f"the states of lane {self.role.name}/{self.number} are no use: {error}") from error
        self.is_open = True
        self._measure()

    @property
    def holds(self) -> bool:
        """Whether states have changed that are not written yet."""
        return self._task is not None and self._task.has_changed

    def step(self, consumed: Iterable[Consumed], *, settle: bool, hold: bool = False) -> bool:
        """Step the records and write what follows from them; return whether they are done with for good.

        Records from which nothing follows are not written for, unless `settle`: they stay open with those to come.
        `hold`: so do those from which only states follow, which nobody waits for.
        """
        with _STEPPING:
            for record in consumed:
                self._take(record)
            if hold and not self.task.has_sent:
                return False
            batch = self.task.seal()
        context = batch.lane.context
        if not (batch.changed or batch.sent or settle or context is not self._written):
            return False
        began_s = monotonic_s()
        self._log.write(batch.sent, self._changelog.changes(batch.changed, batch.lane))
        self._written = context
        with _STEPPING:
            self._tell(batch, monotonic_s() - began_s)
        return True

    def _take(self, consumed: Consumed) -> None:
        self._meters.records[consumed.topic] += 1
        self.task.take(self._arrival(consumed))
        if self._arrival is as_recorded and ends_recording(consumed):
            self.task.finish()

    def _tell(self, batch: Batch, took_s: float) -> None:
        meters, clock_ms = self._meters, batch.lane.clock_ms
        meters.committing.observe(took_s)
        meters.retries += self._log.retries - self._retries
        self._retries = self._log.retries
        for record in batch.sent:
            meters.tell(record.topic, record.event, clock_ms)
            letter = record.event.data
            if isinstance(letter, DeadLetter):
                meters.dead[letter.topic, letter.reason] += 1
        self._measure()

    def _measure(self) -> None:
        self._meters.state_keys[self.number] = len(self.task.states)
        self._meters.state_bytes[self.number] = self._changelog.size
        self._meters.clock_ms[self.number] = self.task.clock_ms
