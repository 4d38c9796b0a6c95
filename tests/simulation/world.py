"""A cluster in memory: a log, and one worker per role and lane that may be slow, fall behind, or die at any time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from faultlens.codec import Event, encode
from faultlens.topics import TYPES
from streams.fleet_context import FleetContextProcessor
from streams.runtime.log import MemoryLog
from streams.runtime.records import Record, Role
from streams.runtime.state import Kept
from streams.runtime.task import Task


class World:
    """Workers over a log. Whoever drives it says which lane reads how much of which topic, and who dies."""

    def __init__(self, roles: Sequence[Role], partitions: int = 1) -> None:
        self.roles = list(roles)
        # What concerns everyone is told by one lane: its clock is the context's.
        self.log = MemoryLog(partitions, frozenset(FleetContextProcessor.topics))
        self.tasks: dict[tuple[str, int], Task] = {}
        self._read: dict[tuple[str, int], dict[str, int]] = {}
        for role in self.roles:
            for lane in range(partitions):
                self.restart(role, lane)

    def tell(self, told: Iterable[Event | int]) -> World:
        """Append events as they arrive; a number is a tick of that time on every topic that carries them."""
        at_ms = 0
        ticking = {role.topics[0] for role in self.roles}
        for event in told:
            if isinstance(event, Event):
                self.log.append(TYPES[event.type].topic, event.subject, encode(event), at_ms)
            else:
                at_ms = event
                for topic in sorted(ticking):
                    self.log.tick(topic, at_ms)
        return self

    def restart(self, role: Role, lane: int) -> None:
        """A new worker takes the lane over. It reads from far behind again: the lane record says what is done."""
        self.tasks[role.name, lane] = self.log.open(role, lane, ticking=True)
        self._read[role.name, lane] = {}

    def batch(self, role: Role, lane: int, topic: str, size: int, *, crash: str = "") -> bool:
        """Step the next `size` records of a topic; return whether there were any. `crash`: before or after commit."""
        read = self._read[role.name, lane]
        offset = read.get(topic, 0)
        records = self.log.read(topic, lane, offset, size)
        if not records:
            return False
        read[topic] = offset + len(records)
        batch = self.tasks[role.name, lane].step(records)
        if crash != "before":
            self.log.commit(role.name, lane, batch)
        if crash:
            self.restart(role, lane)
        return True

    def lanes(self) -> list[tuple[Role, int, str]]:
        """Return every role, lane and topic of it: what a batch can be read from."""
        return [
            (role, lane, topic) for role in self.roles for lane in range(self.log.partitions) for topic in role.topics
        ]

    def drain(self, size: int = 7) -> World:
        """Read on, everybody in turn, until nothing is left."""
        moved = [True]
        while any(moved):
            moved = [self.batch(role, lane, topic, size) for role, lane, topic in self.lanes()]
        return self

    def drain_in_order(self) -> World:
        """Read on in order of arrival, as if nobody ever fell behind."""
        while True:
            heads = [
                (head.arrived_ms, number) for number, spot in enumerate(self.lanes()) if (head := self._head(*spot))
            ]
            if not heads:
                return self
            self.batch(*self.lanes()[min(heads)[1]], 1)

    def _head(self, role: Role, lane: int, topic: str) -> Record | None:
        return next(iter(self.log.read(topic, lane, self._read[role.name, lane].get(topic, 0), 1)), None)

    def states(self) -> dict[str, Kept]:
        """Return what is kept of every key."""
        return {key: kept for task in self.tasks.values() for key, kept in task.states.items()}

    def written(self, *names: str) -> Counter[bytes]:
        """Return the records of topics with how often each was written."""
        return Counter(record.value for name in names for record in self.log.records(name))
