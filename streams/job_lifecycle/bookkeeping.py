"""The ledger of an attempt kept in step with its end and verdict, and written when it is due."""

from __future__ import annotations

from msgspec.structs import replace

from faultlens import topics
from faultlens.causes import class_of
from faultlens.clock import HOUR_MS, moment_of
from faultlens.codec import stable_id
from faultlens.events import Cause, JobTime
from streams import goodput
from streams.attribution import behind_our_command
from streams.job_lifecycle.counting import productive
from streams.job_lifecycle.record import Attempt, JobRecord, cause_in, cause_of
from streams.processor import Emit


def balanced(job: JobRecord, attempt: Attempt) -> Attempt:
    """Return the attempt with its ledger told how it ended, whose fault that was, and what it recovers from."""
    ledger = attempt.ledger
    if ledger is None:
        return attempt
    end = attempt.end
    if end is None:
        ledger = goodput.reopen(ledger) if ledger.closed else ledger
    else:
        cause = cause_of(attempt) if attempt.failed else _policy_cause(job, attempt)
        if (ledger.end_ms, ledger.outcome, ledger.cause) != (end.at_ms, end.outcome, _bare(cause)):
            ledger = goodput.close(ledger, end.at_ms, end.outcome, cause)
    recovers_from = cause_in(job, attempt.attempt - 1)
    if ledger.charges.get("recovery") != _bare(recovers_from):
        ledger = goodput.charge(ledger, "recovery", recovers_from)
    for loss in attempt.losses:
        cause = None if loss.decision is None or loss.decision.withdrawn else loss.decision.verdict.cause
        if ledger.charges.get(f"loss {loss.number}") != _bare(cause):
            ledger = goodput.charge_loss(ledger, loss.number, cause)
    return attempt if ledger is attempt.ledger else replace(attempt, ledger=ledger)


def _bare(cause: Cause | None) -> Cause | None:
    return None if cause is None else Cause(cause.cause_class, cause.code)


def _policy_cause(job: JobRecord, attempt: Attempt) -> Cause | None:
    """Return the fault behind an end that was no failure: of our own command, or of a requeue that took the place."""
    end = attempt.end
    if end is None or end.outcome not in ("cancelled", "preempted"):
        return None
    if end.command_id is None:
        return attempt.preempted_for if end.outcome == "preempted" else None
    fault = behind_our_command(attempt.observations.values(), end.at_ms)
    code = "platform.remediation" if fault is None else fault.cause_code
    return Cause(class_of(code), code)


def due_ms(attempt: Attempt) -> int | None:
    """Return when the ledger has to be written next: hourly, while the attempt runs."""
    if attempt.ledger is None or attempt.end is not None:
        return None
    return (max(attempt.flushed_ms, attempt.ledger.from_ms) // HOUR_MS + 1) * HOUR_MS


def written(job: JobRecord, attempt: Attempt, now_ms: int) -> tuple[Attempt, list[Emit]]:
    """Return the attempt with its ledger written up to now, and the records and samples that say what changed."""
    ledger = attempt.ledger
    if ledger is None:
        return attempt, []
    flushed = goodput.flush(ledger, now_ms)
    attempt = replace(attempt, ledger=flushed.ledger, flushed_ms=now_ms)
    cluster = attempt.cluster or job.cluster
    emits = []
    for interval in flushed.records:
        data = goodput.job_time(interval, job_id=job.job_id, ledger=flushed.ledger, cluster=cluster, team=job.team)
        key = stable_id(job.job_id, attempt.attempt, flushed.ledger.revision, interval.from_ms)
        emits.append(Emit(topics.GOODPUT, job.job_id, key, now_ms, data))
    return attempt, emits + productive(job, attempt, flushed.changes, now_ms)


def written_anew(known: Attempt | None, job: JobRecord, attempt: Attempt, now_ms: int) -> tuple[Attempt, list[Emit]]:
    """Return the same as `written`, given the attempt before the step: what was written at its end is laid out once."""
    ledger = attempt.ledger
    if ledger is not None and ledger.closed and known is not None and known.ledger is ledger:
        return replace(attempt, flushed_ms=now_ms), []
    return written(job, attempt, now_ms)


def queued_after(job: JobRecord, attempt: Attempt, now_ms: int) -> list[Emit]:
    """Return how long the next attempt waited, if it was allocated before this one's end was known."""
    following = job.attempts.get(attempt.attempt + 1)
    if following is None or following.allocated_ms is None:
        return []
    return queued(replace(job, attempts={**job.attempts, attempt.attempt: attempt}), following, now_ms)


def queued(job: JobRecord, attempt: Attempt, now_ms: int) -> list[Emit]:
    """Return how long the attempt waited for its allocation, in wall time; its ledger begins after that."""
    before = job.attempts.get(attempt.attempt - 1)
    since_ms = job.submitted_ms
    if before is not None:
        since_ms = before.end.at_ms if before.end is not None else None
    if since_ms is None or attempt.allocated_ms is None or since_ms >= attempt.allocated_ms:
        return []
    data = JobTime(
        job_id=job.job_id,
        attempt=attempt.attempt,
        revision=0,
        cluster=attempt.cluster or job.cluster,
        category="queued",
        start=moment_of(since_ms),
        stop=moment_of(attempt.allocated_ms),
        gpus=job.gpus or attempt.gpus,
        team=job.team,
    )
    return [Emit(topics.GOODPUT, job.job_id, stable_id(job.job_id, attempt.attempt, "queued"), now_ms, data)]
