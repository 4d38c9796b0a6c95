"""From counters to where an objective stands: attainment, budget, burn rates, bounds."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from faultlens.budget import attained, budget_remaining, burn_rate
from faultlens.clock import DAY_MS, HOUR_MS, SECOND_MS
from faultlens.events import Bounds, SloScope, SloStatus
from faultlens.objectives import Objective, iso_duration
from streams.objectives.considered import by_slice, figures_since, without
from streams.objectives.counters import Counters, Figures, Recent, figures, window_start_ms

# Burn rates are told for these windows whatever an objective's tiers are.
ALWAYS_MS: Final = (HOUR_MS, 6 * HOUR_MS, DAY_MS, 3 * DAY_MS)


# There are few windows, and each is named in every status.
_name: Final = lru_cache(maxsize=64)(iso_duration)


def burn_windows_ms(objective: Objective) -> tuple[int, ...]:
    """Return the windows over which burn rates are told, shortest first."""
    return tuple(sorted({*ALWAYS_MS, *objective.burn_windows_ms}))


def status_of(counters: Counters, objective: Objective, now_ms: int) -> SloStatus:
    """Return where the objective stands in the counters' scope at `now_ms`."""
    kept = without(counters, [e for e in objective.exclusions if e.meets(counters.cluster)])
    start_ms = objective.window.start_ms(now_ms)
    whole = figures(kept) if objective.simple else figures_since(kept, start_ms)
    share = attained(whole.good, whole.total)
    left = budget_remaining(whole.good, whole.total, objective.target)
    if objective.slice_ms is not None:
        share = objective.attained(by_slice(kept, start_ms, objective.slice_ms))
        left = None if share is None else budget_remaining(share, 1, objective.target)
    unit = SECOND_MS if objective.of_time else 1
    rates, bad = burns(kept, objective, now_ms)
    return SloStatus(
        objective=counters.objective,  # type: ignore[arg-type] # checked by who looked it up
        scope=SloScope(counters.cluster, counters.pool, counters.team, counters.workload),
        window=objective.window.name,
        unit=objective.unit,
        good=whole.good / unit,
        total=whole.total / unit,
        attained=share,
        target=objective.target,
        budget_remaining=left,
        burn=rates,
        by_cause={name: amount / unit for name, amount in whole.by_cause.items()},
        bounds=bounds_of(whole) if objective.slice_ms is None else None,
        bad={window: amount / unit for window, amount in bad.items() if amount},
    )


def burns(counters: Counters, objective: Objective, now_ms: int) -> tuple[dict[str, float], dict[str, int]]:
    """Return the burn rate for each window, and how much was bad in it.

    Windows are of whole minutes, or hours where they are longer than six.

    A node's change is told at once and its quiet time at the hour's end: measured against what was told alone, one
    node's trouble would look like all of them until then. So a window's total is at least what the fuller of the last
    two full hours says it should be.
    """
    windows = burn_windows_ms(objective)
    recent = Recent(counters, window_start_ms(now_ms, windows[-1]))
    per_hour = _told_per_hour(recent, now_ms) if objective.of_time else 0
    rates, amounts = {}, {}
    for window_ms in windows:
        total, bad = recent.since(window_start_ms(now_ms, window_ms))
        total = max(total, per_hour * window_ms // HOUR_MS)
        rates[_name(window_ms)] = burn_rate(bad, total, objective.target)
        amounts[_name(window_ms)] = bad
    return rates, amounts


def _told_per_hour(recent: Recent, now_ms: int) -> int:
    """Return the total of the fuller of the last two full hours."""
    hour_ms = now_ms // HOUR_MS * HOUR_MS
    since = [recent.since(hour_ms - back * HOUR_MS)[0] for back in (0, 1, 2)]
    return max(since[1] - since[0], since[2] - since[1])


def bounds_of(figures: Figures) -> Bounds | None:
    """Return attainment if everything assumed were bad, and if nothing of it were; None when there is nothing."""
    worst, best = figures.total + figures.assumed_out, figures.total - figures.assumed_bad
    if worst <= 0:
        return None
    return Bounds(figures.good / worst, figures.good / best if best > 0 else 1.0)
