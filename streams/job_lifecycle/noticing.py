"""Trouble of jobs that have not failed, told once each: slow ranks, hangs, slow links, crash loops, stuck waits."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from faultlens import topics
from faultlens.clock import moment_of
from faultlens.codec import Event, stable_id
from faultlens.events import Cause, EvidenceItem, JobFinding, JobProgress
from streams.attribution import described
from streams.findings import Crash, LowBandwidth, crash_loop, hang_since, low_bandwidth, observe_ranks, persistent
from streams.goodput import Ledger
from streams.job_lifecycle.gathering import how_it_failed
from streams.job_lifecycle.record import Attempt, JobRecord
from streams.processor import Emit

_RANKS_TOLD: Final = 16


def _told(job: JobRecord, attempt: Attempt, now_ms: int, **fields: Any) -> list[Emit]:
    finding = JobFinding(job_id=job.job_id, attempt=attempt.attempt, cluster=attempt.cluster or job.cluster, **fields)
    name = stable_id(job.job_id, attempt.attempt, finding.kind, finding.since.isoformat())
    return [Emit(topics.FINDINGS, job.job_id, name, now_ms, finding)]


def _word(attempt: Attempt, at_ms: int, what: str) -> tuple[EvidenceItem, ...]:
    """Return the evidence of what a job's own reporters said, in words."""
    return (EvidenceItem("symptom", "launcher", f"{attempt.attempt}/{at_ms}", moment_of(at_ms), what),)


# --- while an attempt runs -----------------------------------------------------------------------------


def while_running(job: JobRecord, attempt: Attempt, event: Event, now_ms: int) -> tuple[Attempt, list[Emit]]:
    """Return the attempt with what its newest record shows of slow ranks and hangs."""
    if isinstance(event.data, JobProgress):
        return _slow_ranks(job, attempt, event, event.data, now_ms)
    return hang(job, attempt, now_ms) if attempt.stalled_ms is not None else (attempt, [])


def _slow_ranks(
    job: JobRecord, attempt: Attempt, event: Event, data: JobProgress, now_ms: int
) -> tuple[Attempt, list[Emit]]:
    if not data.ranks:
        return attempt, []
    slow = observe_ranks(attempt.slow, event.time_ms, data.ranks, data.quantiles)
    attempt = replace(attempt, slow=slow)
    worst = persistent(slow)
    if not worst or attempt.findings.get("slow_rank") == worst[0].since_ms:
        return attempt, []
    first = worst[0]
    node = next((s.node for s in attempt.slots.values() if s.ranks and first.rank in s.ranks), None)
    attempt = replace(attempt, findings={**attempt.findings, "slow_rank": first.since_ms})
    return attempt, _told(
        job,
        attempt,
        now_ms,
        kind="slow_rank",
        since=moment_of(first.since_ms),
        basis="supported",
        evidence=_word(
            attempt, event.time_ms, f"rank {first.rank} takes {first.ratio:.2f} times as long as the others"
        ),
        ranks=tuple(rank.rank for rank in worst[:_RANKS_TOLD]),
        node=node,
        ratio=round(first.ratio, 3),
    )


def hang(job: JobRecord, attempt: Attempt, now_ms: int) -> tuple[Attempt, list[Emit]]:
    """Return the attempt with a hang told when it makes no progress any more, or with slow links when it crawls."""
    if attempt.ledger is None or attempt.end is not None:
        return attempt, []
    since_ms = attempt.stalled_ms or hang_since(attempt.ledger, now_ms)
    if since_ms is None:
        return _slow_links(job, attempt, attempt.ledger, now_ms)
    if attempt.findings.get("hang") == since_ms:
        return attempt, []
    attempt = replace(attempt, findings={**attempt.findings, "hang": since_ms})
    return attempt, _told(
        job,
        attempt,
        now_ms,
        kind="hang",
        since=moment_of(since_ms),
        basis="supported" if attempt.suspects else "assumed",
        evidence=_word(attempt, since_ms, "no progress since then"),
        ranks=attempt.suspects or None,
    )


def _slow_links(job: JobRecord, attempt: Attempt, ledger: Ledger, now_ms: int) -> tuple[Attempt, list[Emit]]:
    found = low_bandwidth(ledger, attempt.slow, attempt.observations.values())
    if found is None or attempt.findings.get("low_bandwidth") == found.link.since_ms:
        return attempt, []
    attempt = replace(attempt, findings={**attempt.findings, "low_bandwidth": found.link.since_ms})
    return attempt, _told(job, attempt, now_ms, **_of_link(found))


