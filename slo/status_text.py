"""Where the objectives stand, as a terminal shows it and as JSON says it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from faultlens.budget import budget_used_in
from faultlens.clock import iso
from faultlens.objectives import Exclusion, Objectives, parse_duration_ms
from slo.backing import TOO_LITTLE, attained_words, known_words, share_words
from slo.budget import bad_time_allowed_ms
from slo.measure import OVERHEAD
from slo.recompute import View
from slo.status import Standing
from slo.wording import (
    NOTHING,
    duration,
    listed,
    minute,
    percent,
    printable,
    share_of_budget,
    target_percent,
    whole_hours,
)

WORDS: Final = {True: "met", False: "MISSED", None: "no data"}
UNITS: Final = {"node_seconds": "node-hours", "gpu_seconds": "GPU-hours", "attempts": "attempts", "jobs": "jobs"}
HEADS: Final = ("objective", "", "attained", "target", "window", "budget left", "lasts")


def as_text(found: Sequence[Standing], view: View, scope: str, objectives: Objectives) -> str:
    """Return a table of the objectives, and below it what each says beyond a line."""
    lines = [f"Objectives of {scope}, as of {minute(view.as_of_ms)}", ""]
    lines += _aligned([HEADS, *(_row(standing) for standing in found)])
    for standing in found:
        details = list(detail_lines(standing))
        if details:
            lines += ["", standing.objective.title, *(f"  {line}" for line in details)]
    if objectives.never_fire:
        lines += ["", *(str(left_out) for left_out in objectives.never_fire)]
    return "\n".join(lines)


def _row(standing: Standing) -> tuple[str, ...]:
    objective = standing.objective
    lasts = NOTHING if math.isinf(standing.exhausted_in_ms) else duration(standing.exhausted_in_ms)
    left = standing.budget_left
    return (
        objective.name,
        verdict_word(standing, WORDS),
        attained_words(standing.attained, objective.target, digits=standing.digits),
        target_percent(objective.target),
        window_words(standing),
        share_of_budget(left),
        "used up" if left is not None and left <= 0 else lasts,
    )


def verdict_word(standing: Standing, words: Mapping[bool | None, str]) -> str:
    """Return whether the target is kept, in one of three words, or that too little is known to call it so."""
    return TOO_LITTLE if standing.met and not standing.enough else words[standing.met]


def _ways(standing: Standing) -> Iterator[str]:
    """What is not as usual with an objective."""
    objective = standing.objective
    if objective.scope.narrow:
        yield f"of {printable(str(objective.scope))}"
    if objective.slice_ms is not None:
        yield f"counted by slices of {duration(objective.slice_ms)} ({objective.method})"
    yield from map(exclusion_words, _left_out(standing))


def window_words(standing: Standing) -> str:
    """Return the window in words: `28 d`, or `this month (Europe/Zurich)`."""
    window = standing.objective.window
    if window.calendar is None or standing.window != window.name:
        return duration(standing.window_ms)
    return f"this {window.calendar}" + (f" ({window.zone})" if window.zone != "UTC" else "")


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(w) if i < 2 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def detail_lines(standing: Standing) -> Iterator[str]:
    """What an objective says beyond its line of the table."""
    measure, streamed, objective = standing.measure, standing.streamed, standing.objective
    counted = measure or streamed
    if counted is None or not counted.total:
        return
    digits = standing.digits
    yield from _ways(standing)
    if known := known_words(standing.known_ms, standing.elapsed_ms):
        yield f"{known}: {duration(standing.elapsed_ms)} would be the whole"
    yield f"{_amount(standing, counted.good)} good of {_amount(standing, counted.total)} {UNITS[objective.unit]}"
    allowed = duration(bad_time_allowed_ms(standing.window_ms, objective.target))
    yield f"the budget is worth {allowed} of total outage in {duration(standing.window_ms)}"
    if counted.by_class:
        parts = [f"{name} {_amount(standing, amount)}" for name, amount in _ranked(counted.by_class)]
        yield f"not good: {', '.join(parts)}"
    for what, value in measure.also if measure else ():
        yield f"{what}: {share_words(value, digits=digits)}"
    if counted.bounds is not None and counted.bounds[0] != counted.bounds[1]:
        low, high = (share_words(bound, digits=digits) for bound in counted.bounds)
        yield f"between {low} and {high}, if everything assumed moved to either side"
    burning = [_burning(window, rate, standing.window_ms) for window, rate in standing.burn.items() if rate]
    if burning:
        yield f"burn rate, and what it used of the budget: {', '.join(burning)}"
    if standing.firing:
        yield f"warns: {listed(list(standing.firing))}"
    if measure is None:
        yield f"counted by the processors alone (status of {minute(streamed.at_ms) if streamed else NOTHING})"
    elif standing.agreement == "differs" and streamed is not None:
        amounts = f"{_amount(standing, streamed.good)} good of {_amount(standing, streamed.total)}"
        yield f"the processors' own count differs: {amounts} (status of {minute(streamed.at_ms)})"


def _amount(standing: Standing, value: float) -> str:
    return whole_hours(round(value)) if standing.objective.of_time else f"{value:,.0f}"


def _left_out(standing: Standing) -> Iterator[Exclusion]:
    return (exclusion for exclusion in standing.objective.exclusions if exclusion.meets(standing.view.cluster))


def exclusion_words(exclusion: Exclusion) -> str:
    """Return what an exclusion leaves out, why, and who says so."""
    of = f" in cluster {printable(exclusion.cluster)}" if exclusion.cluster else ""
    of += f" of {listed(list(exclusion.classes))}" if exclusion.classes else ""
    span = f"{minute(exclusion.from_ms)} to {minute(exclusion.to_ms)}"
    said = f"{exclusion.name}: {exclusion.reason} (says {exclusion.author})"
    return f"left out{of}, {span}: {printable(said)}"


def _ranked(by_class: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(by_class.items(), key=lambda item: (item[0] == OVERHEAD, -item[1], item[0]))


def _burning(window: str, rate: float, period_ms: int) -> str:
    window_ms = parse_duration_ms(window)
    used = budget_used_in(rate, period_ms=period_ms, window_ms=window_ms)
    return f"{duration(window_ms)} {rate:.2f} ({percent(used)})"


def as_plain(found: Sequence[Standing], view: View, scope: str) -> dict[str, Any]:
    """Return the same as plain values; amounts of time are in seconds, as in `slo-status`."""
    return {
        "scope": scope,
        "as_of": iso(view.as_of_ms),
        "missed": [standing.objective.name for standing in found if standing.met is False],
        "objectives": [_plain(standing) for standing in found],
    }


def _plain(standing: Standing) -> dict[str, Any]:
    objective, measure, streamed = standing.objective, standing.measure, standing.streamed
    lasts = standing.exhausted_in_ms
    return {
        "objective": objective.name,
        "indicator": objective.indicator,
        "scope": {name: value for name, value in asdict(objective.scope).items() if value},
        "window": standing.window,
        "method": objective.method,
        "excluded": [exclusion.name for exclusion in _left_out(standing)],
        "unit": objective.unit,
        "target": objective.target,
        "attained": standing.attained,
        "met": standing.met,
        "enough_data": standing.enough,
        "known_s": standing.known_ms / 1000,
        "budget_remaining": standing.budget_left,
        "exhausted_in_s": None if math.isinf(lasts) else lasts / 1000,
        "burn": dict(standing.burn),
        "firing": list(standing.firing),
        "recomputed": None if measure is None else _figures(standing, measure) | {"also": dict(measure.also)},
        "streamed": None if streamed is None else _figures(standing, streamed) | {"at": iso(streamed.at_ms)},
        "agreement": standing.agreement,
    }


def _figures(standing: Standing, counted: Any) -> dict[str, Any]:
    unit = 1000 if standing.objective.of_time else 1
    bounds = counted.bounds
    return {
        "good": counted.good / unit,
        "total": counted.total / unit,
        "by_cause": {name: amount / unit for name, amount in counted.by_class.items()},
        "bounds": None if bounds is None else {"low": bounds[0], "high": bounds[1]},
    }
