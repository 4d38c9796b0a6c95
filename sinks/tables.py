"""The rows of the store's tables: their columns in order, and what identifies a row. Times are milliseconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple


class RawEvent(NamedTuple):
    """An input event as it arrived."""

    type: str
    source: str
    id: str
    subject: str
    time: int
    arrived: int
    raw: str


class JobFact(NamedTuple):
    """What one record tells of a job (attempt 0) or attempt; `official` if a scheduler or bridge tells it."""

    job_id: str
    attempt: int
    fact: str
    source: str
    id: str
    time: int
    official: bool
    precedence: int
    cluster: str = ""
    user: str = ""
    team: str = ""
    name: str = ""
    workload: str = ""
    replicas: int | None = None
    gpus: int | None = None
    nodes: int | None = None
    priority: float | None = None
    image: str = ""
    image_digest: str = ""
    spec_hash: str = ""
    node_names: Sequence[str] = ()
    outcome: str = ""
    exit_code: int | None = None
    signal: str = ""
    reason: str = ""
    message: str = ""
    restarts_with_attempt: int | None = None
    preempted_by: str = ""
    command_id: str = ""
    loss: int = 0
    cause_class: str = ""
    cause_code: str = ""
    told_by: str = ""


class Fault(NamedTuple):
    """A fault as a node told it."""

    node: str
    time: int
    source: str
    id: str
    cluster: str
    pool: str
    kind: str
    code: str
    subcode: str
    device_index: int | None
    device: str
    detected_by: str
    count_: int
    synthetic: bool
    process: str
    message: str
    boot_id: str
    gpu_family: str
    driver_version: str
    arrived: int


class NodeFact(NamedTuple):
    """The latest of one kind of thing that is told of a node: report, inventory, fault or action."""

    node: str
    fact: str
    time: int
    version: int
    cluster: str
    pool: str = ""
    boot_id: str = ""
    domains: Mapping[str, str] = {}
    gpu_family: str = ""
    host_id: str = ""
    provider_id: str = ""
    driver_version: str = ""
    agent_version: str = ""
    interval_s: float | None = None
    gpus_total: int | None = None
    gpus_allocatable: int | None = None
    failing: Sequence[str] = ()
    devices: str = ""
    action: str = ""
    actor: str = ""
    planned: bool = False


class CommandResult(NamedTuple):
    """What became of a command."""

    command_id: str
    at: int
    source: str
    id: str
    cluster: str
    node: str
    job_id: str
    action: str
    state: str
    actuator: str
    reason: str
    boot_id: str
    arrived: int


class Attribution(NamedTuple):
    """One revision of a verdict; `loss` 0 is the attempt's end."""

    job_id: str
    attempt: int
    loss: int
    revision: int
    status: str
    cluster: str
    class_: str
    code: str
    summary: str
    basis: str
    confidence: float
    node: str
    device_index: int | None
    device: str
    rank: int | None
    alternatives: Sequence[tuple[str, str, float]]
    advice: str
    exclude_nodes: Sequence[str]
    exclude_devices: Sequence[str]
    lost_gpu_seconds: float
    since_checkpoint_s: float
    rule: str
    catalog: str
    ended_at: int
    emitted: int
    event_id: str


class EvidenceOf(NamedTuple):
    """One item of evidence of one revision of a verdict."""

    job_id: str
    attempt: int
    loss: int
    revision: int
    position: int
    role: str
    source: str
    event_id: str
    time: int
    what: str
    ended_at: int
    emitted: int


class Finding(NamedTuple):
    """Trouble of a job that has not failed."""

    job_id: str
    attempt: int
    kind: str
    since: int
    until: int | None
    cluster: str
    node: str
    device_index: int | None
    device: str
    ranks: Sequence[int]
    ratio: float | None
    class_: str
    code: str
    summary: str
    basis: str
    evidence: Sequence[tuple[str, str, str, int, str]]
    emitted: int
    event_id: str


class NodeStateSince(NamedTuple):
    """The state that a node is in since a time; `of_cluster`: its cluster as part of the key."""

    node: str
    since: int
    state: str
    cluster: str
    pool: str
    gpus_total: int
    gpus_allocatable: int
    planned: bool
    cause: str
    incident_id: str
    emitted: int
    event_id: str
    of_cluster: str


