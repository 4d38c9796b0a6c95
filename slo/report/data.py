"""Everything that a report says, as plain data: amounts of GPU time are whole GPU-milliseconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from faultlens.objectives import Unit
from slo.backing import digits_of
from slo.indicators import goodput
from slo.report.corrections import Corrections
from slo.report.machines import ReturnedLine, SaveLine, SizeLine, TrainingLine

OVERHEAD: Final = "overhead"
"""Stands in the place of a class for time and events that no failure is behind."""

Basis = Literal["established", "supported", "assumed"]
BASES: Final[tuple[Basis, ...]] = ("established", "supported", "assumed")

# Losses in the order in which they are shown.
LOSSES: Final = (
    "lost_work",
    "stalled",
    "slow",
    "recovery",
    "startup",
    "checkpoint_save",
    "checkpoint_restore",
    "other",
)


@dataclass(frozen=True, slots=True)
class Period:
    """[from_ms, to_ms) in UTC, and what people call it; `complete` when the store's data reach its end."""

    from_ms: int
    to_ms: int
    label: str
    complete: bool = True


@dataclass(frozen=True, slots=True)
class ObjectiveLine:
    """An objective over the report's period and over its own rolling window that ends with it.

    `good` and `total` are milliseconds or counts. `budget_left` is of the rolling window; `spent` is the share of that
    window's budget that this period used. `also` holds the second number of an objective that has two: what it is, and
    its value. An objective that only the processors can count (`streamed`) has a rolling figure alone. Where not
    `enough` is known, a target that looks kept is not called so.
    """

    name: str
    title: str
    promise: str
    target: float
    unit: Unit
    good: float
    total: float
    attained: float | None
    before: float | None
    rolling: float | None
    budget_left: float | None
    spent: float | None
    by_class: Mapping[str, float]
    low: float | None = None
    high: float | None = None
    also: tuple[tuple[str, float | None], ...] = ()
    excluded: tuple[str, ...] = ()
    source: Literal["recomputed", "streamed"] = "recomputed"
    enough: bool = True

    @property
    def of_time(self) -> bool:
        """Whether amounts are milliseconds; serving replicas are."""
        return self.unit in ("node_seconds", "gpu_seconds") or self.name == "serving_capacity"

    @property
    def digits(self) -> int:
        """How many decimals of a percentage its figures have."""
        return digits_of(self.target, self.total, of_time=self.of_time)

    @property
    def met(self) -> bool | None:
        """Whether the target was kept; None when nothing was counted."""
        return None if self.shown is None else self.shown >= self.target

    @property
    def shown(self) -> float | None:
        """What was attained in the period, or where that is not known in the rolling window."""
        return self.rolling if self.source == "streamed" else self.attained


@dataclass(frozen=True, slots=True)
class CauseLine:
    """A cause: how many failures and survived losses it is charged with, and the GPU time it cost."""

    code: str
    cause_class: str
    title: str
    failures: int
    assumed: int
    gpu_ms: int

    @property
    def key(self) -> str:
        """What tells it from all others; a person's label may charge a code to another class than the registry."""
        return f"{self.cause_class}/{self.code}"


@dataclass(frozen=True, slots=True)
class DayLine:
    """A day's failures by class."""

    day_ms: int
    by_class: Mapping[str, int]

    @property
    def failures(self) -> int:
        """All of the day's failures."""
        return sum(self.by_class.values())


@dataclass(frozen=True, slots=True)
class Ledger:
    """What allocated GPU time went into, by category, in GPU-milliseconds; and how long jobs waited, in wall time."""

    by_category: Mapping[str, int]
    queued_ms: int = 0

    @property
    def allocated_ms(self) -> int:
        """All allocated GPU-milliseconds."""
        return sum(self.by_category.values())

    @property
    def productive_ms(self) -> int:
        """GPU-milliseconds of work that was kept."""
        return self.by_category.get("productive", 0)

    @property
    def lost_ms(self) -> int:
        """GPU-milliseconds of everything else."""
        return self.allocated_ms - self.productive_ms

    @property
    def goodput(self) -> float | None:
        """Productive over allocated; None when nothing was allocated."""
        return goodput(self.productive_ms, self.allocated_ms)

    @property
    def losses(self) -> list[tuple[str, int]]:
        """Each loss that occurred, in the order in which losses are shown; a category not known here comes last."""
        unknown = sorted(self.by_category.keys() - {"productive", *LOSSES})
        return [(name, self.by_category[name]) for name in (*LOSSES, *unknown) if self.by_category.get(name)]


