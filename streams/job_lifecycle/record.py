"""What is kept of a job and its attempts, with the limits on it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from faultlens.clock import DAY_MS, MINUTE_MS, SECOND_MS
from faultlens.events import FAILURES, AttemptRef, Cause, JobAttributed, JobLabelled, Slot
from faultlens.internal import CauseAsked, NodeAnswer, NodeNews, Observation, OtherUse
from streams.attribution import Earlier, End, Exit, Said
from streams.findings import SlowRanks
from streams.goodput import Ledger
from streams.job_lifecycle.two_words import counting
from streams.samples import Amount

# Contract, "Evidence window": opens 10 minutes before the first sign of trouble, closes 5 minutes after the end.
WINDOW_BEFORE_MS: Final = 10 * MINUTE_MS
WINDOW_AFTER_MS: Final = 5 * MINUTE_MS
# Design §2: the end is sent again every 5 minutes to nodes that have not answered.
RESEND_MS: Final = 5 * MINUTE_MS
LOOK_AGAIN_MS: Final = 2 * SECOND_MS
# Contract: later evidence amends a verdict for 7 days; of each failed attempt a stub is kept for 400 days.
AMENDED_FOR_MS: Final = 7 * DAY_MS
STUB_KEPT_MS: Final = 400 * DAY_MS
# A job that waited so long and was never heard of again is not waiting any more.
UNPLACED_KEPT_MS: Final = 90 * DAY_MS
# Contract, "An end that nobody reports".
MISSED_ALIVES: Final = 3
NO_ALIVE_GRACE_MS: Final = 60 * SECOND_MS
NEXT_ATTEMPT_GRACE_MS: Final = 5 * MINUTE_MS
REPORTER_LOST_MS: Final = 60 * MINUTE_MS
# The time that is waited doubles that often; longer than REPORTER_LOST_MS it never gets.
REOPENED_MAX: Final = 16
SAME_LOSS_MS: Final = 5 * MINUTE_MS
# Contract, "Skew": clocks that differ by more are wrong.
CLOCKS_DIFFER_MS: Final = 5 * MINUTE_MS
# Limits of one job; what passes them is folded into counts.
EXITS_MAX: Final = 16
LOST_EXITS_MAX: Final = 64
OBSERVATIONS_MAX: Final = 96
OTHERS_MAX: Final = 16
ATTEMPTS_MAX: Final = 8
STUBS_MAX: Final = 64
ASKED_MAX: Final = 64
LOSSES_MAX: Final = 64
SEEN_BYTES: Final = 8 * 256
ENDS_SEEN_BYTES: Final = 8 * 16


class Counted(Struct, frozen=True, gc=False):
    """What an attempt has told an objective, at which time, and how often it had to say so."""

    at_ms: int
    amount: Amount
    times: int


class Label(Struct, frozen=True, gc=False):
    """A person's word, with the event that brought it."""

    label: JobLabelled
    id: str
    source: str
    at_ms: int
    arrived_ms: int


class Decision(Struct, frozen=True, gc=False):
    """The verdict on an attempt or a loss: its newest revision.

    `finalised`: the end in force has had its verdict after the window; `final_once`: a final one was ever written, so
    that another can only be an amended one.
    """

    verdict: JobAttributed
    finalised: bool = False
    final_once: bool = False
    withdrawn: bool = False


class Loss(Struct, frozen=True, omit_defaults=True):
    """Nodes or devices that the attempt lost and survived."""

    number: int
    at_ms: int
    id: str
    source: str
    lost: tuple[Slot, ...]
    reason: str | None = None
    answers: dict[str, NodeAnswer] = {}
    decision: Decision | None = None
    sent_ms: int = 0
    label: Label | None = None

    @property
    def is_decided(self) -> bool:
        """Whether it has had its final verdict."""
        return self.decision is not None and self.decision.finalised


def _joined(held: Slot | None, lost: Slot) -> Slot:
    """Return what was held of a node before some of its devices were lost."""
    if held is None or lost.devices is None or held.devices is None:
        return lost if held is None else replace(held, devices=None)
    return replace(held, devices=tuple(sorted({*held.devices, *lost.devices})))


