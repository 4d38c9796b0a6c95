"""All that a verdict rests on: the attempt, its ranks' exits, the evidence and the history."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from faultlens.events import JobLabelled, Outcome, PlatformIncident, PlatformMaintenance, PlatformRollout
from faultlens.internal import NodeAnswer, Observation, OtherUse
from streams.context import Open

SaidRole = Literal["root", "symptom", "cascade", "none"]


class Said(Struct, frozen=True, gc=False):
    """What a text says, condensed: the deciding line and what it is. Role `none`: nothing was recognised."""

    cause_class: str = "user"
    cause_code: str = "app.crash"
    role: SaidRole = "none"
    strong: bool = False
    signature: str = ""
    line: str = ""
    also: tuple[str, ...] = ()


class Exit(Struct, frozen=True, gc=False):
    """One rank's end: `first_ms` is its first error, or when it exited where no error time is known."""

    id: str
    source: str
    rank: int
    node: str
    first_ms: int
    at_ms: int
    said: Said
    device: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    reason: str | None = None


class End(Struct, frozen=True, gc=False):
    """The end of an attempt as one reporter told it; `scheduler` words outrank launchers' on the outcome."""

    id: str
    source: str
    at_ms: int
    arrived_ms: int
    outcome: Outcome
    said: Said = Said()
    reason: str | None = None
    message: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    command_id: str | None = None
    scheduler: bool = False
    unreported: bool = False


class Earlier(Struct, frozen=True, gc=False):
    """How an earlier attempt of the same job failed."""

    attempt: int
    nodes: tuple[str, ...]
    how: str
    step: int | None
    cause_class: str
    cause_code: str
    basis: str


class Facts(Struct, frozen=True):
    """One failed attempt (or a loss it survived) with everything known of it. Times are milliseconds.

    `held` maps each node to the devices held there (None: which ones is not known). `steps_after` maps an
    observation's id to the steps that the job completed after it. `suspects_on`: the nodes and devices of the ranks
    that are absent from a collective (`suspects`). `incidents`, `maintenance` and `rollouts` are those whose scope
    covers a held node (or, where nothing was held yet, that are of the job's cluster). `brought`: causes that the job
    met on more than one device, in this attempt or others.
    """

    job_id: str
    attempt: int
    end: End
    held: dict[str, tuple[int, ...] | None]
    opens_ms: int
    closes_ms: int
    trouble_ms: int
    allocated_ms: int | None = None
    started_ms: int | None = None
    loss: int | None = None
    user: str | None = None
    image: str | None = None
    workload: str = "batch"
    exits: tuple[Exit, ...] = ()
    exits_total: int = 0
    observations: tuple[Observation, ...] = ()
    others: tuple[OtherUse, ...] = ()
    answers: tuple[NodeAnswer, ...] = ()
    incidents: tuple[Open[PlatformIncident], ...] = ()
    maintenance: tuple[Open[PlatformMaintenance], ...] = ()
    rollouts: tuple[Open[PlatformRollout], ...] = ()
    steps_after: dict[str, int] = {}
    reports_progress: bool = False
    stalled_ms: int | None = None
    last_progress_ms: int | None = None
    suspects: tuple[int, ...] = ()
    suspects_on: tuple[tuple[str, int | None], ...] = ()
    earlier: tuple[Earlier, ...] = ()
    brought: tuple[str, ...] = ()
    how: str = ""
    step: int | None = None
    lost_capacity: bool = False
    pending: Said = Said()
    label: JobLabelled | None = None
    label_id: str = ""
    label_source: str = ""
    label_ms: int = 0
    labelled_by: str = ""
