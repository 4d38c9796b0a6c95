"""How long jobs last by their size, how often they should save, and which hardware went back to its vendor."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from faultlens.catalogue.families import Families
from faultlens.clock import HOUR_MS, MINUTE_MS, SECOND_MS
from slo.backing import floors
from slo.indicators import (
    best_checkpoint_interval_min,
    effective_time_ratio,
    failure_rate,
    mean_time_between_h,
    mttf_bounds_h,
    share_lost_to_saving,
)
from slo.measure import Row

SAVES_LIMIT: Final = 10
# Saving a little more or less often than is best costs next to nothing: the optimum is flat.
WORTH_A_CHANGE: Final = 1.5
_VENDORS: Final = {"nvidia": "NVIDIA", "amd": "AMD", "aws": "AWS"}
UNKNOWN: Final = "unknown"


@dataclass(frozen=True, slots=True)
class SizeLine:
    """Attempts that held `from_gpus` to `to_gpus` GPUs (0: any more): how many, how long they ran, and what hit them.

    `failures` are those charged to hardware and drivers; `mttf_h` is None without one, and the bounds hold what 90 %
    confidence leaves open (`high_h` is infinite without a failure).
    """

    from_gpus: int
    to_gpus: int
    attempts: int
    run_ms: int
    failures: int

    @property
    def mttf_h(self) -> float | None:
        """Mean time to failure of such a job, in hours."""
        return mean_time_between_h(self.run_ms / HOUR_MS, self.failures)

    @property
    def bounds_h(self) -> tuple[float, float]:
        """Between what the mean time to failure lies, in hours."""
        return mttf_bounds_h(self.run_ms / HOUR_MS, self.failures)


@dataclass(frozen=True, slots=True)
class SaveLine:
    """A job that would lose less if it saved more or less often; `gained_gpu_ms` of what it held, by expectation."""

    job_id: str
    gpus: int
    saves: int
    write_ms: int
    every_ms: int
    best_ms: int
    gained_gpu_ms: int


@dataclass(frozen=True, slots=True)
class TrainingLine:
    """A training that held much GPU time: its wall time, and how often hardware, drivers or the platform broke in.

    `unproductive_ms` leaves out what the user's own failures lost.
    """

    job_id: str
    team: str
    gpus: int
    attempts: int
    interruptions: int
    productive_ms: int
    unproductive_ms: int
    queued_ms: int

    @property
    def effective(self) -> float | None:
        """Effective training time: the share of the wall time that became work which was kept."""
        return effective_time_ratio(self.productive_ms, self.unproductive_ms, self.queued_ms)

    @property
    def between_h(self) -> float | None:
        """Mean time between interruptions, in hours; None without one."""
        return mean_time_between_h((self.productive_ms + self.unproductive_ms) / HOUR_MS, self.interruptions)


@dataclass(frozen=True, slots=True)
class ReturnedLine:
    """Nodes with a vendor's GPUs that were replaced or taken away: how often, and how long until they were back."""

    vendor: str
    family: str
    nodes: int
    times: int
    still_away: int
    away_ms: tuple[int, ...]

    @property
    def median_ms(self) -> int | None:
        """The median time until a node was back; None while none is."""
        return sorted(self.away_ms)[len(self.away_ms) // 2] if self.away_ms else None


def sizes(rows: Iterable[Row]) -> tuple[SizeLine, ...]:
    """Return how jobs of each size lasted, the smallest first."""
    return tuple(
        SizeLine(_smallest(row["up_to"]), row["up_to"], row["attempts"], row["run_ms"], row["failed"]) for row in rows
    )


def _smallest(up_to: int) -> int:
    """Return where a size begins that ends at `up_to`; sizes grow by the factor 8, as many GPUs as a node has."""
    if up_to == 0:
        return 4_097
    return 1 if up_to == 8 else up_to // 8 + 1


def trainings(rows: Iterable[Row]) -> tuple[TrainingLine, ...]:
    """Return the trainings that held most GPU time, in that order."""
    names = TrainingLine.__dataclass_fields__
    return tuple(TrainingLine(**{name: row[name] for name in names}) for row in rows)


def saves(rows: Iterable[Row], failures: int, gpu_days: float) -> tuple[SaveLine, ...]:
    """Return the jobs that would gain most by saving at Daly and Young's interval, the most first.

    `failures` in so many GPU-days say how often one takes work back; of too few, or of a job that saved too seldom,
    nothing is concluded.
    """
    rate = failure_rate(failures, gpu_days)
    if not rate or failures < floors().failures:
        return ()
    lines = [_save(row, rate) for row in rows if row["saves"] >= floors().saves]
    worth = [line for line in lines if line.gained_gpu_ms > 0 and _differs(line)]
    return tuple(sorted(worth, key=lambda line: (-line.gained_gpu_ms, line.job_id))[:SAVES_LIMIT])


def _save(row: Row, rate: float) -> SaveLine:
    write_min, every_min = row["write_s"] * SECOND_MS / MINUTE_MS, row["gap_ms"] / MINUTE_MS
    gpus = row["gpus"]
    best_min = best_checkpoint_interval_min(write_min, nodes=gpus, failures_per_node_day=rate)
    now, then = (
        share_lost_to_saving(minutes, write_min, nodes=gpus, failures_per_node_day=rate)
        for minutes in (every_min, best_min)
    )
    # First order: a job cannot lose more than all.
    gained = round((min(now, 1.0) - min(then, 1.0)) * row["gpu_ms"])
    return SaveLine(
        row["job_id"],
        gpus,
        row["saves"],
        round(row["write_s"] * SECOND_MS),
        row["gap_ms"],
        round(best_min * MINUTE_MS),
        gained,
    )


def _differs(line: SaveLine) -> bool:
    return abs(math.log(line.every_ms / line.best_ms)) >= math.log(WORTH_A_CHANGE)


def returned(rows: Iterable[Row], families: Families) -> tuple[ReturnedLine, ...]:
    """Return what was replaced or taken away, by the vendor of its GPUs. Events name no vendor: the family does."""
    by_kind: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        family = families.canonical(row["family"])
        vendor = UNKNOWN if family is None else _VENDORS[families.vendor_of(family)]
        by_kind.setdefault((vendor, family or row["family"] or UNKNOWN), []).append(row)
    return tuple(_returned(vendor, family, told) for (vendor, family), told in sorted(by_kind.items()))


def _returned(vendor: str, family: str, rows: list[Row]) -> ReturnedLine:
    back = tuple(row["back_ms"] - row["left_ms"] for row in rows if row["back_ms"] > row["left_ms"])
    return ReturnedLine(vendor, family, len({row["node"] for row in rows}), len(rows), len(rows) - len(back), back)
