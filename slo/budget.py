"""What a budget is worth in time of outage."""

from __future__ import annotations

from faultlens.budget import budget_allowed


def bad_time_allowed_ms(period_ms: int, target: float) -> float:
    """Return how long a period may be bad: 1 week at 99.95 % is 5 min 2.4 s."""
    return budget_allowed(period_ms, target)
