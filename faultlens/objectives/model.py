"""What an objective is once its file was read: target, window, unit and the burn rates that warn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from faultlens.budget import burn_factor, highest_burn, lowest_target_that_fires

Unit: TypeAlias = Literal["node_seconds", "gpu_seconds", "attempts", "jobs"]
Severity: TypeAlias = Literal["page", "ticket"]


@dataclass(frozen=True, slots=True)
class Tier:
    """Warns when both windows burn so fast that `budget_share` of the period's budget goes within the long one."""

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


@dataclass(frozen=True, slots=True)
class Objective:
    """One objective: `target` is the least share of good in the rolling `window_ms`.

    `within_ms` and `pending_limit_ms` are set only for `job_start`. `tiers` holds those that can fire.
    """

    name: str
    title: str
    promise: str
    target: float
    unit: Unit
    window_ms: int
    tiers: tuple[Tier, ...]
    never_fire: tuple[NeverFires, ...] = ()
    within_ms: int | None = None
    pending_limit_ms: int | None = None

    @property
    def of_time(self) -> bool:
        """Whether amounts are time (told in seconds, kept in milliseconds) and not counts; serving replicas are."""
        return self.unit in ("node_seconds", "gpu_seconds") or self.name == "serving_capacity"

    @property
    def burn_windows_ms(self) -> tuple[int, ...]:
        """The windows over which burn rates are wanted, shortest first, each once."""
        return tuple(sorted({window for tier in self.tiers for window in (tier.long_ms, tier.short_ms)}))


@dataclass(frozen=True, slots=True)
class Objectives:
    """All objectives by name, with the version of the file they come from."""

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


def split_tiers(
    objective: str, target: float, tiers: tuple[Tier, ...]
) -> tuple[tuple[Tier, ...], tuple[NeverFires, ...]]:
    """Return the tiers that can fire at this target, and those that never can."""
    highest = highest_burn(target)
    # A hair's breadth for what division does to a target like 0.9: a tier exactly at the limit can fire.
    can = {tier.name for tier in tiers if tier.factor <= highest * (1 + 1e-9)}
    left_out = (NeverFires(objective, tier.name, tier.factor, highest) for tier in tiers if tier.name not in can)
    return tuple(tier for tier in tiers if tier.name in can), tuple(left_out)
