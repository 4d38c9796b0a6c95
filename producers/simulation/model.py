"""What there is: machines, jobs, their attempts, and who tells of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from faultlens.events import Outcome, Slot, Workload
from producers.simulation.agenda import Action
from producers.simulation.logs import Draft
from producers.simulation.tables import CheckSign, Manner

CLUSTER: Final = "sim"
Reporter = Literal["slurm", "kubernetes", "launcher"]


@dataclass(slots=True)
class Sender:
    """Who sends records: its name, how wrong its clock is, and until when nothing of it gets through."""

    source: str
    clock_off_ms: int = 0
    cut_until_ms: int = 0


@dataclass(slots=True)
class Ailment:
    """What is wrong with a node until it is repaired: how checks look, and the GPU it sits in, if one.

    `lasts`: a restart of the node does not cure it.
    """

    name: str
    checks: tuple[CheckSign, ...]
    device: int | None = None
    lasts: bool = False


@dataclass(slots=True, eq=False)
class Gpu:
    """An accelerator and who holds it."""

    index: int
    uuid: str
    pci: str
    serial: str
    holder: Attempt | None = None


@dataclass(slots=True, eq=False)
class Node:
    """A machine. `off`: what keeps it from running; `held`: what keeps it from new work; `hazard`: how prone it is.

    `weak_spot`: the fault and GPU that a lemon breaks in again and again; `swallows`: how many starts it will fail
    although nothing is to be seen; `waiting`: what is done when its last job is gone.
    """

    number: int
    name: str
    pool: str
    family: str
    domains: dict[str, str]
    gpus: list[Gpu]
    host_id: str
    driver_version: str
    agent: Sender
    boot_id: str
    hazard: float = 1.0
    weak_spot: tuple[str, int | None] | None = None
    off: set[str] = field(default_factory=set)
    held: set[str] = field(default_factory=set)
    swallows: int = 0
    agent_down_until_ms: int = 0
    ailments: list[Ailment] = field(default_factory=list)
    holders: dict[Attempt, None] = field(default_factory=dict)
    waiting: list[Action] = field(default_factory=list)
    inventory_due: bool = True
    changed: bool = True

    @property
    def up(self) -> bool:
        """Whether it runs."""
        return not self.off

    @property
    def cordoned(self) -> bool:
        """Whether it takes no new work."""
        return bool(self.held or self.off)

    def free_gpus(self) -> list[int]:
        """Indexes of the GPUs that nobody holds."""
        return [gpu.index for gpu in self.gpus if gpu.holder is None]

    def sees(self, at_ms: int) -> bool:
        """Whether the node's agent runs at this time."""
        return self.up and at_ms >= self.agent_down_until_ms

    def sick_gpus(self) -> set[int]:
        """Indexes of the GPUs that something is wrong with."""
        return {ailment.device for ailment in self.ailments if ailment.device is not None}


@dataclass(slots=True)
class Broken:
    """Something that is wrong with a machine; `over_ms` None: still."""

    node: Node
    code: str
    device: int | None
    since_ms: int
    over_ms: int | None = None


@dataclass(slots=True)
class Fate:
    """How a job would end if nothing came between, after how many seconds of work; `fault` names a user's fault."""

    kind: Literal["succeeds", "cancelled", "time_limit", "user_fault"]
    at_s: float
    fault: str = ""


@dataclass(slots=True, eq=False)
class Job:
    """Work that somebody wants done. `saved_s`: seconds of it that are safe in a checkpoint."""

    id: str
    user: str
    team: str
    name: str
    workload: Workload
    pool: str
    gpus: int
    nodes: int
    priority: float
    image: str
    image_digest: str
    reporter: Reporter
    work_s: float
    step_s: float
    checkpoint_every_s: float
    fate: Fate
    restarts_left: int
    replicas: int = 1
    elastic: bool = False
    attempts: int = 0
    own_failures: int = 0
    own_error: Draft | None = None
    saved_s: float = 0.0
    queued_ms: int = 0
    told_pending: bool = False


@dataclass(slots=True, eq=False)
class Attempt:
    """One try of a job on given devices. `seats[rank]` is the node and GPU of a rank.

    `doomed_ms`: since when it cannot go on; `safe_s`: seconds of work in its last good checkpoint;
    `leaving`: nodes that an elastic job is about to go on without; `muted`: its launcher went down with its node.
    """

    job: Job
    number: int
    seats: list[tuple[Node, int]]
    teller: Sender
    scheduler: Sender | None
    allocated_ms: int
    started_ms: int | None = None
    first_step_ms: int = 0
    doomed_ms: int | None = None
    over: bool = False
    checkpointed_ms: int = 0
    safe_s: float = 0.0
    losses: int = 0
    leaving: set[Node] = field(default_factory=set)
    muted: bool = False
    failed: bool = False

    @property
    def launched_on(self) -> Node | None:
        """The node that its launcher runs on; None where a bridge tells of its ranks."""
        return None if self.teller is self.scheduler else self.seats[0][0]

    def nodes(self) -> list[Node]:
        """The nodes it holds, in the order of ranks."""
        return list(dict.fromkeys(node for node, _ in self.seats))

    def slots(self) -> tuple[Slot, ...]:
        """Its allocation as the contract writes it."""
        return slots_of(list(enumerate(self.seats)))

    def ranks_on(self, node: Node, device: int | None = None) -> list[int]:
        """Its ranks on a node, or on one GPU of it."""
        return [r for r, (n, d) in enumerate(self.seats) if n is node and (device is None or d == device)]


@dataclass(frozen=True, slots=True)
class Blow:
    """What ends an attempt, how the job feels it and what its log shows. `tells`: records of nodes give it away."""

    at_ms: int
    code: str
    why: str
    manner: Manner
    tells: bool
    text_tells: bool
    draft: Draft | None = None
    node: Node | None = None
    blamed: bool = False
    device: int | None = None
    outcome: Outcome = "failed"
    all_ranks: bool = False
    exit_code: int | None = 1
    signal: int | None = None
    reason: str | None = None
    message: str | None = None


def slots_of(ranked: list[tuple[int, tuple[Node, int]]]) -> tuple[Slot, ...]:
    """Return ranks with their seats as the contract writes an allocation: by node."""
    held: dict[Node, tuple[list[int], list[int]]] = {}
    for rank, (node, device) in ranked:
        devices, ranks = held.setdefault(node, ([], []))
        devices.append(device)
        ranks.append(rank)
    return tuple(Slot(node.name, devices=tuple(devices), ranks=tuple(ranks)) for node, (devices, ranks) in held.items())
