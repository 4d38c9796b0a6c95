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
from slo.backing import digits_of, is_enough
from slo.intervals import Interval
from slo.measure import Measure, Row
from slo.promises import Answers, Promise, promises, windows_of
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
    """An objective over its window: `measure` is recomputed, or None where only the processors can count it.

    `attained` is by the objective's way of counting: the recomputed share where there is one. `window` is its name.
    `known_ms` of `elapsed_ms` of it the store knows something of; a calendar's window elapses up to its end.
    """

    objective: Objective
    view: View
    window: str
    window_ms: int
    measure: Measure | None
    attained: float | None
    burn: Mapping[str, float]
    streamed: Streamed | None
    known_ms: int = 0
    elapsed_ms: int = 0

    @property
    def enough(self) -> bool:
        """Whether so much is known that a target that looks kept may be called so."""
        counted = self.measure or self.streamed
        total = counted.total if counted else 0
        return is_enough(total, of_time=self.objective.of_time, known_ms=self.known_ms, window_ms=self.elapsed_ms)

    @property
    def digits(self) -> int:
        """How many decimals of a percentage its figures have."""
        counted = self.measure or self.streamed
        return digits_of(self.objective.target, counted.total if counted else 0, of_time=self.objective.of_time)

    @property
    def met(self) -> bool | None:
        """Whether the target is kept; None when nothing counted."""
        return None if self.attained is None else self.attained >= self.objective.target

    @property
    def budget_left(self) -> float | None:
        """The share of the budget that is left: of what has counted so far."""
        if self.objective.slice_ms is not None:
            return None if self.attained is None else budget_remaining(self.attained, 1, self.objective.target)
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
        if self.objective.slice_ms is not None:
            same = same and _close(self.attained, self.streamed.attained)
        return "same" if same else "differs"


def _close(one: float | None, other: float | None) -> bool:
    return one == other if one is None or other is None else math.isclose(one, other, abs_tol=AGREE_WITHIN)


def standings(
    reader: Reader, view: View, objectives: Objectives, *, window_ms: int | None = None
) -> tuple[Standing, ...]:
    """Return where each objective stands at the end of the data, over its own window or a rolling one."""
    asked = promises(objectives, view)
    wanted = {promise: _windows(promise.objective, view.as_of_ms, window_ms) for promise in asked}
    answers = Answers(reader, wanted, within_ms=objectives.start_within_ms)
    counted = {own: recompute.streamed(reader, own, view.as_of_ms) for own in dict.fromkeys(p.view for p in asked)}
    return tuple(
        _standing(promise, answers, _counted_for(promise, objectives, counted[promise.view]), window_ms)
        for promise in asked
    )


def _windows(objective: Objective, to_ms: int, window_ms: int | None) -> list[Interval]:
    whole = _window(objective, to_ms, window_ms)
    return [*windows_of(objective, whole), *(_rolling(to_ms, length) for length in objective.burn_windows_ms)]


def _window(objective: Objective, to_ms: int, window_ms: int | None) -> Interval:
    """Return the window up to now. What happened at the very last moment counts too: it ends just after it."""
    if window_ms is not None:
        return _rolling(to_ms, window_ms)
    return Interval(objective.window.start_ms(to_ms), to_ms + 1)


def _rolling(to_ms: int, length_ms: int) -> Interval:
    """Return a rolling window: it begins at a whole minute, or hour beyond six, as the processors count."""
    unit_ms = MINUTE_MS if length_ms <= MINUTES_UP_TO_MS else HOUR_MS
    return Interval((to_ms - length_ms) // unit_ms * unit_ms, to_ms + 1)


def _counted_for(promise: Promise, objectives: Objectives, counted: Sequence[Row]) -> list[Row]:
    """Return what the processors said of this objective, and not of another on the same indicator."""
    objective, view = promise
    own = (view.pool, view.team, view.workload)
    rows = (row for row in counted if row["objective"] == objective.indicator)
    return [row for row in rows if objectives.promised(objective.indicator, row["cluster"], *own) is objective]


def _standing(promise: Promise, answers: Answers, counted: Sequence[Row], window_ms: int | None) -> Standing:
    objective, view = promise
    to_ms = view.as_of_ms
    whole = _window(objective, to_ms, window_ms)
    name = objective.window.name if window_ms is None else iso_duration(window_ms)
    streamed = _streamed(objective, name, counted)
    here = answers.measure(promise, whole)
    burn = dict(streamed.burn) if streamed is not None and here is None else {}
    if here is not None:
        for length in objective.burn_windows_ms:
            part = answers.measure(promise, _rolling(to_ms, length))
            burn[iso_duration(length)] = 0.0 if part is None else burn_rate(part.bad, part.total, objective.target)
    share = streamed.attained if here is None and streamed is not None else answers.attained(promise, whole)
    known_ms = max(0, to_ms - max(view.since_ms, whole.from_ms))
    elapsed_ms = to_ms - whole.from_ms
    length_ms = window_ms or objective.window_ms
    return Standing(objective, view, name, length_ms, here, share, burn, streamed, known_ms, elapsed_ms)


def _streamed(objective: Objective, window: str, counted: Sequence[Row]) -> Streamed | None:
    rows = [row for row in counted if row["window"] == window]
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
        attained=alone["attained"] if alone and objective.slice_ms is not None else attained(good, total),
        burn=alone.get("burn", {}),
        by_class={name: amount for name, amount in by_class.items() if amount},
        bounds=(alone["low"], alone["high"]) if alone.get("low") is not None else None,
        at_ms=max(row["at_ms"] for row in rows),
    )
