"""The simulation's tables, as people write them: what goes wrong, how it looks, and how often."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from faultlens.causes import is_known
from faultlens.errors import ConfigurationError
from faultlens.events import CheckStatus, Component, DetectedBy, FaultKind
from faultlens.yaml_lines import load_model, read_yaml

DATA: Final = Path(__file__).parent / "data"
SHIPPED_MIXES: Final = ("default", "shifted")

Chance = Annotated[float, Field(ge=0, le=1)]
Weight = Annotated[float, Field(ge=0)]
Weights = Annotated[dict[str, Weight], Field(min_length=1)]
Manner = Literal["crash", "hang", "stuck", "node_lost", "unreported", "killed", "refused"]


def _registered(code: str) -> str:
    if not is_known(code):
        raise ValueError(f"{code!r} is no cause code of faultlens.causes")
    return code


def _ordered(span: tuple[float, float]) -> tuple[float, float]:
    if not 0 <= span[0] <= span[1]:
        raise ValueError("a span is [from, to] with 0 <= from <= to")
    return span


Code = Annotated[str, AfterValidator(_registered)]
Span = Annotated[tuple[float, float], AfterValidator(_ordered)]


class Strict(BaseModel):
    """Refuses fields that it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Sign(Strict):
    """A record that an agent sends of a fault. `tells`: it alone gives the cause away."""

    kind: FaultKind
    code: str
    text: str
    subcode: str | None = None
    by: DetectedBy = "kmsg"
    names: Literal["culprit", "siblings", "peer", "nic", "node"] = "culprit"
    after_s: Span = (0.0, 0.2)
    chance: Chance = 1.0
    count: tuple[int, int] = (1, 1)
    tells: bool = False
    families: tuple[str, ...] = ()


class CheckSign(Strict):
    """How a check of the node looks while the fault lasts."""

    name: str
    component: Component
    status: CheckStatus = "fail"
    code: str | None = None
    message: str | None = None
    tells: bool = True


class Repair(Strict):
    """How long the node is out (log-normal), and whether it restarts for it.

    It begins within minutes of the first report of the fault, or `after_s` the fault where that is given.
    """

    after_s: Span | None = None
    minutes: Annotated[float, Field(gt=0)]
    spread: Annotated[float, Field(ge=0)] = 0.8
    reboot: bool = True


class Recurrence(Strict):
    """A fault that comes again before anybody repairs it; only that other users' jobs met it gives it away."""

    times: tuple[int, int]
    every_hours: Span


class NodeFaultKind(Strict):
    """A fault of a machine: what its agent sees and what it does to the jobs that hold the part it strikes."""

    code: Code
    strikes: Literal["gpu", "nic", "node", "switch"]
    why: str
    signs: tuple[Sign, ...] = ()
    checks: tuple[CheckSign, ...] = ()
    manners: dict[Manner, Weight]
    texts: Weights
    telling_texts: tuple[str, ...] = ()
    harms: Chance = 1.0
    trouble_after_s: Span = (0.2, 4.0)
    gang_only: bool = False
    exit_code: int = 1
    signal: int | None = None
    repair: Repair
    recurs: Recurrence | None = None


class UserFaultKind(Strict):
    """A failure that a job brings along."""

    code: Code
    why: str
    when: Literal["placed", "start", "early", "any"]
    texts: Weights
    manner: Literal["crash", "hang", "stuck"] = "crash"
    tells: bool = True
    ranks: Literal["one", "all"] = "one"
    signs: tuple[Sign, ...] = ()
    gang_only: bool = False
    persists: Chance = 0.5
    exit_code: int | None = 1
    signal: int | None = None
    reason: str | None = None
    message: str | None = None


class Ruling(Strict):
    """What a scheduler or node says when it refuses to start an attempt, or ends one."""

    code: Code
    why: str
    reason: str
    messages: Annotated[tuple[str, ...], Field(min_length=1)]
    under: tuple[Literal["slurm", "kubernetes", "launcher"], ...] = ("slurm", "kubernetes", "launcher")


class IncidentKind(Strict):
    """Trouble of a shared service: whom it reaches and what they see of it."""

    code: Code
    why: str
    service: Literal[
        "registry", "storage", "network", "scheduler", "control_plane", "auth", "power", "cooling", "other"
    ]
    reaches: Literal["cluster", "pool", "switch", "power"]
    minutes: Span
    announced: Chance = 1.0
    announced_after_s: Span = (0.0, 120.0)
    began: Annotated[tuple[str, ...], Field(min_length=1)]
    over: str
    under: tuple[Literal["slurm", "kubernetes", "launcher"], ...] = ("slurm", "kubernetes", "launcher")
    hits_starting: Chance = 0.0
    starting: tuple[Ruling, ...] = ()
    hits_running: Chance = 0.0
    manners: dict[Manner, Weight] = {}
    texts: dict[str, Weight] = {}
    telling_texts: tuple[str, ...] = ()
    reason: str | None = None
    message: str | None = None
    checks: tuple[CheckSign, ...] = ()
    takes_nodes_down: bool = False


