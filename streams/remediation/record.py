"""What remediation keeps of a cluster, under many small keys, with the limits on each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from msgspec import Struct

from faultlens.clock import DAY_MS, SECOND_MS
from faultlens.events import Action, DeviceRef, OperatorControl
from faultlens.internal import NodeFacts
from streams.context import Context
from streams.remediation.policy import Mode, Origin

# No value is to be larger than 64 KiB (docs/architecture.md): these keep the largest far below.
FAULTS_MAX: Final = 48
MUTED_MAX: Final = 64
MEMBERS_MAX: Final = 512
EVIDENCE_MAX: Final = 16
JOBS_MAX: Final = 16
COMMANDS_MAX: Final = 64
CONTROLS_MAX: Final = 128
REPAIRS_MAX: Final = 32
RECENT_MAX: Final = 256
WAITING_MAX: Final = 1_000
SEEN_BYTES: Final = 8 * 512
EXCLUDED_MAX: Final = 16
STEPS_MAX: Final = 16
# Contract: a command that did not start or end in time is closed so long after that.
OVERDUE_MS: Final = 60 * SECOND_MS
# What is over is kept for results that come late and for questions about it.
FORGOTTEN_AFTER_MS: Final = 7 * DAY_MS
JOB_KEPT_MS: Final = DAY_MS
HISTORY_MS: Final = 35 * DAY_MS

Stage = Literal["climbing", "verifying", "returning", "handed_over", "closed"]
Taking = Literal["", "node", "device", "shadow"]


class Trait(Struct, frozen=True, omit_defaults=True, gc=False):
    """An open fault of a node: `id` is the condition, `key` what tells it from others of the node."""

    id: str
    key: str
    fault: str
    cause: str
    cause_class: str
    role: str
    severity: int
    since_ms: int
    evidence: str
    hint: str = ""
    fatal: bool = False
    whole_node: bool = False
    by_tool: bool = False
    announced: bool = False
    origin: Origin = "condition"
    rule: str = ""
    family: str | None = None
    device: DeviceRef | None = None


class Seat(Struct, frozen=True, omit_defaults=True, gc=False):
    """How a node is counted in the scopes it lies in: by name, its GPUs, and whether it is out."""

    scopes: tuple[str, ...] = ()
    gpus: int = 0
    out: bool = False
    gpus_out: int = 0
    shadow: bool = False


class NodeStep(Struct, frozen=True, omit_defaults=True, gc=False):
    """A step that the driver announced for a device, and when."""

    hint: str
    at_ms: int
    device: DeviceRef | None = None


class NodeCard(Struct, frozen=True, omit_defaults=True, tag="node"):
    """A node. `taken`: we keep it from work; `muted`: faults that a person looked past, until when.

    `incident`: the open one that it is in; `command`: the open command that concerns it, and `taking`: what that is
    about to take. `worked_ms`: until when work was seen there. `steps`: what its driver asked for last, by device. The
    last incident covered what happened in [covered_from_ms, covered_to_ms). `taken_ms` and `returned_ms`: when we were
    told last that a command of ours had taken it, and had put it back; `put_back_ms`: when a person did, and
    `put_back_with`: the parts of the machine that were known to be in trouble then.
    """

    cluster: str
    node: str
    facts: NodeFacts | None = None
    traits: tuple[Trait, ...] = ()
    incident: str | None = None
    command: str | None = None
    taking: Taking = ""
    taken: bool = False
    excluded: tuple[int, ...] = ()
    muted: dict[str, int] = {}
    taken_ms: int = 0
    returned_ms: int = 0
    put_back_ms: int = 0
    put_back_with: tuple[str, ...] = ()
    steps: tuple[NodeStep, ...] = ()
    worked_ms: int = 0
    covered_from_ms: int = 0
    covered_to_ms: int = 0
    seat: Seat = Seat()
    overflow: int = 0


class ScopeCount(Struct, frozen=True, omit_defaults=True, tag="scope"):
    """The nodes and GPUs of a scope, and how many of them are out; `sizes`: how many nodes have so many GPUs."""

    cluster: str
    name: str
    nodes: int = 0
    gpus: int = 0
    nodes_out: int = 0
    gpus_out: int = 0
    nodes_shadow: int = 0
    gpus_shadow: int = 0
    sizes: dict[int, int] = {}


class IncidentCard(Struct, frozen=True, omit_defaults=True, tag="incident"):
    """An incident: of a node, of what many nodes share (`members`), or of a job.

    `at`: the rung of its ladder; `tries` of it so far; `issued`: all commands. `waits`: why nothing is issued now,
    since `waits_ms`. `acted_ms`: when what was done last ended; `cleared_ms`: since when nothing is wrong any more.
    `floor`: the repair that did not last and what is milder is left out. `done`: steps that need not be done again.
    `trend`: it is only about what wears out. `jobs`: attempts whose verdicts blame the node; `harmed`: those of them
    that are established. `job_gpus` and `job_priority`: of the largest job and the one of the highest priority that
    were seen to work there since.
    `due_ms`: when to look at it without news; `told` stands for what was published last, `tellings` counts that.
    """

    cluster: str
    id: str
    route: str
    ladder: str
    cause: str
    cause_class: str
    severity: int
    rule: str
    first_ms: int
    last_ms: int
    node: str = ""
    job_id: str = ""
    attempt: int = 0
    mode: Mode = "live"
    policy: str = ""
    stage: Stage = "climbing"
    at: int = 0
    tries: int = 0
    issued: int = 0
    not_before_ms: int = 0
    tolerance_ms: int = 0
    waits: str | None = None
    waits_ms: int = 0
    acted_ms: int = 0
    cleared_ms: int | None = None
    repaired_by: Action | None = None
    proven: bool = False
    approved: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()
    released_by: str | None = None
    floor: Action | None = None
    count: int = 1
    device: DeviceRef | None = None
    faults: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    harmed: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    members: tuple[str, ...] = ()
    member_count: int = 0
    domain: str = ""
    rollout_id: str | None = None
    probe: str | None = None
    probes: int = 0
    done: tuple[Action, ...] = ()
    trend: bool = False
    job_gpus: int = 0
    job_priority: float | None = None
    due_ms: int | None = None
    told: bytes = b""
    tellings: int = 0
    closed_ms: int = 0
    closed_because: str | None = None


class CommandCard(Struct, frozen=True, omit_defaults=True, tag="command"):
    """A command that was issued; open until it has ended. `ended_ms` 0: it has not."""

    cluster: str
    id: str
    incident: str
    action: Action
    rung: int
    issued_ms: int
    expires_ms: int
    finish_ms: int
    mode: Mode = "live"
    node: str = ""
    job_id: str = ""
    device: DeviceRef | None = None
    boot_id: str | None = None
    accepted: bool = False
    started_ms: int = 0
    heard_ms: int = 0
    ended_ms: int = 0
    state: str = ""
    reason: str = ""
    actuator: str = ""


class Control(Struct, frozen=True, omit_defaults=True, gc=False):
    """A person's word that is in force."""

    control: OperatorControl
    since_ms: int
    until_ms: int | None = None


