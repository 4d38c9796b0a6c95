"""Every event of the contract, defined once: what producers write and what the processors answer."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct, field

Moment = Annotated[datetime, Meta(tz=True)]
# Numbers have bounds that nothing real reaches, so that they fit into 32 bits and sums of them into 64, in whatever
# keeps them.
Seconds = Annotated[float, Meta(gt=0, le=1e8)]
Duration = Annotated[float, Meta(ge=0, le=1e8)]
Measure = Annotated[float, Meta(ge=-1e15, le=1e15)]
Step = Annotated[int, Meta(ge=-(2**53), le=2**53)]
Whole = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Machines = Annotated[int, Meta(ge=0, le=1_000_000)]
Part = Annotated[int, Meta(ge=1, le=100_000)]
Positive = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Name = Annotated[str, Meta(min_length=1, max_length=512)]

CauseClass = Literal["hardware", "driver", "platform", "user"]
CheckStatus = Literal["pass", "warn", "fail", "timeout", "error", "missing", "off"]
Component = Literal[
    "gpu", "nvswitch", "nic", "pcie", "memory", "cpu", "storage", "power", "cooling", "driver", "kernel",
    "runtime", "agent",
]  # fmt: skip
FaultKind = Literal[
    "xid", "sxid", "gpu_memory", "nvlink", "nic", "pcie", "thermal", "power", "storage", "host_memory", "cpu",
    "kernel", "fabric_manager", "other",
]  # fmt: skip
FAULT_KINDS: frozenset[str] = frozenset(FaultKind.__args__)  # type: ignore[attr-defined]
DetectedBy = Literal["dcgm", "nvml", "kmsg", "sysfs", "npd", "bmc", "active_test", "other"]
NodeAction = Literal["cordon", "uncordon", "drain", "reboot", "replace", "add", "remove"]
Workload = Literal["training", "inference", "batch", "interactive"]
Outcome = Literal["succeeded", "failed", "timed_out", "cancelled", "preempted", "never_started"]
FAILURES: frozenset[str] = frozenset({"failed", "timed_out", "never_started"})
NodeStateName = Literal["available", "degraded", "blocked", "draining", "down", "silent", "maintenance", "removed"]
Basis = Literal["established", "supported", "assumed"]
Status = Literal["provisional", "final", "amended", "withdrawn"]
Advice = Literal["retry", "retry_elsewhere", "do_not_retry"]
EvidenceRole = Literal["root", "cascade", "symptom", "context", "contradicts"]
Category = Literal[
    "productive", "startup", "checkpoint_save", "checkpoint_restore", "lost_work", "stalled", "slow", "recovery",
    "queued", "other",
]  # fmt: skip
Action = Literal[
    "watch", "block_new_work", "exclude_device", "terminate_job", "drain", "validate", "reset_device",
    "restart_services", "reboot", "power_cycle", "replace", "open_ticket", "return_to_service",
]  # fmt: skip
Objective = Literal[
    "node_availability",
    "gpu_availability",
    "job_start",
    "job_success",
    "goodput",
    "serving_capacity",
    "coverage",
]


class Data(Struct, frozen=True, omit_defaults=True, gc=False):
    """Base of every event's data. Unknown fields are ignored; what equals its default is not written."""


# --- node-events ---------------------------------------------------------------------------------------


class Device(Data, frozen=True):
    """An accelerator in a node's inventory."""

    index: Count
    uuid: str | None = None
    pci: str | None = None
    serial: str | None = None
    mig: tuple[str, ...] = ()


class DraDevice(Data, frozen=True):
    """A device as Kubernetes' dynamic resource allocation names it."""

    driver: str
    pool: str
    device: str


class DeviceRef(Data, frozen=True):
    """What a fault says of the device it was seen on; any of the fields may name it."""

    index: Whole | None = None
    uuid: str | None = None
    pci: str | None = None
    serial: str | None = None
    mig: str | None = None
    link: Whole | str | None = None
    dra: DraDevice | None = None


class Process(Data, frozen=True):
    """The process that the driver said was using the device."""

    pid: Whole | None = None
    name: str | None = None


class Check(Data, frozen=True):
    """One thing that an agent checked. `timeout`, `error` and `missing` count as unhealthy, never as passed."""

    name: Name
    component: Component
    status: CheckStatus
    device: DeviceRef | Whole | str | None = None
    code: str | None = None
    message: str | None = None
    duration_ms: Measure | None = None