@dataclass(frozen=True, slots=True)
class NodeLine:
    """A node by what was charged to it. `devices`: which of its GPUs, with how many failures each."""

    node: str
    pool: str
    failures: int
    devices: Mapping[str, int]
    gpu_ms: int
    down_ms: int
    faults: int
    causes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Quality:
    """What the verdicts rest on: (class, basis) -> failures; and how many were changed or taken back."""

    by_basis: Mapping[tuple[str, str], int]
    amended: int = 0
    withdrawn: int = 0
    provisional: int = 0

    def count(self, *, cause_class: str | None = None, basis: str | None = None) -> int:
        """Failures of a class, of a basis, or both; of all where nothing is named."""
        return sum(n for (c, b), n in self.by_basis.items() if cause_class in (None, c) and basis in (None, b))

    def bounds(self, cause_class: str) -> tuple[int, int]:
        """The fewest and most failures of a class if everything assumed were moved away from it, or to it."""
        assumed_here = self.count(cause_class=cause_class, basis="assumed")
        mine = self.count(cause_class=cause_class)
        return mine - assumed_here, mine + self.count(basis="assumed") - assumed_here


@dataclass(frozen=True, slots=True)
class Reliability:
    """How often hardware and driver ended jobs, and how long nodes stayed out."""

    failures: int
    node_ms: int
    gpu_ms: int
    repairs_ms: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Intake:
    """What faultlens itself could not read or see: dead letters by reason, and nodes that never reported."""

    dead_letters: Mapping[str, int]
    late_reports: float | None = None


@dataclass(frozen=True, slots=True)
class Totals:
    """The figures that are compared with the period before.

    `failures` are verdicts by class; `survived` of them are losses that their attempts survived.
    """

    attempts: int
    failures: Mapping[str, int]
    ledger: Ledger
    survived: int = 0

    @property
    def all_failures(self) -> int:
        """Failures of every class."""
        return sum(self.failures.values())


@dataclass(frozen=True, slots=True)
class WeekLine:
    """A week (or another time as long as the report's) in a line, oldest first; `attained` is by objective."""

    from_ms: int
    totals: Totals
    attained: Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class Mover:
    """A cause whose failures or cost changed against the period before."""

    cause: CauseLine
    failures_before: int
    gpu_ms_before: int

    @property
    def gpu_ms(self) -> int:
        """By how much its cost changed."""
        return self.cause.gpu_ms - self.gpu_ms_before

    @property
    def failures(self) -> int:
        """By how much its failures changed."""
        return self.cause.failures - self.failures_before


@dataclass(frozen=True, slots=True)
class News:
    """What was not there in the four weeks before: fault codes, nodes to blame; and roll-outs that came first."""

    codes: tuple[tuple[str, int, int], ...] = ()  # code, faults, nodes
    lemons: tuple[tuple[str, int, tuple[str, ...]], ...] = ()  # node, failures, causes
    rollouts: tuple[tuple[int, str], ...] = ()  # when it began, what


@dataclass(frozen=True, slots=True)
class Remedy:
    """Commands of one action: what became of them. `relapsed` succeeded, and the node failed again within a day."""

    action: str
    shadow: bool
    commands: int
    succeeded: int
    failed: int
    refused: int
    expired: int
    relapsed: int
    median_ms: int


@dataclass(frozen=True, slots=True)
class Disputes:
    """What people said of failures in the period, and the rules that they overruled, most often first."""

    labels: int = 0
    overruled: int = 0
    rules: tuple[tuple[str, int, int], ...] = ()  # rule/basis, labelled, overruled


@dataclass(frozen=True, slots=True)
class Price:
    """What a GPU-hour costs."""

    per_gpu_hour: float
    currency: str


@dataclass(frozen=True, slots=True)
class Source:
    """A question that figures come from, with what it was asked with."""

    name: str
    sql: str
    params: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ReportData:
    """A whole report. `before` is None when the store holds nothing of the period before.

    `known_ms` of the period the store knows something of; None: that was not asked.
    """

    period: Period
    scope: str
    as_of_ms: int
    objectives: tuple[ObjectiveLine, ...]
    causes: tuple[CauseLine, ...]
    days: tuple[DayLine, ...]
    totals: Totals
    before: Totals | None
    nodes: tuple[NodeLine, ...]
    quality: Quality
    reliability: Reliability
    intake: Intake
    fleet: Mapping[str, int]
    catalogs: tuple[str, ...] = ()
    never_fire: tuple[str, ...] = ()
    nodes_left_out: int = 0
    weeks: tuple[WeekLine, ...] = ()
    movers: tuple[Mover, ...] = ()
    news: News | None = None
    remedies: tuple[Remedy, ...] = ()
    disputes: Disputes = Disputes()
    price: Price | None = None
    sizes: tuple[SizeLine, ...] = ()
    trainings: tuple[TrainingLine, ...] = ()
    saves: tuple[SaveLine, ...] = ()
    returned: tuple[ReturnedLine, ...] = ()
    corrections: Corrections = field(default_factory=Corrections)
    sources: tuple[Source, ...] = ()
    known_ms: int | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing at all is known of the period."""
        nothing_measured = all(line.shown is None for line in self.objectives)
        return nothing_measured and not self.totals.attempts and not self.totals.all_failures
