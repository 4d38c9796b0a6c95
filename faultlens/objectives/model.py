"""What an objective is once its documents were read: indicator, scope, target, window and the burn rates that warn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from faultlens.budget import (
    Slice,
    burn_factor,
    highest_burn,
    lowest_target_that_fires,
    occurrences,
    ratio_time_slices,
    time_slices,
)
from faultlens.clock import MINUTE_MS
from faultlens.objectives.windows import Window

Unit: TypeAlias = Literal["node_seconds", "gpu_seconds", "attempts", "jobs"]
Severity: TypeAlias = Literal["page", "ticket"]
Method: TypeAlias = Literal["Occurrences", "Timeslices", "RatioTimeslices"]

# What is measured, and in which unit.
INDICATORS: Final[dict[str, Unit]] = {
    "node_availability": "node_seconds",
    "gpu_availability": "gpu_seconds",
    "job_start": "attempts",
    "job_success": "attempts",
    "goodput": "gpu_seconds",
    "serving_capacity": "attempts",
    "coverage": "node_seconds",
}
OF_NODES: Final = frozenset({"node_availability", "gpu_availability", "coverage"})


@dataclass(frozen=True, slots=True)
class Scope:
    """What an objective is about; empty parts mean all. Nodes and attempts are of pools, jobs of teams, workloads."""

    cluster: str = ""
    pool: str = ""
    team: str = ""
    workload: str = ""

    @property
    def narrow(self) -> bool:
        """Whether it is about a part of a cluster."""
        return bool(self.pool or self.team or self.workload)

    def covers(self, cluster: str, pool: str, team: str, workload: str) -> bool:
        """Whether what is counted for exactly this place is what the objective is about."""
        return self.cluster in ("", cluster) and (self.pool, self.team, self.workload) == (pool, team, workload)

    def __str__(self) -> str:
        named = (("cluster", self.cluster), ("pool", self.pool), ("team", self.team), ("workload", self.workload))
        return ", ".join(f"{kind} {name}" for kind, name in named if name) or "every cluster"


@dataclass(frozen=True, slots=True)
class Exclusion:
    """Time that does not count, wholly or for what some classes are charged with: [from_ms, to_ms) in whole hours.

    `cluster`: where alone it does not; empty: nowhere.
    """

    name: str
    from_ms: int
    to_ms: int
    reason: str
    author: str
    classes: tuple[str, ...] = ()
    cluster: str = ""

    def meets(self, cluster: str) -> bool:
        """Whether something of that cluster is left out; of an empty name: of any."""
        return not (self.cluster and cluster) or self.cluster == cluster


@dataclass(frozen=True, slots=True)
class Tier:
    """Warns when both windows burn at `factor` or faster: when that uses `budget_share` of the period's budget
    within the long one."""

    name: str
    severity: Severity
    long_ms: int
    short_ms: int
    budget_share: float
    period_ms: int

    @property
    def factor(self) -> float:
        """The burn rate from which the tier warns."""
        return burn_factor(self.budget_share, period_ms=self.period_ms, window_ms=self.long_ms)

    def fires(self, long_burn: float, short_burn: float) -> bool:
        """Whether burn rates over the long and the short window are both too high."""
        return long_burn >= self.factor and short_burn >= self.factor


@dataclass(frozen=True, slots=True)
class NeverFires:
    """A tier that was left out of an objective: even if everything were bad its factor would not be reached."""

    objective: str
    tier: str
    factor: float
    highest_burn: float

    def __str__(self) -> str:
        return (
            f"{self.objective}: tier {self.tier} is left out: it needs a burn rate of {self.factor:.4g}, and a total "
            f"outage burns only {self.highest_burn:.4g} (a target of {lowest_target_that_fires(self.factor):.2%} could)"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """One objective: `target` is the least share of good in the window.

    `within_ms` and `pending_limit_ms` are set only for `job_start`. `tiers` holds those that can fire. `slice_ms` and
    `slice_target` are set where it is counted by slices of time.
    """

    name: str
    indicator: str
    title: str
    promise: str
    target: float
    window: Window
    tiers: tuple[Tier, ...]
    scope: Scope = Scope()
    method: Method = "Occurrences"
    slice_ms: int | None = None
    slice_target: float | None = None
    exclusions: tuple[Exclusion, ...] = ()
    never_fire: tuple[NeverFires, ...] = ()
    within_ms: int | None = None
    pending_limit_ms: int | None = None

    @property
    def unit(self) -> Unit:
        """What amounts are of."""
        return INDICATORS[self.indicator]

    @property
    def window_ms(self) -> int:
        """How long the window is that the budget is reckoned by."""
        return self.window.length_ms

    @property
    def of_time(self) -> bool:
        """Whether amounts are time (told in seconds, kept in milliseconds) and not counts; serving replicas are."""
        return self.unit in ("node_seconds", "gpu_seconds") or self.indicator == "serving_capacity"

    @property
    def simple(self) -> bool:
        """Whether it is good over total of everything in a rolling window, nothing left out."""
        return self.method == "Occurrences" and self.window.calendar is None and not self.exclusions

    @property
    def burn_windows_ms(self) -> tuple[int, ...]:
        """The windows over which burn rates are wanted, shortest first, each once."""
        return tuple(sorted({window for tier in self.tiers for window in (tier.long_ms, tier.short_ms)}))

    def attained(self, slices: Iterable[Slice]) -> float | None:
        """Return what was attained, of what counted in slices of time, by this objective's way; None: nothing did."""
        if self.method == "Timeslices":
            return time_slices(slices, slice_target=self.slice_target or self.target)
        return occurrences(slices) if self.method == "Occurrences" else ratio_time_slices(slices)