class Herring(Strict):
    """A record that looks like trouble and is none."""

    why: str
    signs: Annotated[tuple[Sign, ...], Field(min_length=1)]


class Evidence(Strict):
    """How often evidence is lost for good."""

    sign_lost: Chance
    text_lost: Chance
    agent_outages_per_1000_node_days: Weight
    agent_outage_minutes: Span


class Transport(Strict):
    """How records travel."""

    median_ms: Annotated[float, Field(gt=0)]
    spread: Weight
    tardy: Chance
    tardy_s: Span
    duplicated: Chance
    again_after_s: Span
    clock_spread_s: Weight
    wrong_clocks: Chance
    wrong_clock_hours: Span
    cuts_per_1000_node_days: Weight
    cut_minutes: Span


class Work(Strict):
    """What people run."""

    utilisation: Annotated[float, Field(gt=0, le=1)]
    gpus: Weights
    hours_median: Annotated[float, Field(gt=0)]
    hours_spread: Weight
    hours_limit: Annotated[float, Field(gt=0)]
    reporters: dict[Literal["slurm", "kubernetes", "launcher"], Weight]
    workloads: dict[Literal["training", "inference", "batch", "interactive"], Weight]
    at_fault: Chance
    cancelled: Chance
    time_limited: Chance
    both_report: Chance
    elastic: Chance


class Mix(Strict):
    """How often what happens."""

    name: str
    version: str
    sources: tuple[str, ...]
    node_failures_per_1000_node_days: Weight
    acceleration: Annotated[float, Field(gt=0)]
    lemons: Chance
    lemon_factor: Annotated[float, Field(ge=1)]
    node_faults: Weights
    herrings_per_node_day: Weight
    herrings: Weights
    herring_beside_failure: Chance
    user_faults: Weights
    incidents_per_day: dict[str, Weight]
    start_failure: Chance
    black_holes_per_1000_node_days: Weight
    black_hole_starts: tuple[int, int]
    evictions_per_1000_node_days: Weight
    maintenances_per_day: Weight
    rollouts_per_day: Weight
    bad_rollouts: Chance
    work: Work
    evidence: Evidence
    transport: Transport


class Happenings(Strict):
    """Everything that can go wrong, by name."""

    node_faults: dict[str, NodeFaultKind]
    user_faults: dict[str, UserFaultKind]
    incidents: dict[str, IncidentKind]
    start_failures: Annotated[tuple[Ruling, ...], Field(min_length=1)]
    black_hole: Ruling
    eviction: Ruling
    maintenance: Ruling
    herrings: dict[str, Herring]


class _LogTexts(Strict):
    groups: dict[str, Annotated[tuple[str, ...], Field(min_length=1)]]


class _Part(Strict):
    node_faults: dict[str, NodeFaultKind] = {}
    user_faults: dict[str, UserFaultKind] = {}
    incidents: dict[str, IncidentKind] = {}
    start_failures: tuple[Ruling, ...] = ()
    black_hole: Ruling | None = None
    eviction: Ruling | None = None
    maintenance: Ruling | None = None
    herrings: dict[str, Herring] = {}


def load_mix(name_or_path: str, happenings: Happenings) -> Mix:
    """Return a shipped mix by its name, or one from a file; ConfigurationError names file and line."""
    path = DATA / f"mix-{name_or_path}.yaml" if name_or_path in SHIPPED_MIXES else Path(name_or_path)
    if not path.is_file():
        known = ", ".join(SHIPPED_MIXES)
        raise ConfigurationError(f"{name_or_path}: neither a mix that comes with faultlens ({known}) nor a file")
    mix = load_model(path, Mix)
    tables: dict[str, set[str]] = {
        "node_faults": set(happenings.node_faults),
        "user_faults": set(happenings.user_faults),
        "incidents_per_day": set(happenings.incidents),
        "herrings": set(happenings.herrings),
    }
    for table_name, names in tables.items():
        for name in sorted(getattr(mix, table_name).keys() - names):
            line = read_yaml(path).line((table_name, name))
            raise ConfigurationError(f"{path}:{line}: {name!r} is none of: {', '.join(sorted(names))}")
    return mix


def load_happenings() -> Happenings:
    """Return the shipped tables of everything that can go wrong."""
    parts = [
        load_model(DATA / f"{name}.yaml", _Part) for name in ("hardware", "driver", "platform", "user", "herrings")
    ]
    return Happenings(
        node_faults={name: kind for part in parts for name, kind in part.node_faults.items()},
        user_faults={name: kind for part in parts for name, kind in part.user_faults.items()},
        incidents={name: kind for part in parts for name, kind in part.incidents.items()},
        start_failures=tuple(kind for part in parts for kind in part.start_failures),
        black_hole=next(part.black_hole for part in parts if part.black_hole),
        eviction=next(part.eviction for part in parts if part.eviction),
        maintenance=next(part.maintenance for part in parts if part.maintenance),
        herrings={name: kind for part in parts for name, kind in part.herrings.items()},
    )


def load_log_texts() -> dict[str, tuple[str, ...]]:
    """Return the templates of log texts by group."""
    return dict(load_model(DATA / "log_texts.yaml", _LogTexts).groups)