class NodeHealth(Data, frozen=True):
    """One report per node and interval."""

    node: Name
    cluster: Name
    interval_s: Seconds
    gpus_total: Machines
    gpus_allocatable: Machines
    checks: tuple[Check, ...]
    pool: str | None = None
    boot_id: str | None = None
    domains: dict[str, str] = {}
    gpu_family: str | None = None
    host_id: str | None = None
    provider_id: str | None = None
    devices: tuple[Device, ...] | None = None
    driver_version: str | None = None
    agent_version: str | None = None
    part: Part | None = None
    parts: Part | None = None


class NodeFault(Data, frozen=True):
    """Something happened on a node now."""

    node: Name
    cluster: Name
    kind: FaultKind
    code: Name
    detected_by: DetectedBy
    pool: str | None = None
    boot_id: str | None = None
    domains: dict[str, str] = {}
    gpu_family: str | None = None
    driver_version: str | None = None
    subcode: str | None = None
    device: DeviceRef | None = None
    process: Process | None = None
    message: str | None = None
    count: Positive = 1
    synthetic: bool = False


class NodeActed(Data, frozen=True):
    """Somebody else changed the node."""

    node: Name
    cluster: Name
    action: NodeAction
    actor: str
    planned: bool
    reason: str | None = None
    command_id: str | None = None


# --- job-events ----------------------------------------------------------------------------------------


class Slot(Data, frozen=True):
    """The part of an allocation that lies on one node."""

    node: Name
    devices: tuple[Whole, ...] | None = None
    device_refs: tuple[str, ...] | None = None
    ranks: tuple[Whole, ...] | None = None
    mig: tuple[str, ...] | None = None


class JobSubmitted(Data, frozen=True):
    """A job was handed to the scheduler."""

    job_id: Name
    cluster: Name
    workload: Workload
    gpus: Machines
    nodes: Machines
    user: str | None = None
    team: str | None = None
    name: str | None = None
    replicas: Machines | None = None
    priority: Measure | None = None
    image: str | None = None
    image_digest: str | None = None
    spec_hash: str | None = None


class JobAllocated(Data, frozen=True):
    """An attempt was given its nodes and devices; large ones come in parts."""

    job_id: Name
    attempt: Positive
    cluster: Name
    allocation: tuple[Slot, ...]
    user: str | None = None
    image_digest: str | None = None
    part: Part | None = None
    parts: Part | None = None


class JobStarted(Data, frozen=True):
    """Every rank is running user code."""

    job_id: Name
    attempt: Positive


class Stalled(Data, frozen=True):
    """Since when a collective is stuck, and the ranks that a flight recorder shows absent from it."""

    since: Moment
    suspects: tuple[Whole, ...] = ()


class JobAlive(Data, frozen=True):
    """Launchers and bridges say that an attempt still runs."""

    job_id: Name
    attempt: Positive
    interval_s: Seconds
    stalled: Stalled | None = None


class JobPending(Data, frozen=True):
    """Why the scheduler lets a job wait."""

    job_id: Name
    reason: str
    since: Moment
    attempt: Positive | None = None
    message: str | None = None


class JobResized(Data, frozen=True):
    """An elastic job goes on with fewer or more workers."""

    job_id: Name
    attempt: Positive
    allocation: tuple[Slot, ...]
    lost: tuple[Slot, ...]
    reason: str | None = None
    part: Part | None = None
    parts: Part | None = None


class Quantiles(Data, frozen=True):
    """Step times over the ranks of a large job, in seconds."""

    p50: Measure
    p90: Measure | None = None
    p99: Measure | None = None
    max: Measure | None = None


class JobProgress(Data, frozen=True):
    """A step was completed."""

    job_id: Name
    attempt: Positive
    step: Step
    step_time_s: Measure | None = None
    ranks: dict[str, Measure] | None = None
    quantiles: Quantiles | None = None
    tokens: Measure | None = None
    part: Part | None = None
    parts: Part | None = None


class JobCheckpoint(Data, frozen=True):
    """A checkpoint was saved or restored; the event's time is when that ended."""

    job_id: Name
    attempt: Positive
    step: Step
    duration_s: Duration
    ok: bool
    restored: bool = False
    blocking: bool = True


class RankExited(Data, frozen=True):
    """One rank of an attempt ended."""

    job_id: Name
    attempt: Positive
    rank: Whole
    node: Name
    device: Whole | None = None
    exit_code: Whole | None = None
    signal: Whole | str | None = None
    reason: str | None = None
    first_error_at: Moment | None = None
    log_tail: str | None = None