def gpus_of(slots: Iterable[Slot], otherwise: int = 0) -> int:
    """Return how many GPUs these slots name; where one of them does not, as many as are said otherwise."""
    known = [slot.devices or slot.device_refs or slot.devices for slot in slots]
    named = sum(len(devices) for devices in known if devices is not None)
    return max(named, otherwise) if None in known else named


class Attempt(Struct, frozen=True, omit_defaults=True):
    """Everything that is known of an attempt. `heard_ms` and `heard_at_ms`: its reporters' last record, by its own
    time and by its arrival. `told`: what the nodes were told of its end: when the window opens and closes, the
    outcome, and what the job brings along; `sent_ms`: when they were last told. `context_seen`: the version of the
    context that the verdict was last held against. `reopened`: how often it was closed too early. `resized_ms`: when
    its size changed last. `pools`: by node that it was ever given, as far as these have told, and empty for one that it
    gave back untold."""

    attempt: int
    cluster: str = ""
    allocated_ms: int | None = None
    slots: dict[str, Slot] = {}
    gone: dict[str, Slot] = {}
    started_ms: int | None = None
    submitted_ms: int | None = None
    heard_ms: int = 0
    heard_at_ms: int = 0
    alive_ms: int | None = None
    stalled_ms: int | None = None
    suspects: tuple[int, ...] = ()
    ledger: Ledger | None = None
    flushed_ms: int = 0
    exits: tuple[Exit, ...] = ()
    exits_total: int = 0
    first_exit_ms: int | None = None
    ends: dict[str, End] = {}
    ends_seen: bytes = b""
    closed: End | None = None
    restarts_with: int | None = None
    observations: dict[str, Observation] = {}
    others: tuple[OtherUse, ...] = ()
    answers: dict[str, NodeAnswer] = {}
    news: dict[str, NodeNews] = {}
    told: tuple[int, int, str, tuple[str, ...]] | None = None
    sent_ms: int = 0
    label: Label | None = None
    decision: Decision | None = None
    losses: tuple[Loss, ...] = ()
    counted: dict[str, Counted] = {}
    findings: dict[str, int] = {}
    preempted_by: AttemptRef | None = None
    preempted_for: Cause | None = None
    resting: bool = False
    slow: SlowRanks = ()
    overflow: int = 0
    context_seen: int = -1
    reopened: int = 0
    resized_ms: int = 0
    pools: dict[str, str] = {}

    @property
    def end(self) -> End | None:
        """The end that counts, as `counting` has it; of words of equal rank the later arrival."""
        return counting(self.ends.get("scheduler"), self.ends.get("launcher")) if self.ends else self.closed

    @property
    def failed(self) -> bool:
        """Whether the end in force is a failure."""
        end = self.end
        return end is not None and end.outcome in FAILURES

    @property
    def undecided(self) -> tuple[Loss, ...]:
        """The losses that it survived and of which the final verdict is still to come."""
        return tuple(loss for loss in self.losses if not (loss.is_decided or self.takes_over(loss)))

    @property
    def taken_over(self) -> tuple[Slot, ...]:
        """What was lost so shortly before the end that the loss counts for it."""
        return tuple(slot for loss in self.losses if self.takes_over(loss) for slot in loss.lost)

    @property
    def window_ends_ms(self) -> int:
        """Until when what happens bears on the end: five minutes after it, of two reported ends the later."""
        ends = list(self.ends.values()) or ([] if self.closed is None else [self.closed])
        return max((end.at_ms for end in ends), default=0) + WINDOW_AFTER_MS

    @property
    def closes_ms(self) -> int:
        """Up to when all must have answered: the window's end; what made us close an attempt may have come after it."""
        concluded_ms = self.closed.arrived_ms if self.closed is not None and not self.ends else 0
        return max(self.window_ends_ms, concluded_ms)

    @property
    def answering(self) -> dict[str, Slot]:
        """What answers for the end: what is held, and what was lost so shortly before that the loss counts for it."""
        slots = dict(self.slots)
        for slot in self.taken_over:
            slots[slot.node] = _joined(slots.get(slot.node), slot)
        return slots

    @property
    def last_exits(self) -> tuple[Exit, ...]:
        """The exits that belong to the end: those of nodes that it lost and went on without do not."""
        gone = {*self.gone} - {slot.node for slot in self.taken_over}
        return tuple(e for e in self.exits if e.node not in gone) if gone else self.exits

    def seats_of(self, ranks: Sequence[int]) -> tuple[tuple[str, int | None], ...]:
        """Return on which node and device these ranks ran, as far as the allocation says so."""
        seats: list[tuple[str, int | None]] = []
        for slot in self.answering.values() if ranks else ():
            known = slot.ranks or ()
            devices = slot.devices if slot.devices is not None and len(slot.devices) == len(known) else None
            seats += [(slot.node, devices[at] if devices else None) for at, rank in enumerate(known) if rank in ranks]
        return tuple(seats)

    def takes_over(self, loss: Loss) -> bool:
        """Return whether the attempt failed inside the loss's window, so that the loss is none of its own."""
        end = self.end
        return self.failed and end is not None and end.at_ms <= loss.at_ms + WINDOW_AFTER_MS

    @property
    def pool(self) -> str | None:
        """The pool that all its nodes are of; None: they are of several, or one has not told."""
        named = {*self.pools.values()}
        told = len(named) == 1 and self.slots.keys() <= self.pools.keys()
        return next(iter(named)) or None if told else None

    @property
    def gpus(self) -> int:
        """GPUs held, as far as the allocation names them."""
        return gpus_of(self.slots.values())


