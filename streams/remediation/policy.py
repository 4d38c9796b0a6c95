"""The policy in memory: which trouble takes which ladder, how fast, and how much may be out at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from faultlens.causes import nearest
from faultlens.events import Action

Wait = Literal["now", "persists", "idle", "vacant"]
# Those that last as long as the trouble is tolerated, and those for a node without jobs.
LASTING: Final[frozenset[Wait]] = frozenset({"persists", "vacant"})
VACANT: Final[frozenset[Wait]] = frozenset({"idle", "vacant"})
Origin = Literal["condition", "announced", "verdict", "finding", "common"]
Mode = Literal["live", "shadow"]
Return = Literal["verified", "person"]

# Contract, operator.control: what is not issued while somebody has paused.
DISRUPTIVE: Final[frozenset[Action]] = frozenset(
    {"terminate_job", "drain", "reset_device", "restart_services", "reboot", "power_cycle", "replace"}
)
# What takes a node from those who want work done there, if only for minutes.
TAKING: Final[frozenset[Action]] = frozenset(
    {"block_new_work", "drain", "reset_device", "restart_services", "reboot", "power_cycle", "replace"}
)
# After these the node is expected to be whole again; whether it is, is verified.
REPAIRS: Final[frozenset[Action]] = frozenset(
    {"validate", "reset_device", "restart_services", "reboot", "power_cycle", "replace"}
)
# The classes of the first word of a cause that an accelerator's tolerance holds for; the rest is the host's.
_ACCELERATOR: Final = ("gpu", "fabric", "driver")


# The severity of a cause that the policy does not rank.
UNRANKED: Final = 50


def is_of_accelerator(cause: str) -> bool:
    """Return whether a cause is the accelerators' and not the host's."""
    return cause.partition(".")[0] in _ACCELERATOR


class Trouble(Struct, frozen=True):
    """What a route is chosen by. `fault` is `kind:code`; `returns`: how often the same was repaired here before,
    `incidents`: how many of any kind the machine had in the last weeks that cost a job or took a repair.
    `times`: how often the same came here within a day, with this one; `jobs`: how many jobs it has cost, by verdicts
    that are established.

    `rule`: the rule of the verdict, the kind of the finding, or the step that the driver announced (sub-codes of Xid
    154), where that is all there is; `job_gpus`: all GPUs of the largest job that works there; `job_priority`: the
    highest of the jobs there, by their scheduler; `watched`: that tells when nodes do not answer it.
    """

    origin: Origin
    cause: str
    cause_class: str
    role: str = "root"
    severity: int = 0
    fatal: bool = False
    fault: str = ""
    hint: str = ""
    rule: str = ""
    family: str | None = None
    pool: str | None = None
    returns: int = 0
    incidents: int = 0
    times: int = 1
    jobs: int = 0
    job_gpus: int = 0
    job_priority: float | None = None
    watched: bool = False

    @property
    def is_accelerator(self) -> bool:
        """Return whether it is the accelerators' and not the host's."""
        return is_of_accelerator(self.cause)


class Match(Struct, frozen=True):
    """What a route asks for; empty: anything. Causes are matched by whole dotted words from the left."""

    origins: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    pools: tuple[str, ...] = ()
    from_severity: int = 0
    from_returns: int = 0
    from_incidents: int = 0
    from_times: int = 0
    from_jobs: int = 0
    from_job_gpus: int = 0
    from_job_priority: float | None = None
    watched: bool | None = None

    def holds(self, trouble: Trouble) -> bool:
        """Return whether the trouble is what the route is for."""
        named = (
            (self.origins, trouble.origin),
            (self.roles, trouble.role),
            (self.hints, trouble.hint),
            (self.rules, trouble.rule),
            (self.families, trouble.family),
            (self.pools, trouble.pool),
        )
        return (
            all(not wanted or value in wanted for wanted, value in named)
            and (not self.causes or any(_within(trouble.cause, cause) for cause in self.causes))
            and (not self.faults or any(_fits(trouble.fault, fault) for fault in self.faults))
            and trouble.severity >= self.from_severity
            and trouble.returns >= self.from_returns
            and trouble.incidents >= self.from_incidents
            and trouble.times >= self.from_times
            and trouble.jobs >= self.from_jobs
            and trouble.job_gpus >= self.from_job_gpus
            and _reaches(trouble.job_priority, self.from_job_priority)
            and self.watched in (None, trouble.watched)
        )


def _reaches(priority: float | None, wanted: float | None) -> bool:
    return wanted is None or (priority is not None and priority >= wanted)


def _within(cause: str, general: str) -> bool:
    return cause == general or cause.startswith(f"{general}.")


def _fits(fault: str, wanted: str) -> bool:
    return fault == wanted or (wanted.endswith(":*") and fault.startswith(wanted[:-1]))


class Rung(Struct, frozen=True):
    """One step of a ladder. `wait`: before it, until the fault has persisted, the node is idle, or both (`vacant`).

    It is tried `attempts` times, `cooldown_ms` apart; with `approval` only when a person says so.
    """

    action: Action
    wait: Wait = "now"
    attempts: int = 1
    cooldown_ms: int = 0
    approval: bool = False


class Route(Struct, frozen=True):
    """What to do about what. `tolerance_ms` None: by what it is. `returns_by`: who says that the node may come back."""

    name: str
    match: Match
    ladder: str
    mode: Mode = "live"
    tolerance_ms: int | None = None
    returns_by: Return = "verified"
    validate: bool = True


class Cap(Struct, frozen=True):
    """How much of a scope may be out: a share of nodes and GPUs (at least one node), and at most so many nodes."""

    share: float
    nodes: int | None = None


class Breaker(Struct, frozen=True):
    """When what turns bad together is taken for one cause: so many nodes, and this share, of a domain in a window.

    After `open_ms` without another one, a single node is tried; what waited longer than `queue_ms` is a person's.
    """

    nodes: int
    share: float
    window_ms: int
    rollout_window_ms: int
    open_ms: int
    queue_ms: int


class Timing(Struct, frozen=True):
    """A command's latest start and, once started, its latest end."""

    start_ms: int
    finish_ms: int