class AttemptRef(Data, frozen=True):
    """Names an attempt of a job."""

    job_id: Name
    attempt: Positive


class JobEnded(Data, frozen=True):
    """An attempt ended."""

    job_id: Name
    attempt: Positive
    outcome: Outcome
    exit_code: Whole | None = None
    signal: Whole | str | None = None
    reason: str | None = None
    message: str | None = None
    log_tail: str | None = None
    restarts_with_attempt: Positive | None = None
    preempted_by: AttemptRef | None = None
    command_id: str | None = None


class JobLabelled(Data, frozen=True):
    """A person's word on the true cause."""

    job_id: Name
    attempt: Positive
    cause_class: CauseClass = field(name="class")
    code: Name
    by: str
    loss: Positive | None = None
    node: str | None = None
    device: DeviceRef | None = None
    why: str | None = None


# --- platform-events and remediation-results -----------------------------------------------------------


class Scope(Data, frozen=True):
    """What something concerns; empty: the whole cluster."""

    nodes: tuple[str, ...] | None = None
    pools: tuple[str, ...] | None = None
    domains: dict[str, tuple[str, ...]] | None = None


class PlatformIncident(Data, frozen=True):
    """A shared service is in trouble."""

    incident_id: Name
    cluster: Name
    service: Literal[
        "registry", "storage", "network", "scheduler", "control_plane", "auth", "power", "cooling", "other"
    ]
    phase: Literal["started", "ended"]
    scope: Scope = Scope()
    message: str | None = None
    caused_by: str | None = None


class PlatformRollout(Data, frozen=True):
    """A new version is being rolled out."""

    rollout_id: Name
    cluster: Name
    what: Literal["driver", "firmware", "os_image", "runtime", "fabric_manager", "scheduler", "agent"]
    version: str
    phase: Literal["started", "ended", "rolled_back"]
    scope: Scope = Scope()


class PlatformMaintenance(Data, frozen=True):
    """Nodes are maintained."""

    maintenance_id: Name
    cluster: Name
    planned: bool
    phase: Literal["scheduled", "started", "ended"]
    scope: Scope = Scope()
    starts_at: Moment | None = None
    ends_at: Moment | None = None


class ControlScope(Data, frozen=True):
    """What an operator's control concerns; empty: the whole cluster."""

    nodes: tuple[str, ...] | None = None
    pools: tuple[str, ...] | None = None
    command_ids: tuple[str, ...] | None = None
    routes: tuple[str, ...] | None = None


class OperatorControl(Data, frozen=True):
    """A person pauses, approves, holds or releases."""

    cluster: Name
    verb: Literal["pause", "resume", "approve", "deny", "hold", "release", "acknowledge"]
    by: str
    reason: str
    scope: ControlScope = ControlScope()
    expires_at: Moment | None = None


class RemediationResult(Data, frozen=True):
    """What became of a command."""

    command_id: Name
    cluster: Name
    state: Literal["accepted", "refused", "started", "succeeded", "failed", "expired"]
    actuator: str
    at: Moment
    node: str | None = None
    job_id: str | None = None
    action: Action | None = None
    reason: str | None = None
    boot_id: str | None = None


# --- outputs -------------------------------------------------------------------------------------------


class Cause(Data, frozen=True):
    """Whose fault it was: always one of the four classes, and a dotted code of the registry."""

    cause_class: CauseClass = field(name="class")
    code: str
    summary: str = ""


class Culprit(Data, frozen=True):
    """Who or what is to blame; empty for the user's own faults and for services."""

    node: str | None = None
    device: DeviceRef | None = None
    rank: int | None = None


class EvidenceItem(Data, frozen=True):
    """One observation that a verdict rests on, or that speaks against it."""

    role: EvidenceRole
    source: str
    id: str
    time: Moment
    what: str


class Alternative(Data, frozen=True):
    """What else it could have been."""

    cause_class: CauseClass = field(name="class")
    code: str
    confidence: float


class Retry(Data, frozen=True):
    """Whether to try again, and what to keep away from."""

    advice: Advice
    exclude_nodes: tuple[str, ...] = ()
    exclude_devices: tuple[str, ...] = ()


class Lost(Data, frozen=True):
    """What the failure cost: GPU-seconds since the last good checkpoint."""

    gpu_seconds: float
    since_checkpoint_s: float