class Waiting(Struct, frozen=True, gc=False):
    """Why the scheduler lets the job wait, and whether the words name capacity that is out of order."""

    since_ms: int
    reason: str
    said: Said
    lost_capacity: bool
    at_ms: int
    attempt: int | None = None
    found: bool = False


class Serving(Struct, frozen=True, omit_defaults=True, gc=False):
    """The replicas of a service since the time up to which they were told: ready ones, and missing ones by cause."""

    since_ms: int
    ready: int = 0
    missing: dict[str, int] = {}

    @property
    def wanted(self) -> int:
        """How many replicas are wanted."""
        return self.ready + sum(self.missing.values())


class JobRecord(Struct, frozen=True, omit_defaults=True):
    """A job: what was submitted, its newest attempts whole and of the older failed ones a stub.

    `folded`: newer attempts than the oldest kept one that are not kept any more, the newest of them.
    """

    job_id: str
    cluster: str = ""
    user: str | None = None
    team: str | None = None
    name: str | None = None
    workload: str = "batch"
    gpus: int = 0
    nodes: int = 0
    replicas: int | None = None
    image: str | None = None
    priority: float | None = None
    submitted_ms: int | None = None
    attempts: dict[int, Attempt] = {}
    stubs: dict[int, Earlier] = {}
    folded: tuple[int, ...] = ()
    serving: Serving | None = None
    waiting: Waiting | None = None
    asked: tuple[CauseAsked, ...] = ()
    seen: bytes = b""


def cause_of(attempt: Attempt) -> Cause | None:
    """Return the cause in force for a failed attempt."""
    decision = attempt.decision
    return None if decision is None or decision.withdrawn else decision.verdict.cause


def cause_in(job: JobRecord, number: int) -> Cause | None:
    """Return the cause in force of one of the job's failed attempts, also where only a stub of it is left."""
    attempt, stub = job.attempts.get(number), job.stubs.get(number)
    if attempt is not None:
        return cause_of(attempt)
    return None if stub is None else Cause(stub.cause_class, stub.cause_code)  # type: ignore[arg-type]


def with_attempt(job: JobRecord, attempt: Attempt) -> dict[int, Attempt]:
    """Return the job's attempts with this one put in, in order."""
    attempts = {**job.attempts, attempt.attempt: attempt}
    return attempts if attempt.attempt in job.attempts else dict(sorted(attempts.items()))
