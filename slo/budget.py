"""What a budget is worth: in time of outage, and in bad events."""

from __future__ import annotations

from faultlens.budget import budget_allowed


def bad_time_allowed_ms(period_ms: int, target: float) -> float:
    """Return how long a period may be bad: 1 week at 99.95 % is 5 min 2.4 s."""
    return budget_allowed(period_ms, target)


def bad_counts_that_warn(total_in_period: float, *, target: float, budget_share: float, floor: int = 2) -> float:
    """Return how many bad events in a window use `budget_share` of the period's budget, but at least `floor`.

    For few events: one failure of a rare job would by its ratio alone look like a total outage. The floor is on bad
    events, never on traffic, since a floor on traffic also hides total outages.
    """
    return max(float(floor), budget_share * budget_allowed(total_in_period, target))
