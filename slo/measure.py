"""Objectives recomputed from the store's rows: what was good, what counted, and whom the rest is charged to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from faultlens.budget import attained
from faultlens.causes import class_of, is_known
from slo.indicators import (
    ResourceTime,
    SuccessCount,
    overall_availability,
    success_bounds,
    success_ratio,
)

OVERHEAD: Final = "overhead"
"""Stands in the place of a class for what no failure is behind."""

IN_USE: Final = frozenset({"available", "degraded"})
OUT: Final = frozenset({"blocked", "draining", "down", "silent", "maintenance"})

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Measure:
    """An objective over one window; amounts are milliseconds or counts, and `by_class` adds up to total - good.

    `also` is the second number of an objective that has two. `bounds`: attained if all that is assumed were bad, and
    if none of it were.
    """

    good: int = 0
    total: int = 0
    by_class: Mapping[str, int] = field(default_factory=dict)
    also: tuple[tuple[str, float | None], ...] = ()
    bounds: tuple[float, float] | None = None

    @property
    def bad(self) -> int:
        """What counted and was not good."""
        return self.total - self.good

    @property
    def attained(self) -> float | None:
        """Good over total; None when nothing counted."""
        return attained(self.good, self.total)

    def less(self, part: Measure, classes: Collection[str] = ()) -> Measure:
        """Return the measure without a part of it, or without what these classes are charged with in that part."""
        taken = {name: amount for name, amount in part.by_class.items() if not classes or name in classes}
        by_class = {name: amount - taken.get(name, 0) for name, amount in self.by_class.items()}
        good = self.good if classes else self.good - part.good
        return Measure(
            good,
            good + sum(by_class.values()),
            {name: amount for name, amount in by_class.items() if amount},
            self.also,
        )


def class_or_overhead(code: str) -> str:
    """Return the class that a cause code is charged to; overhead where there is none, or none that is known."""
    return class_of(code) if is_known(code) else OVERHEAD


# --- availability ---------------------------------------------------------------------------------------


def node_availability(rows: Iterable[Row]) -> Measure:
    """Node-milliseconds that could take work over those not planned to be out; a degraded node can."""
    return _availability((row, row["node_ms"] if row["state"] in IN_USE else 0, row["node_ms"]) for row in rows)


def gpu_availability(rows: Iterable[Row]) -> Measure:
    """GPU-milliseconds that were allocatable over those not planned to be out; a node's unhealthy GPUs were not."""
    return _availability((row, row["allocatable_ms"] if row["state"] in IN_USE else 0, row["gpu_ms"]) for row in rows)


def _availability(split: Iterable[tuple[Row, int, int]]) -> Measure:
    """From (row, what of it was up, all of it)."""
    up = planned = 0
    down: Counter[str] = Counter()
    for row, could_be_used, all_of_it in split:
        if row["state"] in OUT and row["planned"]:
            planned += all_of_it
        elif row["state"] in IN_USE | OUT:
            up += could_be_used
            down[class_or_overhead(row["cause"])] += all_of_it - could_be_used
    time = ResourceTime(up, down.total(), planned)
    also = ("with planned maintenance as down", overall_availability(time))
    return Measure(up, time.reported - planned, _positive(down), (also,))


# --- job start and job success --------------------------------------------------------------------------


def job_start(rows: Iterable[Row]) -> Measure:
    """Attempts that ran on every rank in time over those that counted."""
    good = assumed_bad = assumed_out = 0
    bad: Counter[str] = Counter()
    for row in rows:
        how, count = row["how"], row["attempts"]
        good += count * (how == "in_time")
        assumed_out += count * (how == "out" and row["basis"] == "assumed")
        if how in ("late", "waiting", "failed"):
            # Which condition was open at a late start only the processors knew; otherwise the scheduler answers.
            bad[row["class"] or "platform"] += count
            assumed_bad += count * (row["basis"] in ("", "assumed"))
    return _of_counts(SuccessCount(good, bad.total(), assumed_bad, assumed_out), bad)


def job_success(rows: Iterable[Row]) -> Measure:
    """Started attempts that succeeded over those that users did not fail themselves; also weighted by GPU time."""
    counted = [row for row in rows if row["started"] and not row["serving"]]
    count, bad = _succeeded(counted, "attempts")
    weighted, _ = _succeeded(counted, "gpu_ms")
    return _of_counts(count, bad, also=(("weighted by GPU time", success_ratio(weighted)),))


def _succeeded(rows: Iterable[Row], weight: str) -> tuple[SuccessCount, Counter[str]]:
    good = assumed_bad = assumed_out = 0
    bad: Counter[str] = Counter()
    for row in rows:
        amount, assumed = row[weight], row["basis"] == "assumed"
        if row["outcome"] == "succeeded":
            good += amount
        elif row["class"] == "user":
            assumed_out += amount * assumed
        elif row["class"]:
            bad[row["class"]] += amount
            assumed_bad += amount * assumed
    return SuccessCount(good, bad.total(), assumed_bad, assumed_out), bad


def _of_counts(count: SuccessCount, bad: Counter[str], also: tuple[tuple[str, float | None], ...] = ()) -> Measure:
    return Measure(count.good, count.total, _positive(bad), also, success_bounds(count))


# --- goodput --------------------------------------------------------------------------------------------


def goodput(rows: Iterable[Row]) -> Measure:
    """Productive over allocated GPU-milliseconds."""
    productive = total = 0
    lost: Counter[str] = Counter()
    for row in rows:
        total += row["gpu_ms"]
        if row["category"] == "productive":
            productive += row["gpu_ms"]
        else:
            lost[row["class"] or OVERHEAD] += row["gpu_ms"]
    return Measure(productive, total, _positive(lost))


# --- several windows at once ----------------------------------------------------------------------------


def by_window(rows: Iterable[Row], windows: int) -> list[list[Row]]:
    """Return the rows of each window; the store numbers them from 1."""
    split: list[list[Row]] = [[] for _ in range(windows)]
    for row in rows:
        split[row["window"] - 1].append(row)
    return split


def _positive(counts: Counter[str]) -> dict[str, int]:
    return {name: count for name, count in counts.items() if count}