class IncidentChange(NamedTuple):
    """An incident as one record of it stands."""

    incident_id: str
    emitted: int
    event_id: str
    cluster: str
    phase: str
    cause: str
    severity: int
    nodes: Sequence[str]
    devices: Sequence[str]
    domains: Mapping[str, Sequence[str]]
    rollout_id: str
    first_seen: int
    last_seen: int
    count_: int
    rule: str
    evidence: Sequence[str]
    command_ids: Sequence[str]
    jobs: Sequence[str]
    closed_because: str
    waits_for: str


class Command(NamedTuple):
    """A command to an actuator."""

    command_id: str
    cluster: str
    node: str
    job_id: str
    device: str
    boot_id: str
    action: str
    rung: int
    fault_codes: Sequence[str]
    incident_id: str
    attributions: Sequence[str]
    issued_at: int
    expires_at: int
    finish_by: int
    mode: str
    policy: str
    exclude_nodes: Sequence[str]
    exclude_devices: Sequence[str]
    emitted: int
    replayed: bool


class Letter(NamedTuple):
    """A record that could not be processed."""

    topic: str
    partition: int
    offset: int
    event_id: str
    time: int
    reason: str
    error: str
    value: str
    headers: Mapping[str, str]
    sha256: str


class GpuTime(NamedTuple):
    """The part of a ledger record that lies in one hour."""

    job_id: str
    attempt: int
    hour: int
    revision: int
    start: int
    stop: int
    cluster: str
    team: str
    category: str
    gpus: int
    class_: str
    code: str
    emitted: int


class FleetUse(NamedTuple):
    """What a cluster's or pool's GPU-seconds of one hour were used for."""

    cluster: str
    pool: str
    start: int
    stop: int
    gpu_seconds: Mapping[str, float]
    emitted: int


class Standing(NamedTuple):
    """Where an objective stood at a time."""

    objective: str
    cluster: str
    pool: str
    team: str
    workload: str
    window: str
    time: int
    unit: str
    good: float
    total: float
    attained: float | None
    target: float
    budget_remaining: float | None
    burn: Mapping[str, float]
    by_cause: Mapping[str, float]
    low: float | None
    high: float | None
    event_id: str


Row = (
    RawEvent | JobFact | Fault | NodeFact | CommandResult | Attribution | EvidenceOf | Finding | NodeStateSince
    | IncidentChange | Command | Letter | GpuTime | FleetUse | Standing
)  # fmt: skip


@dataclass(frozen=True)
class Table:
    """A table: rows with equal `key` are the same row, of which the one with the highest `version` is kept."""

    name: str
    row: type[Row]
    key: tuple[str, ...]
    version: str | None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns in the order of the row's fields (which cannot be called `class` or `count`)."""
        return tuple(name.removesuffix("_") for name in self.row._fields)


# In the order of writing: what a verdict rests on comes before the verdict.
TABLES: Final[dict[type[Row], Table]] = {
    table.row: table
    for table in (
        Table("events_raw", RawEvent, ("subject", "type", "time", "source", "id"), None),
        Table("job_facts", JobFact, ("job_id", "attempt", "fact", "source", "id"), "precedence"),
        Table("faults", Fault, ("node", "time", "source", "id"), "arrived"),
        Table("node_facts", NodeFact, ("node", "fact"), "version"),
        Table("results", CommandResult, ("command_id", "at", "source", "id"), "arrived"),
        Table("evidence", EvidenceOf, ("job_id", "attempt", "loss", "revision", "position"), "emitted"),
        Table("attributions", Attribution, ("job_id", "attempt", "loss", "revision"), "emitted"),
        Table("findings", Finding, ("job_id", "attempt", "kind", "since", "node"), "emitted"),
        Table("node_states", NodeStateSince, ("node", "since", "of_cluster"), "emitted"),
        Table("incidents", IncidentChange, ("incident_id", "emitted", "event_id"), "emitted"),
        Table("commands", Command, ("command_id",), "emitted"),
        Table("gpu_time", GpuTime, ("job_id", "attempt", "hour", "revision", "start"), "emitted"),
        Table("fleet_time", FleetUse, ("cluster", "pool", "start"), "emitted"),
        Table("slo_status", Standing, ("objective", "cluster", "pool", "team", "workload", "window", "time"), None),
        Table("dead_letters", Letter, ("topic", "partition", "offset", "event_id"), "time"),
    )
}
