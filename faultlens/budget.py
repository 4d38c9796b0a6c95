"""Error budgets: what an objective allows, how fast it is used, and when it will be gone."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple


def attained(good: float, total: float) -> float | None:
    """Return good / total in [0, 1]; None when nothing was counted: no traffic is neither met nor missed."""
    return good / total if total > 0 else None


def budget_allowed(total: float, target: float) -> float:
    """Return how much of `total` may be bad, in the unit of `total`."""
    return total * (1 - target)


def budget_remaining(good: float, total: float, target: float) -> float | None:
    """Return the share of the budget that is left: 1 untouched, 0 used up, below 0 overspent; None without traffic."""
    if total <= 0:
        return None
    allowed = budget_allowed(total, target)
    bad = total - good
    if allowed <= 0:
        return 1.0 if bad <= 0 else -math.inf
    return 1 - bad / allowed


def burn_rate(bad: float, total: float, target: float) -> float:
    """Return the error ratio over 1 - target: 1 uses the budget up exactly at the period's end; 0 without traffic.

    Source: Google SRE workbook, chapter 5.
    """
    if total <= 0 or bad <= 0:
        return 0.0
    return bad / total * highest_burn(target)


def highest_burn(target: float) -> float:
    """Return the burn rate of a total outage, 1 / (1 - target)."""
    return 1 / (1 - target) if target < 1 else math.inf


def burn_factor(budget_share: float, *, period_ms: int, window_ms: int) -> float:
    """Return the burn rate that uses `budget_share` of the period's budget within the window.

    For 30 days, 2 % in an hour: 14.4. For 28 days: 13.44.
    """
    return budget_share * period_ms / window_ms


def budget_used_in(burn: float, *, period_ms: int, window_ms: int) -> float:
    """Return the share of the period's budget that a burn rate uses within the window."""
    return burn * window_ms / period_ms


def time_to_exhaustion_ms(burn: float, *, period_ms: int, remaining: float = 1.0) -> float:
    """Return how long `remaining` (a share of the whole budget) lasts at this burn rate; infinite at rate 0."""
    if remaining <= 0:
        return 0.0
    return remaining * period_ms / burn if burn > 0 else math.inf


def lowest_target_that_fires(factor: float) -> float:
    """Return the target below which even a total outage does not reach `factor`: 14.4 -> 93.06 %, 6 -> 83.3 %."""
    return 1 - 1 / factor


# --- ways to count (OpenSLO v1, budgetingMethod) -----------------------------------------------------------


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
