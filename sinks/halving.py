"""Finds the rows that a store refuses by halving what it was given: pure, and able to go on after an interruption."""

from __future__ import annotations


class Halving:
    """Says which run of `count` rows to try next, until each row was accepted or refused on its own.

    For b bad rows of n at most 2·b·log2(n) + 1 runs are tried. Between two answers it can be kept for any time: what
    was accepted is not tried again.
    """

    def __init__(self, count: int) -> None:
        self._count = 0
        self._runs: list[tuple[int, int]] = []
        self.grow(count)

    def grow(self, count: int) -> None:
        """Let there be `count` rows: those that came since make a run of their own, after all others."""
        if count > self._count:
            self._runs.insert(0, (self._count, count))
            self._count = count

    @property
    def run(self) -> tuple[int, int] | None:
        """The run to try now as (first, behind the last); None: all are settled."""
        return self._runs[-1] if self._runs else None

    def accepted(self) -> None:
        """Note that the run went in."""
        self._runs.pop()

    def refused(self) -> int | None:
        """Note that the run was refused; return the row if it was alone, else its halves are tried next, in order."""
        first, behind = self._runs.pop()
        if behind - first == 1:
            return first
        middle = (first + behind) // 2
        self._runs += [(middle, behind), (first, middle)]
        return None
