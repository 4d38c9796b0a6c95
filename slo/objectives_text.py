"""What is promised, as a terminal shows it and as JSON says it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from faultlens.clock import iso
from faultlens.objectives import Objective, Objectives, Tier, Window
from slo.budget import bad_time_allowed_ms
from slo.status_text import UNITS, exclusion_words
from slo.wording import duration, percent, printable, target_percent

_HEADS = ("objective", "of", "target", "window", "counted by", "warns at")


def listing(objectives: Objectives) -> str:
    """Return one line for each objective."""
    rows = [_HEADS, *(_row(objective) for objective in objectives)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([*lines, *(["", *map(str, objectives.never_fire)] if objectives.never_fire else [])])


def _row(objective: Objective) -> tuple[str, ...]:
    return (
        objective.name,
        printable(str(objective.scope), limit=40),
        target_percent(objective.target),
        window_words(objective.window),
        way_words(objective),
        ", ".join(f"{tier.factor:.4g}" for tier in objective.tiers) or "nothing",
    )


def window_words(window: Window) -> str:
    """Return a window in words: `28 d`, `month (Europe/Zurich)`."""
    return duration(window.length_ms) if window.calendar is None else f"{window.calendar} ({window.zone})"


def way_words(objective: Objective) -> str:
    """Return how an objective is counted: `attempts`, `slices of 1 h at 99 %`."""
    if objective.slice_ms is None:
        return UNITS[objective.unit]
    enough = f" at {target_percent(objective.slice_target)}" if objective.slice_target is not None else "' mean"
    return f"slices of {duration(objective.slice_ms)}{enough}"


def details(objective: Objective) -> str:
    """Return all that is said of one objective."""
    return "\n".join(_details(objective))


def _details(objective: Objective) -> Iterator[str]:
    yield f"{objective.title}: {objective.promise}"
    yield f"  indicator  {objective.indicator} of {printable(str(objective.scope))}"
    allowed = duration(bad_time_allowed_ms(objective.window_ms, objective.target))
    yield f"  target     {target_percent(objective.target)} over {window_words(objective.window)}"
    yield f"  budget     worth {allowed} of total outage"
    yield f"  counted    by {way_words(objective)}"
    if objective.within_ms is not None and objective.pending_limit_ms is not None:
        yield f"  in time    within {duration(objective.within_ms)} of the allocation"
        yield f"  waiting    is bad after {duration(objective.pending_limit_ms)}, if for lost capacity"
    for tier in objective.tiers:
        yield f"  {tier.severity:<9}  {tier_words(tier)}"
    for left_out in objective.never_fire:
        yield f"  never      {left_out}"
    for exclusion in objective.exclusions:
        yield f"  {exclusion_words(exclusion)}"


def tier_words(tier: Tier) -> str:
    """Return when a tier warns."""
    spans = f"{duration(tier.long_ms)} and {duration(tier.short_ms)}"
    return (
        f"{tier.name}: burn rate {tier.factor:.4g} over {spans} ({percent(tier.budget_share, digits=0)} of the budget)"
    )


def as_plain(objectives: Sequence[Objective]) -> list[dict[str, Any]]:
    """Return objectives as plain values."""
    return [_plain(objective) for objective in objectives]


def _plain(objective: Objective) -> dict[str, Any]:
    return {
        "objective": objective.name,
        "title": objective.title,
        "promise": objective.promise,
        "indicator": objective.indicator,
        "scope": {name: value for name, value in asdict(objective.scope).items() if value},
        "target": objective.target,
        "unit": objective.unit,
        "window": objective.window.name,
        "zone": objective.window.zone if objective.window.calendar else None,
        "method": objective.method,
        "slice_s": None if objective.slice_ms is None else objective.slice_ms / 1000,
        "slice_target": objective.slice_target,
        "tiers": [_tier(tier) for tier in objective.tiers],
        "never_fire": [left_out.tier for left_out in objective.never_fire],
        "exclusions": [
            {
                "name": exclusion.name,
                "from": iso(exclusion.from_ms),
                "to": iso(exclusion.to_ms),
                "classes": list(exclusion.classes),
                "cluster": exclusion.cluster or None,
                "reason": exclusion.reason,
                "author": exclusion.author,
            }
            for exclusion in objective.exclusions
        ],
    }


def _tier(tier: Tier) -> dict[str, Any]:
    return {
        "tier": tier.name,
        "severity": tier.severity,
        "factor": tier.factor,
        "long_s": tier.long_ms / 1000,
        "short_s": tier.short_ms / 1000,
        "budget_share": tier.budget_share,
    }