def _of_link(found: LowBandwidth) -> dict[str, Any]:
    link = found.link
    item = EvidenceItem("root", link.source, link.id, moment_of(link.since_ms), described(link))
    return {
        "kind": "low_bandwidth",
        "since": moment_of(link.since_ms),
        "basis": "established",
        "evidence": (item,),
        "node": link.node,
        "device": link.device,
        "ratio": round(found.ratio, 3),
        "cause": Cause(link.cause_class, link.cause_code, link.meaning),  # type: ignore[arg-type]
    }


# --- of a job's attempts together ----------------------------------------------------------------------


def looping(job: JobRecord, attempt: Attempt, now_ms: int) -> tuple[Attempt, list[Emit]]:
    """Return the attempt with a crash loop told when it and those before it fail alike or hardly run; once a loop."""
    if not attempt.failed or "crash_loop" in attempt.findings:
        return attempt, []
    attempts = [a for a in job.attempts.values() if a.attempt <= attempt.attempt]
    loop = crash_loop([crash for a in attempts if (crash := _crash(a)) is not None])
    if loop is None or attempt.attempt != loop.attempts[-1]:
        return attempt, []
    if any(job.attempts[number].findings.get("crash_loop") == loop.since_ms for number in loop.attempts):
        return attempt, []
    attempt = replace(attempt, findings={**attempt.findings, "crash_loop": loop.since_ms})
    how = "the same way" if loop.same else "soon after their start"
    verdict = attempt.decision.verdict if attempt.decision is not None else None
    word = _word(attempt, loop.since_ms, f"attempts {loop.attempts[0]} to {loop.attempts[-1]} failed {how}")
    return attempt, _told(
        job,
        attempt,
        now_ms,
        kind="crash_loop",
        since=moment_of(loop.since_ms),
        basis=verdict.basis if verdict is not None else "supported",
        evidence=word + (tuple(e for e in verdict.evidence if e.role == "root")[:1] if verdict is not None else ()),
        node=verdict.culprit.node if verdict is not None else None,
        device=verdict.culprit.device if verdict is not None else None,
        cause=verdict.cause if verdict is not None else None,
    )


def _crash(attempt: Attempt) -> Crash | None:
    end = attempt.end
    if end is None:
        return None
    since_ms = attempt.started_ms or attempt.allocated_ms or end.at_ms
    return Crash(attempt.attempt, end.at_ms, max(0, end.at_ms - since_ms), end.outcome, how_it_failed(attempt))


# --- before a job runs ---------------------------------------------------------------------------------


def waiting_due_ms(job: JobRecord, limit_ms: int) -> int | None:
    """Return when a wait for lost capacity becomes a finding."""
    waiting = job.waiting
    if waiting is None or not waiting.lost_capacity or waiting.found or _is_over(job, waiting.attempt):
        return None
    return waiting.since_ms + limit_ms


def _is_over(job: JobRecord, number: int | None) -> bool:
    attempts = job.attempts.values() if number is None else [a for n, a in job.attempts.items() if n == number]
    return any(a.allocated_ms is not None or a.end is not None for a in attempts)


def waiting(job: JobRecord, limit_ms: int, now_ms: int) -> tuple[JobRecord, list[Emit]]:
    """Return the job with its wait for lost capacity told, once it is longer than the limit."""
    due_ms = waiting_due_ms(job, limit_ms)
    entry = job.waiting
    if due_ms is None or entry is None or now_ms < due_ms:
        return job, []
    number = entry.attempt or max(job.attempts, default=0) + 1
    attempt = job.attempts.get(number) or Attempt(number, cluster=job.cluster)
    job = replace(job, waiting=replace(entry, found=True))
    return job, _told(
        job,
        attempt,
        now_ms,
        kind="stuck_pending",
        since=moment_of(entry.since_ms),
        basis="supported",
        evidence=(EvidenceItem("symptom", "scheduler", job.job_id, moment_of(entry.at_ms), entry.said.line),),
        cause=Cause("platform", "platform.scheduler", "Waits for capacity that is out of order"),
    )
