"""Records that the processors send each other; nobody outside reads or writes them."""

from __future__ import annotations

from typing import Literal

from faultlens.events import (
    Action,
    Basis,
    Cause,
    Data,
    DeviceRef,
    JobFinding,
    NodeAction,
    NodeStateName,
    PlatformIncident,
    PlatformMaintenance,
    PlatformRollout,
)

# --- allocations: job -> node --------------------------------------------------------------------------


class Held(Data, frozen=True):
    """An attempt holds devices of this node since `since_ms`. `devices` None: which ones is not known, all count;
    `refs`: by their names in dynamic resource allocation (driver/pool/device). `gpus`: here; `job_gpus`: everywhere."""

    node: str
    job_id: str
    attempt: int
    cluster: str
    since_ms: int
    devices: tuple[int, ...] | None = None
    uuids: tuple[str, ...] | None = None
    mig: tuple[str, ...] | None = None
    user: str | None = None
    image: str | None = None
    gpus: int = 0
    refs: tuple[str, ...] | None = None
    job_gpus: int = 0
    priority: float | None = None


class Released(Data, frozen=True):
    """An attempt that held this node since `since_ms` let go of it at `at_ms`. When it failed, the node answers up to
    `closes_ms`.

    Sent again every five minutes until answered. `loss` tells a loss that the attempt survived from its end; with
    `keeps` the attempt goes on here (it lost another node, or devices of this one only).
    `unexplained`: nothing better than a symptom is known of why it failed; `code`: the cause as known so far;
    `culprit`: the node that the job's own words name. `brought`: causes that the job met on more than one device.
    """

    node: str
    job_id: str
    attempt: int
    cluster: str
    at_ms: int
    failed: bool
    started: bool
    opens_ms: int = 0
    closes_ms: int = 0
    loss: int | None = None
    devices: tuple[int, ...] | None = None
    user: str | None = None
    image: str | None = None
    outcome: str = ""
    unexplained: bool = False
    code: str = ""
    keeps: bool = False
    since_ms: int = 0
    culprit: str = ""
    brought: tuple[str, ...] = ()
    refs: tuple[str, ...] | None = None


# --- evidence: node -> job -----------------------------------------------------------------------------


class Observation(Data, frozen=True):
    """A fault or condition on a node, judged by the catalogue, as evidence for an attempt.

    `since_ms` is when it happened or began; `until_ms` when a condition was cured (None: open or instantaneous);
    `arrived_ms` when the record that told of it arrived. `whole_node`: no device could be named. `latent_ms`: for how
    long before `since_ms` it may have been there unseen. `awaited`: a restart for which the node took no new work.
    `hint`: the first step that the catalogue asks for.
    """

    id: str
    source: str
    node: str
    kind: str
    code: str
    since_ms: int
    arrived_ms: int
    cause_class: str
    cause_code: str
    role: str
    severity: int
    meaning: str
    open: bool = False
    until_ms: int | None = None
    device: DeviceRef | None = None
    subcode: str | None = None
    whole_node: bool = False
    scope: str = "device"
    yields_to: tuple[str, ...] = ()
    clears: tuple[str, ...] = ()
    fatal: bool = True
    acts_late: bool = False
    latent_ms: int = 0
    awaited: bool = False
    synthetic: bool = False
    known: bool = True
    last_ms: int = 0
    count: int = 1
    message: str | None = None
    domains: dict[str, str] = {}
    gpu_family: str | None = None
    driver_version: str | None = None
    pid: int | None = None
    hint: str = ""


class OtherUse(Data, frozen=True):
    """That the same device, with the same application-like code, failed another job before (28 days)."""

    code: str
    device: DeviceRef
    job_id: str
    user: str
    image: str
    at_ms: int
    node: str = ""


class NodeEvidence(Data, frozen=True):
    """What a node knows that bears on an attempt; `others` are all there are for the application-like ones in it.
    `pool`: the one that it was given the node from; empty: none that is known; None: nothing is said of it."""

    job_id: str
    attempt: int
    node: str
    observations: tuple[Observation, ...]
    others: tuple[OtherUse, ...] = ()
    pool: str | None = None


class NodeAnswer(Data, frozen=True):
    """Evidence of this node is complete up to `up_to_ms`, with what is known of its recent starts.

    `start_failures` and `failures` count other jobs of the six hours up to the attempt's end on this node (and
    `start_failure_users` and `failure_users` their users but the attempt's own): starts that failed by nothing shared
    and nothing of the user's, and failures that nothing explains. `starts` counts the jobs that ran well in that time.

    Failed starts are in a row with the attempt's end when no good start on this node lies between. Of these,
    `start_failures_here` counts the jobs whose start surely failed by this node, since it was held alone or named, and
    `start_tries` how often any of them tried. `sharers`: other jobs that held devices here in the window as well.
    """

    job_id: str
    attempt: int
    node: str
    up_to_ms: int
    start_failures: int = 0
    start_failure_users: int = 0
    start_failures_in_a_row: int = 0
    start_failure_users_in_a_row: int = 0
    start_failures_here: int = 0
    start_tries: int = 0
    failures: int = 0
    failure_users: int = 0
    starts: int = 0
    covered: bool = True
    loss: int | None = None
    pool: str | None = None
    domains: dict[str, str] = {}
    gpus_total: int = 0
    sharers: int = 0


class NodeNews(Data, frozen=True):
    """A node that an attempt holds fell silent, went down, rebooted, or gave the devices to another attempt at `at_ms`.
    `told_ms` is when the node's own lane had learnt of it: the attempt's may be behind it or ahead."""

    job_id: str
    attempt: int
    node: str
    what: Literal["silent", "down", "rebooted", "reallocated"]
    at_ms: int
    told_ms: int = 0


