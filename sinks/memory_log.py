"""A log in memory for tests: partitions, groups that share them, and gaps where transactions end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from faultlens.errors import WorldError
from sinks.log import Holding, Place, Taken

_MARKER: Final = None


class MemoryBroker:
    """Topics with so many partitions each. What was appended is kept until it is expired."""

    def __init__(self, topics: Mapping[str, int]) -> None:
        self.places = [(topic, partition) for topic, count in topics.items() for partition in range(count)]
        self.records: dict[Place, list[Taken | None]] = {place: [] for place in self.places}
        self.low: dict[Place, int] = dict.fromkeys(self.places, 0)
        self.committed: dict[str, dict[Place, int]] = {}
        self.members: dict[str, list[MemoryLog]] = {}

    def append(
        self, place: Place, value: bytes, *, key: bytes | None = None, at_ms: int = 0, headers: Mapping[str, bytes] = {}
    ) -> int:
        """Append a record, by default one without key or headers, and return its offset."""
        offset = len(self.records[place])
        self.records[place].append(Taken(*place, offset, at_ms, value, key, tuple(headers.items())))
        return offset

    def mark(self, place: Place) -> None:
        """Append what no reader sees: the marker that ends a transaction, or an aborted record."""
        self.records[place].append(_MARKER)

    def expire(self, place: Place, low: int) -> None:
        """Remove what is below the offset."""
        self.low[place] = low

    def share(self, group: str, member: MemoryLog) -> set[Place]:
        """Return the places that are this member's."""
        members = self.members[group]
        return {place for number, place in enumerate(self.places) if members[number % len(members)] is member}


class MemoryLog:
    """A member of a group on a MemoryBroker; `fails` is asked at every poll. Closing it is all that a kill does too."""

    def __init__(self, broker: MemoryBroker, topics: Sequence[str], group: str) -> None:
        self._broker = broker
        self._topics = frozenset(topics)
        self._group = group
        self._epoch = 0
        self._paused = False
        self._held: dict[Place, Holding] = {}
        self._next: dict[Place, int] = {}
        self.expired: Counter[str] = Counter()
        self.fails: Callable[[], WorldError | None] = lambda: None
        broker.members.setdefault(group, []).append(self)

    @property
    def held(self) -> Mapping[Place, Holding]:
        """The partitions that are ours now."""
        return self._held

    def poll(self, limit: int, timeout_s: float) -> list[Taken]:
        """Return what is there, at once."""
        if (failure := self.fails()) is not None:
            raise failure
        self._rebalance()
        taken: list[Taken] = []
        for place in [] if self._paused else list(self._held):
            records = self._broker.records[place]
            while self._next[place] < len(records) and len(taken) < limit:
                record = records[self._next[place]]
                self._next[place] += 1
                if record is not None:
                    taken.append(record)
        return taken

    def pause(self) -> None:
        """Hand out nothing until `resume`."""
        self._paused = True

    def resume(self) -> None:
        """Go on."""
        self._paused = False

    def commit(self, following: Mapping[Place, int]) -> None:
        """Remember the offsets for the group."""
        self._broker.committed.setdefault(self._group, {}).update(following)

    def lags(self) -> Mapping[Place, int]:
        """Return how many offsets have not been handed out."""
        return {place: len(self._broker.records[place]) - following for place, following in self._next.items()}

    def close(self) -> None:
        """Leave the group."""
        self._broker.members[self._group].remove(self)
        self._held.clear()

    def _rebalance(self) -> None:
        mine = {place for place in self._broker.share(self._group, self) if place[0] in self._topics}
        for place in self._held.keys() - mine:
            del self._held[place], self._next[place]
        new = mine - self._held.keys()
        self._epoch += bool(new)
        for place in sorted(new):
            low, committed = self._broker.low[place], self._broker.committed.get(self._group, {}).get(place)
            start = low if committed is None else max(low, committed)
            if committed is not None and committed < low:
                self.expired[place[0]] += low - committed
            self._held[place] = Holding(self._epoch, start)
            self._next[place] = start


class MemoryLetters:
    """Dead letters in a list."""

    def __init__(self) -> None:
        self.sent: list[tuple[bytes, bytes]] = []
        self.fails: WorldError | None = None

    def send(self, letters: Sequence[tuple[bytes, bytes]]) -> None:
        """Keep them, unless the test has it fail."""
        if self.fails is not None:
            raise self.fails
        self.sent += letters

    def close(self) -> None:
        """Stay as it is."""
