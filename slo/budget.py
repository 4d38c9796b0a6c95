"""Ways to count an objective: by occurrences, by good time slices, or by the slices' mean ratio (OpenSLO v1)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from faultlens.budget import attained, budget_allowed


class Slice(NamedTuple):
    """What was good, and what there was, in one slice of time."""

    good: float
    total: float


def occurrences(slices: Iterable[Slice]) -> float | None:
    """Return good over total of everything; None without traffic. Busy times weigh more."""
    seen = [s for s in slices if s.total > 0]
    return attained(sum(s.good for s in seen), sum(s.total for s in seen))


def time_slices(slices: Iterable[Slice], *, slice_target: float) -> float | None:
    """Return the share of slices whose own ratio reaches `slice_target`; slices without traffic do not count."""
    seen = [s for s in slices if s.total > 0]
    return attained(sum(s.good / s.total >= slice_target for s in seen), len(seen))


def ratio_time_slices(slices: Iterable[Slice]) -> float | None:
    """Return the mean of the slices' ratios: every minute weighs the same, however busy it was."""
    seen = [s for s in slices if s.total > 0]
    return attained(sum(s.good / s.total for s in seen), len(seen))


def bad_time_allowed_ms(period_ms: int, target: float) -> float:
    """Return how long a period may be bad: 1 week at 99.95 % is 5 min 2.4 s."""
    return budget_allowed(period_ms, target)


def bad_counts_that_warn(total_in_period: float, *, target: float, budget_share: float, floor: int = 2) -> float:
    """Return how many bad events in a window use `budget_share` of the period's budget, but at least `floor`.

    For few events: one failure of a rare job would by its ratio alone look like a total outage. The floor is on bad
    events, never on traffic, since a floor on traffic also hides total outages.
    """
    return max(float(floor), budget_share * budget_allowed(total_in_period, target))
