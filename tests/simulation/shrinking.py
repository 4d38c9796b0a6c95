"""Finds the few records that a broken law needs: leaves out subjects, then records, as long as it stays broken."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from faultlens.clock import iso
from tests.simulation.stories import T0, Arrival

RUNS_MAX = 150


def smallest(arrivals: Sequence[Arrival], broken: Callable[[Sequence[Arrival]], bool]) -> list[Arrival]:
    """Return a small part of the arrivals for which the law is still broken, after at most 150 runs."""
    left, runs = list(arrivals), 0
    by_subject = True
    pieces = _subjects(left)
    while runs < RUNS_MAX:
        for piece in pieces:
            runs += 1
            without = [arrival for arrival in left if id(arrival) not in piece]
            if without and broken(without):
                left = without
                break
            if runs >= RUNS_MAX:
                return left
        else:
            if not by_subject:
                return left
            by_subject = False
        pieces = _subjects(left) if by_subject else _runs(left)
    return left


def _subjects(arrivals: list[Arrival]) -> Iterator[set[int]]:
    """Yield what is said of each job and node, those that most is said of first."""
    of: dict[str, set[int]] = {}
    for arrival in arrivals:
        of.setdefault(arrival.event.subject, set()).add(id(arrival))
    yield from sorted(of.values(), key=len, reverse=True)


def _runs(arrivals: list[Arrival]) -> Iterator[set[int]]:
    """Yield halves, quarters and so on."""
    size = len(arrivals) // 2
    while size:
        for first in range(0, len(arrivals), size):
            yield {id(arrival) for arrival in arrivals[first : first + size]}
        size //= 2


def story_of(arrivals: Sequence[Arrival]) -> str:
    """Return the arrivals as lines: when each arrived, in minutes, and what it says."""
    lines = [
        f"{(arrived_ms - T0) / 60_000:8.2f} {iso(event.time_ms)[11:]} {event.source} {event.data}"
        for arrived_ms, event in ((arrival.at_ms, arrival.event) for arrival in arrivals)
    ]
    return "\n".join(line[:400] for line in lines)