class JobAttributed(Data, frozen=True):
    """The verdict on a failed attempt, or on a loss that an attempt survived."""

    job_id: str
    attempt: int
    cluster: str
    revision: int
    status: Status
    cause: Cause
    basis: Basis
    confidence: float
    culprit: Culprit
    evidence: tuple[EvidenceItem, ...]
    alternatives: tuple[Alternative, ...]
    retry: Retry
    lost: Lost
    rule: str
    catalog: str
    ended_at: Moment
    loss: int | None = None


class NodeState(Data, frozen=True):
    """The state a node is in since a time."""

    node: str
    cluster: str
    state: NodeStateName
    since: Moment
    gpus_total: int
    gpus_allocatable: int
    planned: bool
    pool: str | None = None
    cause: str | None = None
    incident_id: str | None = None


class JobTime(Data, frozen=True):
    """What an interval of an attempt's allocated time was spent on. A later record replaces earlier ones."""

    job_id: str
    attempt: int
    revision: int
    cluster: str
    category: Category
    start: Moment = field(name="from")
    stop: Moment = field(name="to")
    gpus: int
    team: str | None = None
    cause: Cause | None = None


class FleetTime(Data, frozen=True):
    """What the known GPU-seconds of a cluster or pool were used for in one hour."""

    cluster: str
    start: Moment = field(name="from")
    stop: Moment = field(name="to")
    gpu_seconds: dict[str, float]
    pool: str | None = None


class SloScope(Data, frozen=True):
    """What an objective is measured over."""

    cluster: str
    pool: str | None = None
    team: str | None = None
    workload: str | None = None


class Bounds(Data, frozen=True):
    """Attainment if everything assumed were moved to either side."""

    low: float
    high: float


class SloStatus(Data, frozen=True):
    """Where an objective stands. `by_cause` adds up to total - good; `bad`: how much of it was within each window."""

    objective: Objective
    scope: SloScope
    window: str
    unit: Literal["node_seconds", "gpu_seconds", "attempts", "jobs"]
    good: float
    total: float
    attained: float | None
    target: float
    budget_remaining: float | None
    burn: dict[str, float]
    by_cause: dict[str, float]
    bounds: Bounds | None = None
    bad: dict[str, float] = {}


class JobFinding(Data, frozen=True):
    """Trouble of a job that has not failed."""

    job_id: str
    attempt: int
    cluster: str
    kind: Literal["slow_rank", "hang", "low_bandwidth", "crash_loop", "stuck_pending"]
    since: Moment
    basis: Basis
    evidence: tuple[EvidenceItem, ...]
    ranks: tuple[int, ...] | None = None
    node: str | None = None
    device: DeviceRef | None = None
    ratio: float | None = None
    until: Moment | None = None
    cause: Cause | None = None


class CommandReason(Data, frozen=True):
    """Why a command was issued."""

    fault_codes: tuple[str, ...]
    incident_id: str
    attributions: tuple[str, ...] = ()


class RemediationCommand(Data, frozen=True):
    """What an actuator is told to do. `replayed`: decided over a recording, for nobody to carry out."""

    command_id: str
    cluster: str
    action: Action
    rung: int
    reason: CommandReason
    issued_at: Moment
    expires_at: Moment
    finish_by: Moment
    mode: Literal["live", "shadow"]
    policy: str
    node: str | None = None
    job_id: str | None = None
    device: DeviceRef | None = None
    boot_id: str | None = None
    exclude_nodes: tuple[str, ...] | None = None
    exclude_devices: tuple[str, ...] | None = None
    replayed: bool = False


class IncidentScope(Data, frozen=True):
    """What an incident touches."""

    nodes: tuple[str, ...]
    devices: tuple[str, ...] | None = None
    domains: dict[str, tuple[str, ...]] | None = None
    rollout_id: str | None = None


# How `waits_for` begins where the node is in somebody else's hands: what is not done then is nobody's omission.
KEPT_BY: Final = "kept by"
IN_MAINTENANCE: Final = "in maintenance"


class Incident(Data, frozen=True):
    """One per root cause. `waits_for`: why nothing is done about it now."""

    incident_id: str
    cluster: str
    phase: Literal["opened", "changed", "closed"]
    cause: str
    severity: int
    scope: IncidentScope
    first_seen: Moment
    last_seen: Moment
    count: int
    rule: str
    evidence: tuple[str, ...] = ()
    command_ids: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    waits_for: str | None = None
    closed_because: str | None = None


class DeadLetter(Data, frozen=True):
    """A record that could not be processed, with why and where it was."""

    topic: str
    partition: int
    offset: int
    reason: str
    error: str
    value: str
    headers: dict[str, str] = {}
    sha256: str | None = None
