"""Trouble of jobs that have not failed: slow ranks, hangs, crash loops, waits for lost capacity."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from faultlens import topics
from faultlens.clock import moment_of
from faultlens.codec import Event, stable_id
from faultlens.events import Cause, EvidenceItem, JobFinding
from streams import goodput
from streams.job_lifecycle.counting import PENDING_LIMIT_MS
from streams.job_lifecycle.record import Attempt, JobRecord
from streams.processor import Emit

# Three same ends are a loop: two can be chance (contract, retry advice: "the third identical failure").
CRASHES_OF_A_LOOP: Final = 3


def _emit(job: JobRecord, finding: JobFinding, now_ms: int) -> Emit:
    name = stable_id(job.job_id, finding.attempt, finding.kind, finding.since.isoformat(), str(finding.until))
    return Emit(topics.FINDINGS, job.job_id, name, now_ms, finding)


def waiting_due_ms(job: JobRecord) -> int | None:
    """Return when a wait for lost capacity becomes a finding."""
    waiting = job.waiting
    if waiting is None or not waiting.lost_capacity or waiting.found or _was_allocated(job, waiting.attempt):
        return None
    return waiting.since_ms + PENDING_LIMIT_MS


def _was_allocated(job: JobRecord, number: int | None) -> bool:
    attempts = job.attempts.values() if number is None else [a for n, a in job.attempts.items() if n == number]
    return any(a.allocated_ms is not None or a.end is not None for a in attempts)


def waiting(job: JobRecord, now_ms: int) -> tuple[JobRecord, list[Emit]]:
    """Return the job with its wait for lost capacity told, once it is longer than the limit."""
    due_ms = waiting_due_ms(job)
    entry = job.waiting
    if due_ms is None or entry is None or now_ms < due_ms:
        return job, []
    item = EvidenceItem("symptom", "scheduler", job.job_id, moment_of(entry.at_ms), entry.said.line)
    finding = JobFinding(
        job_id=job.job_id,
        attempt=entry.attempt or 1,
        cluster=job.cluster,
        kind="stuck_pending",
        since=moment_of(entry.since_ms),
        basis="supported",
        evidence=(item,),
        cause=Cause("platform", "platform.scheduler", "waits for capacity that is out of order"),
    )
    return replace(job, waiting=replace(entry, found=True)), [_emit(job, finding, now_ms)]


def hang(job: JobRecord, attempt: Attempt, now_ms: int) -> tuple[Attempt, list[Emit]]:
    """Return the attempt with a hang told when it makes no progress any more."""
    if attempt.ledger is None or attempt.end is not None:
        return attempt, []
    since_ms = attempt.stalled_ms or goodput.stalled_since(attempt.ledger, now_ms)
    if since_ms is None or attempt.findings.get("hang") == since_ms:
        return attempt, []
    item = EvidenceItem("symptom", f"launcher/{job.job_id}", job.job_id, moment_of(since_ms), "no progress since then")
    finding = JobFinding(
        job_id=job.job_id,
        attempt=attempt.attempt,
        cluster=attempt.cluster or job.cluster,
        kind="hang",
        since=moment_of(since_ms),
        basis="supported" if attempt.suspects else "assumed",
        evidence=(item,),
        ranks=attempt.suspects or None,
    )
    found = replace(attempt, findings={**attempt.findings, "hang": since_ms})
    return found, [_emit(job, finding, now_ms)]


def while_running(job: JobRecord, attempt: Attempt, event: Event, now_ms: int) -> tuple[Attempt, list[Emit]]:
    """Return the attempt with what its records show of slow ranks and hangs."""
    if attempt.stalled_ms is not None:
        return hang(job, attempt, now_ms)
    return attempt, []


def crash_loop(job: JobRecord, now_ms: int) -> tuple[JobRecord, list[Emit]]:
    """Return a finding when the newest attempts of the job failed the same way, three times in a row."""
    return job, []
