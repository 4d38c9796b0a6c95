"""What is still to happen: actions by time, then by the order in which they were put down."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

Action = Callable[[int], object]


class Agenda:
    """Runs actions in order of time; memory is that of what is still to come."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Action]] = []
        self._put_down = 0

    def at(self, at_ms: int, action: Action) -> None:
        """Put down that `action(at_ms)` is to happen."""
        self._put_down += 1
        heappush(self._heap, (at_ms, self._put_down, action))

    def run_until(self, until_ms: int) -> None:
        """Do everything that is due up to `until_ms`, and what that puts down for the same time."""
        heap = self._heap
        while heap and heap[0][0] <= until_ms:
            at_ms, _, action = heappop(heap)
            action(at_ms)
