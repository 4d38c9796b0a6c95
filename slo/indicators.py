"""What is measured: availability, reliability, effective training time, goodput, job success, each one formula."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

HOURS_PER_DAY: Final = 24
MINUTES_PER_DAY: Final = 1440
# As often as it takes for the bounds to agree to a float's precision; terms below this share no longer change it.
_HALVINGS: Final = 60
_NEGLIGIBLE: Final = 1e-17


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


def poisson_bounds(count: int, *, confidence: float = 0.9) -> tuple[float, float]:
    """Return the lowest and highest mean that a count of independent events is compatible with.

    Exact: each side leaves out (1 - confidence) / 2. Source: Garwood, Biometrika 28 (1936).
    """
    left_out = (1 - confidence) / 2
    low = _where(lambda mean: _at_least(count, mean) >= left_out, upper=float(count)) if count else 0.0
    high = _where(lambda mean: _at_most(count, mean) <= left_out, upper=count + 20 * math.sqrt(count + 10))
    return low, high


def mttf_bounds_h(observed_h: float, failures: int, *, confidence: float = 0.9) -> tuple[float, float]:
    """Return between what the mean time to failure lies, in hours, where so many failures were seen in that time.

    Without failures nothing bounds it from above.
    """
    low, high = poisson_bounds(failures, confidence=confidence)
    return observed_h / high, observed_h / low if low > 0 else math.inf


def _where(holds: Callable[[float], bool], *, upper: float) -> float:
    """Return from which mean in [0, upper] on something holds that does not hold below it."""
    below = 0.0
    for _ in range(_HALVINGS):
        middle = (below + upper) / 2
        below, upper = (below, middle) if holds(middle) else (middle, upper)
    return upper


def _chance(count: int, mean: float) -> float:
    return math.exp(count * math.log(mean) - mean - math.lgamma(count + 1)) if mean > 0 else float(count == 0)


def _at_most(count: int, mean: float) -> float:
    """Return the chance of so many events or fewer: terms from the last one down, until they no longer matter."""
    term = total = _chance(count, mean)
    while count > 0 and term > total * _NEGLIGIBLE:
        term *= count / mean
        count -= 1
        total += term
    return total


def _at_least(count: int, mean: float) -> float:
    """Return the chance of so many events or more, by terms from the first one up."""
    term = total = _chance(count, mean)
    while term > total * _NEGLIGIBLE:
        count += 1
        term *= mean / count
        total += term
    return total


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


def share_lost_to_saving(interval_min: float, write_min: float, *, nodes: int, failures_per_node_day: float) -> float:
    """Return what share of its time a job loses by saving, and by what failures take back: w / dt + N r_f dt / 2.

    First order, as the interval that is best is (Young, CACM 17 (1974)).
    """
    return write_min / interval_min + nodes * failures_per_node_day * interval_min / 2 / MINUTES_PER_DAY


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