# --- evidence: job -> job ------------------------------------------------------------------------------


class CauseAsked(Data, frozen=True):
    """An attempt (`by_job`, `by_attempt`) was preempted for an attempt of this job: after what was that requeued?"""

    job_id: str
    attempt: int
    by_job: str
    by_attempt: int
    at_ms: int


class CauseTold(Data, frozen=True):
    """What made the attempt that preempted this one be requeued; None: nothing did, or that is taken back."""

    job_id: str
    attempt: int
    cause: Cause | None = None


# --- context: fleet -> every lane ----------------------------------------------------------------------


class LaneCensus(Data, frozen=True):
    """How many covered nodes of a cluster one lane has, and how many of them reported on time, at `at_ms`."""

    cluster: str
    lane: int
    at_ms: int
    covered: int
    on_time: int


class ClusterCensus(Data, frozen=True):
    """The lanes' counts summed; `at_ms` is the oldest of them."""

    cluster: str
    at_ms: int
    covered: int
    on_time: int


class ContextChange(Data, frozen=True):
    """One thing that concerns everyone, as it stands now; `beats`: the context's clock has reached `at_ms`."""

    cluster: str
    at_ms: int
    incident: PlatformIncident | None = None
    rollout: PlatformRollout | None = None
    maintenance: PlatformMaintenance | None = None
    census: ClusterCensus | None = None
    beats: bool = False


# --- conditions: node -> remediation -------------------------------------------------------------------


class Condition(Data, frozen=True):
    """A condition of a node opened, changed or was cleared."""

    node: str
    cluster: str
    phase: Literal["opened", "changed", "cleared"]
    condition_id: str
    observation: Observation
    at_ms: int
    pool: str | None = None
    boot_id: str | None = None


class NodeFacts(Data, frozen=True):
    """Where a node stands, for remediation: sent when any of it changes, and with each report while it is watched.

    `command_id`: the command of ours that it is held back by; `actor`: whoever else holds it back. `report_ms`: its
    newest report. `jobs` (job/attempt), the GPUs of the largest and the highest priority are told
    while the node is watched. `gpus`: what its inventory tells its GPUs apart by wherever they are (UUID, else serial).
    """

    node: str
    cluster: str
    at_ms: int
    state: NodeStateName
    planned: bool
    gpus_total: int
    gpus_allocatable: int
    interval_ms: int
    report_ms: int
    pool: str | None = None
    domains: dict[str, str] = {}
    boot_id: str | None = None
    gpu_family: str | None = None
    driver_version: str | None = None
    agent_version: str | None = None
    host_id: str | None = None
    command_id: str | None = None
    actor: str | None = None
    jobs: tuple[str, ...] = ()
    job_gpus: int = 0
    job_priority: float | None = None
    gpus: tuple[str, ...] = ()


class Intervened(Data, frozen=True):
    """Somebody changed a node; `command_id`: to carry out a command of ours. `watched`: a bridge told of it."""

    node: str
    cluster: str
    action: NodeAction
    actor: str
    planned: bool
    at_ms: int
    reason: str | None = None
    command_id: str | None = None
    watched: bool = False


class Announced(Data, frozen=True):
    """The driver said what a device needs (Xid 154; `step`: its sub-code); `hint` is `none` when it has recovered."""

    node: str
    cluster: str
    at_ms: int
    hint: str
    device: DeviceRef | None = None
    step: str = ""
    evidence: str = ""


class JobVerdict(Data, frozen=True):
    """A verdict that blames a node, as it stands now: final, amended, or taken back (`withdrawn`)."""

    cluster: str
    job_id: str
    attempt: int
    at_ms: int
    ended_ms: int
    withdrawn: bool
    cause_class: str
    code: str
    basis: Basis
    rule: str
    node: str
    evidence: tuple[str, ...] = ()
    device: DeviceRef | None = None
    loss: int | None = None


class JobTrouble(Data, frozen=True):
    """A finding on a job that has not failed, and the nodes that it holds."""

    cluster: str
    job_id: str
    finding: JobFinding


# --- care: remediation -> node -------------------------------------------------------------------------


class Tended(Data, frozen=True):
    """Remediation has an eye on the node until `watch_until_ms`; `done`: a command of ours that succeeded there."""

    node: str
    cluster: str
    at_ms: int
    watch_until_ms: int = 0
    done: Action | None = None
    device: DeviceRef | None = None
    command_id: str | None = None
    incident_id: str | None = None


# --- samples: node and job -> objectives ---------------------------------------------------------------


class Sample(Data, frozen=True):
    """A contribution to an objective within one scope, spread evenly over [from_ms, to_ms) (or at one instant).

    Amounts are whole milliseconds (seconds objectives) or counts, and may be negative: a correction of what an
    earlier sample said. `by_cause` adds up to total - good. `assumed` is the part of total - good and of what left
    the total that rests on an assumed verdict: (moved to bad, moved to good).
    """

    objective: str
    cluster: str
    from_ms: int
    to_ms: int
    good: int
    total: int
    by_cause: dict[str, int] = {}
    pool: str | None = None
    team: str | None = None
    workload: str | None = None
    assumed_bad: int = 0
    assumed_out: int = 0
    basis: Basis | None = None


class UseSample(Data, frozen=True):
    """What the GPUs of one node were used for in [from_ms, to_ms): GPU-milliseconds by use."""

    cluster: str
    from_ms: int
    to_ms: int
    gpu_ms: dict[str, int]
    pool: str | None = None
