"""What an attempt counts for in job start and job success, and the corrections when that changes."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from faultlens.clock import MINUTE_MS
from streams import goodput
from streams.job_lifecycle.record import Attempt, Counted, JobRecord
from streams.processor import Emit
from streams.samples import (
    NOTHING,
    Amount,
    Blame,
    Place,
    Start,
    count_samples,
    goodput_samples,
    moved_samples,
    sample_emits,
    start_amount,
    start_due_ms,
    success_amount,
)


def place_of(job: JobRecord, attempt: Attempt) -> Place:
    """Return the scopes' names of an attempt; a job has no pool of its own, but its nodes have."""
    return Place(attempt.cluster or job.cluster, attempt.pool, job.team, job.workload)


def _blame(attempt: Attempt) -> Blame | None:
    decision = attempt.decision
    if decision is None or decision.withdrawn:
        return None
    return Blame(decision.verdict.cause.cause_class, decision.verdict.basis)


def _start(job: JobRecord, attempt: Attempt) -> Start:
    end, waiting = attempt.end, job.waiting
    since_ms = waiting.since_ms if waiting is not None and waiting.lost_capacity else None
    return Start(
        allocated_ms=attempt.allocated_ms,
        started_ms=started_ms(attempt),
        outcome=None if end is None else end.outcome,
        blame=_blame(attempt),
        waits_for_lost_capacity_since_ms=None if attempt.allocated_ms is not None else since_ms,
    )


def started_ms(attempt: Attempt) -> int | None:
    """Return when user code ran on every rank; who reports no start still reports progress or exits."""
    if attempt.started_ms is not None:
        return attempt.started_ms
    progressed = attempt.ledger is not None and goodput.last_progress_ms(attempt.ledger) is not None
    return attempt.allocated_ms if attempt.exits_total or progressed else None


class StartLimits(Struct, frozen=True):
    """Contract, "What counts": user code within ten minutes of the allocation; half an hour for lost capacity."""

    within_ms: int = 10 * MINUTE_MS
    pending_ms: int = 30 * MINUTE_MS


def counted(job: JobRecord, attempt: Attempt, limits: StartLimits, now_ms: int) -> tuple[Attempt, list[Emit]]:
    """Return the attempt with what it counts for told, and samples for what changed since it was last told.

    Nothing is told while nobody has said of which cluster the job is: it would count nowhere.
    """
    if not (attempt.cluster or job.cluster):
        return attempt, []
    end = attempt.end
    start = _start(job, attempt)
    began = start_amount(start, now_ms, within_ms=limits.within_ms, pending_limit_ms=limits.pending_ms)
    succeeded = success_amount(
        started=start.started_ms is not None or start.outcome == "succeeded",
        outcome=start.outcome,
        blame=start.blame,
        workload=job.workload,
    )
    ended_ms = now_ms if end is None else end.at_ms
    attempt, emits = _told(job, attempt, "job_start", _start_counts_ms(start, ended_ms, limits, now_ms), began)
    attempt, more = _told(job, attempt, "job_success", ended_ms, succeeded)
    return attempt, emits + more


def _start_counts_ms(start: Start, ended_ms: int, limits: StartLimits, now_ms: int) -> int:
    """Return the time at which a start counts: when it happened, or when it was overdue, or at the end."""
    if start.started_ms is not None:
        return min(start.started_ms, ended_ms)
    due_ms = start_due_ms(start, within_ms=limits.within_ms, pending_limit_ms=limits.pending_ms)
    return min(ended_ms, now_ms if due_ms is None else due_ms)


def _told(job: JobRecord, attempt: Attempt, objective: str, at_ms: int, amount: Amount) -> tuple[Attempt, list[Emit]]:
    before = attempt.counted.get(objective) or Counted(at_ms, NOTHING, 0)
    if amount == before.amount and (at_ms == before.at_ms or amount == NOTHING):
        return attempt, []
    place, times = place_of(job, attempt), before.times + 1
    if at_ms == before.at_ms:
        samples = count_samples(objective, place, at_ms, before.amount, amount)
    else:
        # What was said is taken back where it was said.
        samples = count_samples(objective, place, before.at_ms, before.amount, NOTHING)
        samples += count_samples(objective, place, at_ms, NOTHING, amount)
    about = f"{job.job_id}/{attempt.attempt}/{times}"
    told = {**attempt.counted, objective: Counted(at_ms, amount, times)}
    return replace(attempt, counted=told), sample_emits(samples, about=about, time_ms=at_ms)


def productive(job: JobRecord, attempt: Attempt, changes: tuple[goodput.Change, ...], now_ms: int) -> list[Emit]:
    """Return samples of what a flush of the ledger changed."""
    ledger = attempt.ledger
    about = f"{job.job_id}/{attempt.attempt}/goodput/{0 if ledger is None else ledger.revision}"
    return sample_emits(goodput_samples(place_of(job, attempt), changes), about=about, time_ms=now_ms)


def moved(before: JobRecord, job: JobRecord, now_ms: int) -> list[Emit]:
    """Return samples that bring what was told of attempts to the team and workload that the job turns out to be of."""
    return [
        emit
        for attempt in job.attempts.values()
        for emit in moved_attempt(job.job_id, attempt, place_of(before, attempt), place_of(job, attempt), now_ms)
    ]


def moved_with(known: JobRecord, before: Attempt, job: JobRecord, attempt: Attempt, now_ms: int) -> list[Emit]:
    """Return samples that bring what was told of an attempt to the pool that its nodes now turn out to be of."""
    if attempt.pools is before.pools and attempt.slots is before.slots:
        return []
    return moved_attempt(job.job_id, attempt, place_of(known, before), place_of(job, attempt), now_ms)


def moved_attempt(job_id: str, attempt: Attempt, old: Place, new: Place, now_ms: int) -> list[Emit]:
    """Return samples that bring what was told of an attempt from one place to another."""
    if old == new or not old.cluster:
        return []
    parts = [(name, told.at_ms, told.at_ms, told.amount) for name, told in attempt.counted.items()]
    changes = () if attempt.ledger is None else goodput.told(attempt.ledger)
    parts += [("goodput", c.from_ms, c.to_ms, Amount(c.good, dict(c.by_cause))) for c in changes]
    samples = [
        sample
        for name, from_ms, to_ms, amount in parts
        for sample in moved_samples(name, old, new, from_ms=from_ms, to_ms=to_ms, amount=amount)
    ]
    about = f"{job_id}/{attempt.attempt}/moved/{new.pool or ''}/{now_ms}"
    return sample_emits(samples, about=about, time_ms=now_ms)


def due_ms(job: JobRecord, attempt: Attempt, limits: StartLimits) -> int | None:
    """Return when what the attempt counts for may change by time alone."""
    if "job_start" in attempt.counted:
        return None
    start = _start(job, attempt)
    return start_due_ms(start, within_ms=limits.within_ms, pending_limit_ms=limits.pending_ms)
