"""The timer queue of a lane: when each key wants to be woken, in time order, ties by key."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final

NEVER: Final = 1 << 62


class Wakes:
    """The next wake of every key that has one.

    A key's wake moves with nearly every record (a report puts silence off by an interval). So a later wake only
    changes the key's due time; its entry in the heap stays where it is and moves when it comes up.
    """

    def __init__(self, due: Iterable[tuple[str, int]] = ()) -> None:
        self._due = dict(due)
        self._queued = dict(self._due)
        self._heap = [(at_ms, key) for key, at_ms in self._due.items()]
        heapify(self._heap)

    def __len__(self) -> int:
        return len(self._due)

    def set(self, key: str, due_ms: int | None) -> None:
        """Wake the key at `due_ms` instead of whenever it was to be woken before; None: not at all."""
        if due_ms is None:
            self._due.pop(key, None)
            return
        self._due[key] = due_ms
        if due_ms < self._queued.get(key, NEVER):
            heappush(self._heap, (due_ms, key))
            self._queued[key] = due_ms
            if len(self._heap) > 4 * len(self._due) + 64:
                self._compact()

    def soonest_ms(self) -> int:
        """Return a time before which nothing is due (not later than the first due time); cheap."""
        return self._heap[0][0] if self._heap else NEVER

    def first(self, limit_ms: int) -> tuple[int, str] | None:
        """Return the due time and key of the first wake that is due by `limit_ms`; it stays in the queue."""
        heap = self._heap
        while heap and heap[0][0] <= limit_ms:
            queued_ms, key = heap[0]
            due_ms = self._due.get(key)
            if due_ms == queued_ms:
                return heap[0]
            if self._queued.get(key) != queued_ms:
                heappop(heap)
            elif due_ms is None:
                heappop(heap)
                del self._queued[key]
            else:
                heapreplace(heap, (due_ms, key))
                self._queued[key] = due_ms
        return None

    def _compact(self) -> None:
        self._queued = dict(self._due)
        self._heap = [(at_ms, key) for key, at_ms in self._due.items()]
        heapify(self._heap)
