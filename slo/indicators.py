"""What is measured: availability, reliability, effective training time, goodput, job success, each one formula."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

HOURS_PER_DAY: Final = 24
MINUTES_PER_DAY: Final = 1440


# --- availability ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ResourceTime:
    """Resource time (nodes or GPUs times time, any one unit) split three ways, each part of it counted once.

    `up` is everything that could be used: allocated, idle and reserved. Source: Slurm `sreport cluster utilization`.
    """

    up: int
    down: int
    planned_down: int = 0

    @property
    def reported(self) -> int:
        """All time that was reported."""
        return self.up + self.down + self.planned_down


def unplanned_availability(time: ResourceTime) -> float | None:
    """Return 1 - down / (reported - planned down): planned outages leave the denominator. None without time."""
    valid = time.reported - time.planned_down
    return 1 - time.down / valid if valid > 0 else None


def overall_availability(time: ResourceTime) -> float | None:
    """Return 1 - (down + planned down) / reported: what users could have had. None without time."""
    return 1 - (time.down + time.planned_down) / time.reported if time.reported > 0 else None


# --- reliability ----------------------------------------------------------------------------------------


def failure_rate(failures: int, node_days: float) -> float | None:
    """Return failures per node-day (r_f). Source: Kokolis et al., HPCA 2025."""
    return failures / node_days if node_days > 0 else None


def mttf_h(nodes: float, failures_per_node_day: float) -> float:
    """Return a job's mean time to failure in hours on that many nodes, 1 / (N r_f); infinite without failures."""
    rate = nodes * failures_per_node_day
    return HOURS_PER_DAY / rate if rate > 0 else math.inf


def mean_time_between_h(observed_h: float, events: int, *, units: int = 1) -> float | None:
    """Return observed hours over events (MTBE); of `units` devices the hours per device. None without events."""
    return units * observed_h / events if events else None


# --- effective training time ----------------------------------------------------------------------------


def effective_time_ratio(productive: float, unproductive: float, queued: float) -> float | None:
    """Return ETTR = R / (R + U + Q) of one logical training, time after the user's own failures left out."""
    wall = productive + unproductive + queued
    return productive / wall if wall > 0 else None


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """A training to be: its nodes, how often a node fails, and what a failure and a checkpoint cost in minutes."""

    nodes: int
    failures_per_node_day: float
    restart_min: float
    checkpoint_every_min: float
    queue_min: float = 0.0


def expected_effective_time_ratio(plan: TrainingPlan) -> float:
    """Return E[ETTR] to first order: 1 - N r_f (u0 + dt/2 + q), never below 0.

    Valid where a failure costs much less than the time between failures. Source: Kokolis et al., HPCA 2025.
    """
    cost_min = plan.restart_min + plan.checkpoint_every_min / 2 + plan.queue_min
    return max(0.0, 1 - plan.nodes * plan.failures_per_node_day * cost_min / MINUTES_PER_DAY)


def best_checkpoint_interval_min(write_min: float, *, nodes: int, failures_per_node_day: float) -> float:
    """Return the interval that loses least, sqrt(2 w / (N r_f)) (Daly and Young), in minutes."""
    return math.sqrt(2 * write_min * MINUTES_PER_DAY / (nodes * failures_per_node_day))


# --- goodput --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Decomposition:
    """Allocated time by category; `other` is what the named parts leave, so that the sum is exact."""

    total: int
    parts: Mapping[str, int]

    @property
    def other(self) -> int:
        """What no named part accounts for."""
        return self.total - sum(self.parts.values())

    def share(self, category: str) -> float | None:
        """Return a category's share of the total; None when there is no time."""
        amount = self.other if category == "other" else self.parts.get(category, 0)
        return amount / self.total if self.total > 0 else None


def goodput(productive: float, total: float, *, excluded: float = 0, productive_excluded: float = 0) -> float | None:
    """Return productive over total time; excluded time leaves both. None when nothing is left.

    Source: Google ml-goodput-measurement.
    """
    left = total - excluded
    return (productive - productive_excluded) / left if left > 0 else None


# --- job start and job success --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SuccessCount:
    """Attempts (or their GPU-milliseconds) by what became of them.

    `bad` is charged to hardware, driver and platform; `assumed_bad` the part of it that rests on an assumption;
    `assumed_out` what left the denominator (user) on an assumption alone.
    """

    good: int
    bad: int
    assumed_bad: int = 0
    assumed_out: int = 0

    @property
    def total(self) -> int:
        """What counts: good and bad."""
        return self.good + self.bad


def success_ratio(count: SuccessCount) -> float | None:
    """Return good over valid; None when nothing is valid."""
    return count.good / count.total if count.total else None


def success_bounds(count: SuccessCount) -> tuple[float, float] | None:
    """Return the ratio if everything assumed were bad, and if nothing of it were. None when nothing is valid.

    Source: unknown causes counted both ways, as the reliability literature asks.
    """
    worst = count.total + count.assumed_out
    best = count.total - count.assumed_bad
    if worst <= 0:
        return None
    return count.good / worst, count.good / best if best > 0 else 1.0
