"""Half-open intervals of whole milliseconds: clipping and union of outages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Interval(NamedTuple):
    """[from_ms, to_ms); empty when it does not end after it begins."""

    from_ms: int
    to_ms: int

    @property
    def length_ms(self) -> int:
        """How long it is; an empty one is 0 long."""
        return max(0, self.to_ms - self.from_ms)

    def clipped(self, window: Interval) -> Interval:
        """The part of it that lies in the window; empty when none does."""
        return Interval(max(self.from_ms, window.from_ms), min(self.to_ms, window.to_ms))


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Return disjoint intervals in order that cover the same time; those that touch are joined."""
    joined: list[Interval] = []
    for interval in sorted(i for i in intervals if i.length_ms):
        if joined and interval.from_ms <= joined[-1].to_ms:
            joined[-1] = Interval(joined[-1].from_ms, max(joined[-1].to_ms, interval.to_ms))
        else:
            joined.append(interval)
    return joined


def covered_ms(intervals: Iterable[Interval], window: Interval | None = None) -> int:
    """Return how much time (of the window) lies in at least one of the intervals."""
    clipped = intervals if window is None else (interval.clipped(window) for interval in intervals)
    return sum(interval.length_ms for interval in union(clipped))