class ClusterCard(Struct, frozen=True, omit_defaults=True, tag="cluster"):
    """What concerns the whole cluster: what people said, what is shared, and the incidents that wait for something.

    `lanes`: each lane's last count of nodes: when, covered, on time. `watched_ms`: when a bridge last told what became
    of a node: it would tell of one that does not answer its scheduler.
    """

    cluster: str
    context: Context = Context()
    lanes: dict[int, tuple[int, int, int]] = {}
    controls: tuple[Control, ...] = ()
    waiting: tuple[str, ...] = ()
    watched_ms: int = 0
    seen: bytes = b""
    dropped: int = 0


class Recent(Struct, frozen=True, omit_defaults=True, tag="recent"):
    """The nodes of a domain that turned bad by one cause: when each did; and the incident of what they share."""

    cluster: str
    name: str
    at_ms: dict[str, int] = {}
    incident: str | None = None


class HungJob(Struct, frozen=True, omit_defaults=True, tag="job"):
    """An attempt that runs on nodes in trouble (`nodes`), and since when it hangs; None: it goes on."""

    cluster: str
    job_id: str
    attempt: int
    nodes: tuple[str, ...] = ()
    hung_ms: int | None = None
    incident: str | None = None
    heard_ms: int = 0


class Repair(Struct, frozen=True, omit_defaults=True, gc=False):
    """An incident of a machine that is over: its cause and first fault, when it ended, what ended it, whether a job was
    lost to it, and the GPU that it was about, by its name in the machine's inventory.
    """

    cause: str
    at_ms: int
    by: Action | None = None
    fault: str = ""
    harmed: bool = False
    device: str = ""


