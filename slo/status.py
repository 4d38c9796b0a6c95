"""Where each objective stands: recomputed from the store, beside what the processors counted as they went."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from faultlens.budget import attained, budget_remaining, burn_rate, time_to_exhaustion_ms
from faultlens.clock import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from faultlens.objectives import Objective, Objectives, iso_duration
from slo import recompute
from slo.intervals import Interval
from slo.measure import Measure, Row
from slo.queries import Reader
from slo.recompute import View

# A ratio of sums of whole numbers, once as integers and once as floats of seconds, differs by rounding alone.
AGREE_WITHIN: Final = 1e-6
# The processors keep minutes for so long, and hours beyond.
MINUTES_UP_TO_MS: Final = 6 * HOUR_MS


@dataclass(frozen=True, slots=True)
class Streamed:
    """What the processors' last status of an objective said; amounts in milliseconds or counts."""

    good: float
    total: float
    attained: float | None
    burn: Mapping[str, float]
    by_class: Mapping[str, float]
    bounds: tuple[float, float] | None
    at_ms: int


@dataclass(frozen=True, slots=True)
class Standing:
    """An objective over its window: `measure` is recomputed, or None where only the processors can count it."""

    objective: Objective
    window_ms: int
    measure: Measure | None
    burn: Mapping[str, float]
    streamed: Streamed | None

    @property
    def attained(self) -> float | None:
        """The attained share: recomputed where it can be."""
        if self.measure is not None:
            return self.measure.attained
        return self.streamed.attained if self.streamed else None

    @property
    def met(self) -> bool | None:
        """Whether the target is kept; None when nothing counted."""
        return None if self.attained is None else self.attained >= self.objective.target

    @property
    def budget_left(self) -> float | None:
        """The share of the budget that is left."""
        counted = self.measure or self.streamed
        return budget_remaining(counted.good, counted.total, self.objective.target) if counted else None

    @property
    def exhausted_in_ms(self) -> float:
        """How long the rest of the budget lasts at the burn rate of the last day, or of the longest window known."""
        rate = self.burn.get(iso_duration(DAY_MS), max(self.burn.values(), default=0.0))
        left = self.budget_left
        return math.inf if left is None else time_to_exhaustion_ms(rate, period_ms=self.window_ms, remaining=left)

    @property
    def firing(self) -> tuple[str, ...]:
        """The tiers that warn now."""

        def rate(window_ms: int) -> float:
            return self.burn.get(iso_duration(window_ms), 0.0)

        tiers = self.objective.tiers
        return tuple(tier.name for tier in tiers if tier.fires(rate(tier.long_ms), rate(tier.short_ms)))

    @property
    def agreement(self) -> Literal["same", "differs", "alone"]:
        """Whether the recomputed and the streamed figures are the same; `alone` when there is only one of them."""
        if self.measure is None or self.streamed is None:
            return "alone"
        pairs = ((self.measure.good, self.streamed.good), (self.measure.total, self.streamed.total))
        same = all(math.isclose(a, b, rel_tol=AGREE_WITHIN, abs_tol=0.5) for a, b in pairs)
        return "same" if same else "differs"


def standings(
    reader: Reader, view: View, objectives: Objectives, *, window_ms: int | None = None
) -> tuple[Standing, ...]:
    """Return where each objective stands at the end of the data, over its own window or the one asked for."""
    to_ms = view.as_of_ms
    lengths = sorted({length for o in objectives for length in (window_ms or o.window_ms, *o.burn_windows_ms)})
    # What happened at the very last moment counts too: the windows end just after it.
    windows = [Interval(_start_ms(to_ms, length), to_ms + 1) for length in lengths]
    rows = recompute.rows(reader, view, windows, objectives["job_start"].within_ms or 0)
    measured = {length: rows.measures(index) for index, length in enumerate(lengths)}
    counted = recompute.streamed(reader, view, to_ms)
    return tuple(_standing(o, window_ms or o.window_ms, measured, counted) for o in objectives)


def _start_ms(now_ms: int, window_ms: int) -> int:
    """Return where a rolling window begins: at a whole minute, or hour beyond six, as the processors count."""
    unit_ms = MINUTE_MS if window_ms <= MINUTES_UP_TO_MS else HOUR_MS
    return (now_ms - window_ms) // unit_ms * unit_ms


def _standing(
    objective: Objective, window_ms: int, measured: Mapping[int, Mapping[str, Measure]], counted: Sequence[Row]
) -> Standing:
    streamed = _streamed(objective, window_ms, counted)
    here = measured[window_ms].get(objective.name)
    burn = dict(streamed.burn) if streamed is not None and here is None else {}
    if here is not None:
        for length in objective.burn_windows_ms:
            part = measured[length][objective.name]
            burn[iso_duration(length)] = burn_rate(part.bad, part.total, objective.target)
    return Standing(objective, window_ms, here, burn, streamed)


def _streamed(objective: Objective, window_ms: int, counted: Sequence[Row]) -> Streamed | None:
    rows = [r for r in counted if r["objective"] == objective.name and r["window"] == iso_duration(window_ms)]
    if not rows:
        return None
    scale = SECOND_MS if objective.of_time else 1
    good, total = (sum(row[name] for row in rows) * scale for name in ("good", "total"))
    by_class: dict[str, float] = {}
    for row in rows:
        for name, amount in row["by_cause"].items():
            by_class[name] = by_class.get(name, 0.0) + amount * scale
    alone = rows[0] if len(rows) == 1 else {}
    return Streamed(
        good=good,
        total=total,
        attained=attained(good, total),
        burn=alone.get("burn", {}),
        by_class={name: amount for name, amount in by_class.items() if amount},
        bounds=(alone["low"], alone["high"]) if alone.get("low") is not None else None,
        at_ms=max(row["at_ms"] for row in rows),
    )
