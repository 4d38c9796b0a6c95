"""Preemptions made by a requeue: whose fault made it necessary, asked of the job that took the place."""

from __future__ import annotations

from msgspec.structs import replace

from faultlens import topics
from faultlens.codec import stable_id
from faultlens.events import Cause
from faultlens.internal import CauseAsked, CauseTold
from streams.job_lifecycle.record import AMENDED_FOR_MS, ASKED_MAX, Attempt, JobRecord, cause_of
from streams.processor import Emit


def asking(job: JobRecord, attempt: Attempt, now_ms: int) -> list[Emit]:
    """Return the question to the job that the attempt was preempted for."""
    end, other = attempt.end, attempt.preempted_by
    if end is None or end.outcome != "preempted" or other is None or other.job_id == job.job_id:
        return []
    data = CauseAsked(other.job_id, other.attempt, job.job_id, attempt.attempt, now_ms)
    key = stable_id(job.job_id, attempt.attempt, "asks", other.job_id, other.attempt)
    return [Emit(topics.EVIDENCE, other.job_id, key, now_ms, data)]


def remembered(job: JobRecord, asked: CauseAsked, now_ms: int) -> tuple[JobRecord, list[Emit]]:
    """Return the job with the question kept for a week, and the answer as far as it is known."""
    others = [a for a in job.asked if (a.by_job, a.by_attempt) != (asked.by_job, asked.by_attempt)]
    job = replace(job, asked=(*others, asked)[-ASKED_MAX:])
    cause = requeued_after(job, asked.attempt)
    return job, [] if cause is None else [_told(asked, cause, now_ms)]


def answered(before: JobRecord, job: JobRecord, now_ms: int) -> list[Emit]:
    """Return the answers that are others than before."""
    emits = []
    for asked in job.asked:
        cause = requeued_after(job, asked.attempt)
        if cause != requeued_after(before, asked.attempt):
            emits.append(_told(asked, cause, now_ms))
    return emits


def requeued_after(job: JobRecord, number: int) -> Cause | None:
    """Return the cause in force of the last failure before this attempt; None: it is the first, or none failed."""
    causes = {n: Cause(stub.cause_class, stub.cause_code) for n, stub in job.stubs.items() if n < number}  # type: ignore[arg-type]
    for n, attempt in job.attempts.items():
        if n < number and (cause := cause_of(attempt)) is not None:
            causes[n] = Cause(cause.cause_class, cause.code)
    return causes[max(causes)] if causes else None


def unforgotten(job: JobRecord, now_ms: int) -> tuple[CauseAsked, ...]:
    """Return the questions whose answer may still change."""
    return tuple(asked for asked in job.asked if now_ms < asked.at_ms + AMENDED_FOR_MS)


def due_ms(job: JobRecord) -> int | None:
    """Return when the oldest question is forgotten."""
    return min((asked.at_ms + AMENDED_FOR_MS for asked in job.asked), default=None)


def _told(asked: CauseAsked, cause: Cause | None, now_ms: int) -> Emit:
    data = CauseTold(asked.by_job, asked.by_attempt, cause)
    code = "" if cause is None else cause.code
    key = stable_id(asked.job_id, asked.attempt, "told", asked.by_job, asked.by_attempt, code, now_ms)
    return Emit(topics.EVIDENCE, asked.by_job, key, now_ms, data)