@dataclass(frozen=True, slots=True)
class Objectives:
    """All objectives by name, with the version of the documents they come from."""

    version: str
    by_name: Mapping[str, Objective]

    def __getitem__(self, name: str) -> Objective:
        return self.by_name[name]

    def __iter__(self) -> Iterator[Objective]:
        return iter(self.by_name.values())

    def __contains__(self, name: str) -> bool:
        return name in self.by_name

    @property
    def never_fire(self) -> tuple[NeverFires, ...]:
        """Every tier that was left out because it could never fire."""
        return tuple(left_out for objective in self for left_out in objective.never_fire)

    @property
    def start_within_ms(self) -> int:
        """How long after its allocation an attempt may take to run user code: as the first objective on it says."""
        return next((o.within_ms for o in self if o.within_ms is not None), 10 * MINUTE_MS)

    @property
    def start_pending_limit_ms(self) -> int:
        """How long an attempt may wait for capacity that was lost."""
        return next((o.pending_limit_ms for o in self if o.pending_limit_ms is not None), 30 * MINUTE_MS)

    def promised(
        self, indicator: str, cluster: str, pool: str = "", team: str = "", workload: str = ""
    ) -> Objective | None:
        """Return the objective that processors hold an indicator to in one place: one about exactly this place, else
        the general one. Of several the first; the others are counted from the store alone.
        """
        mine = [objective for objective in self if objective.indicator == indicator]
        exact = (o for o in mine if o.scope != Scope() and o.scope.covers(cluster, pool, team, workload))
        return next(exact, next((o for o in mine if o.scope == Scope()), None))


def split_tiers(
    objective: str, target: float, tiers: tuple[Tier, ...]
) -> tuple[tuple[Tier, ...], tuple[NeverFires, ...]]:
    """Return the tiers that can fire at this target, and those that never can."""
    highest = highest_burn(target)
    # A hair's breadth for what division does to a target like 0.9: a tier exactly at the limit can fire.
    can = {tier.name for tier in tiers if tier.factor <= highest * (1 + 1e-9)}
    left_out = (NeverFires(objective, tier.name, tier.factor, highest) for tier in tiers if tier.name not in can)
    return tuple(tier for tier in tiers if tier.name in can), tuple(left_out)