class Verification(Struct, frozen=True):
    """After a repair: how long it may take to show, how long it must last, and how long it is on probation.

    `announced_ms`: how long the driver has to announce what it needs before anything is done.
    """

    within_ms: int
    stable_ms: int
    probation_ms: int
    history_ms: int
    announced_ms: int


class Limits(Struct, frozen=True):
    """Caps by kind of scope."""

    cluster: Cap
    pool: Cap
    domain: Cap


class Policy(Struct, frozen=True):
    """Everything that remediation is told to be like. `version` names the files that it was read from."""

    version: str
    limits: Limits
    breaker: Breaker
    accelerator_ms: int
    other_ms: int
    fatal_severity: int
    verification: Verification
    timings: Mapping[str, Timing]
    ladders: Mapping[str, tuple[Rung, ...]]
    routes: tuple[Route, ...]
    executable: frozenset[str] | None = None
    severities: Mapping[str, int] = {}
    controllers: frozenset[str] = frozenset()

    def severity(self, cause: str) -> int:
        """Return how bad it is (0 to 100) what only verdicts and findings say of a node, by its cause."""
        return self.severities.get(nearest(cause, self.severities), UNRANKED)

    def route(self, trouble: Trouble) -> Route | None:
        """Return the first route for the trouble; None: nothing is done about it."""
        return next((route for route in self.routes if route.match.holds(trouble)), None)

    def named(self, name: str) -> Route | None:
        """Return the route of this name; None: the policy has none any more."""
        return next((route for route in self.routes if route.name == name), None)

    def with_live(self, names: Sequence[str]) -> Policy:
        """Return the policy with these routes live, and named after them."""
        routes = tuple(replace(route, mode="live") if route.name in names else route for route in self.routes)
        return replace(self, routes=routes, version="+".join((self.version, *names))) if names else self

    def tolerance_ms(self, route: Route, trouble: Trouble) -> int:
        """Return how long the trouble may last before work is taken away from where it is."""
        if route.tolerance_ms is not None:
            return route.tolerance_ms
        if trouble.fatal and trouble.severity >= self.fatal_severity:
            return 0
        return self.accelerator_ms if trouble.is_accelerator else self.other_ms