class Machine(Struct, frozen=True, omit_defaults=True, tag="machine"):
    """What a machine or a GPU had in the last weeks, by what stays with it when names change.

    Of a machine: the GPUs in it, and whether it says itself which one it is (`identified`). Of a GPU: the machine that
    it was in at `seen_ms`, when that was last in trouble.
    """

    cluster: str
    name: str
    repairs: tuple[Repair, ...] = ()
    gpus: tuple[str, ...] = ()
    identified: bool = False
    inside: str = ""
    seen_ms: int = 0


class Place(Struct, frozen=True, omit_defaults=True, tag="place"):
    """The node in which a machine (`host/ID`) or GPU (`gpu/UUID`) was when something was wrong with it last."""

    cluster: str
    name: str
    node: str
    seen_ms: int


Card = NodeCard | ScopeCount | IncidentCard | CommandCard | ClusterCard | Recent | Machine | Place | HungJob


def node_key(cluster: str, node: str) -> str:
    """Return the key of a node."""
    return f"node|{cluster}|{node}"


def scope_key(cluster: str, name: str) -> str:
    """Return the key of a scope's counts."""
    return f"scope|{cluster}|{name}"


def incident_key(cluster: str, incident_id: str) -> str:
    """Return the key of an incident."""
    return f"incident|{cluster}|{incident_id}"


def command_key(cluster: str, command_id: str) -> str:
    """Return the key of a command."""
    return f"command|{cluster}|{command_id}"


def cluster_key(cluster: str) -> str:
    """Return the key of what concerns the whole cluster."""
    return f"cluster|{cluster}"


def recent_key(cluster: str, name: str) -> str:
    """Return the key of the nodes of a domain that turned bad by one cause."""
    return f"recent|{cluster}|{name}"


def machine_key(cluster: str, name: str) -> str:
    """Return the key of a machine's history."""
    return f"machine|{cluster}|{name}"


def place_key(cluster: str, name: str) -> str:
    """Return the key of where a machine or GPU was."""
    return f"place|{cluster}|{name}"


def job_key(cluster: str, job_id: str) -> str:
    """Return the key of a job on nodes in trouble."""
    return f"job|{cluster}|{job_id}"


def key_of(card: Card) -> str:
    """Return the key that a card is kept under."""
    if isinstance(card, HungJob):
        return job_key(card.cluster, card.job_id)
    if isinstance(card, NodeCard):
        return node_key(card.cluster, card.node)
    if isinstance(card, ClusterCard):
        return cluster_key(card.cluster)
    if isinstance(card, IncidentCard):
        return incident_key(card.cluster, card.id)
    if isinstance(card, CommandCard):
        return command_key(card.cluster, card.id)
    kind = {ScopeCount: scope_key, Recent: recent_key, Machine: machine_key, Place: place_key}[type(card)]
    return kind(card.cluster, card.name)


def due_ms(card: Card) -> int | None:
    """Return when a card is to be looked at without news; None: never."""
    look = _DUE.get(type(card))
    return None if look is None else look(card)


def _incident_due(card: IncidentCard) -> int | None:
    return card.due_ms if card.stage != "closed" else card.closed_ms + FORGOTTEN_AFTER_MS


def _command_due(card: CommandCard) -> int:
    if card.ended_ms:
        return card.ended_ms + FORGOTTEN_AFTER_MS
    return (card.finish_ms if card.started_ms else card.expires_ms) + OVERDUE_MS


def _cluster_due(card: ClusterCard) -> int | None:
    return min((word.until_ms for word in card.controls if word.until_ms is not None), default=None)


def _recent_due(card: Recent) -> int | None:
    return None if card.incident is not None else max(card.at_ms.values(), default=0) + JOB_KEPT_MS


_DUE: Final[Mapping[type, Callable[[Any], int | None]]] = {
    IncidentCard: _incident_due,
    CommandCard: _command_due,
    ClusterCard: _cluster_due,
    Recent: _recent_due,
    Place: lambda card: card.seen_ms + HISTORY_MS,
    HungJob: lambda card: card.heard_ms + JOB_KEPT_MS,
    Machine: lambda card: max((repair.at_ms for repair in card.repairs), default=card.seen_ms) + HISTORY_MS,
}
