"""What each record changes in what is known of a job; nothing is decided here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from faultlens.clock import SECOND_MS, ms_of
from faultlens.codec import Event, fingerprint
from faultlens.events import (
    JobAlive,
    JobAllocated,
    JobCheckpoint,
    JobEnded,
    JobLabelled,
    JobPending,
    JobProgress,
    JobResized,
    JobStarted,
    JobSubmitted,
    RankExited,
)
from faultlens.internal import CauseTold, NodeAnswer, NodeEvidence, NodeNews
from streams import goodput
from streams.findings import pending_names_lost_capacity
from streams.job_lifecycle import keeping, resizing
from streams.job_lifecycle.reading import Reader
from streams.job_lifecycle.record import (
    CLOCKS_DIFFER_MS,
    ENDS_SEEN_BYTES,
    OTHERS_MAX,
    REOPENED_MAX,
    Attempt,
    JobRecord,
    Label,
    Waiting,
    with_attempt,
)

_REPORTERS_WORDS: Final = (JobAllocated, JobStarted, JobAlive, JobProgress, JobCheckpoint, RankExited, JobResized)
Change = Callable[["Intake", JobRecord, Attempt, Event, Any, int], tuple[JobRecord, Attempt]]


class Intake:
    """Takes records in. The attempt at hand is returned beside the job, not yet put back into it."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader

    def attempt_of(self, job: JobRecord, event: Event) -> Attempt | None:
        """Return the attempt that the record speaks of, a new one where it is the first word; None: of the job."""
        number = getattr(event.data, "attempt", None)
        if number is None:
            return None
        return job.attempts.get(number) or Attempt(number, cluster=job.cluster)

    def take(self, job: JobRecord, attempt: Attempt, event: Event, now_ms: int) -> tuple[JobRecord, Attempt]:
        """Return job and attempt with the record's content known."""
        attempt = _heard(attempt, event, now_ms)
        return CHANGES[type(event.data)](self, job, attempt, event, event.data, now_ms)

    def submitted(self, job: JobRecord, event: Event, data: JobSubmitted) -> JobRecord:
        """Return the job with what was submitted; where two tell of it, the later word fills what is missing."""
        job = replace(
            job,
            cluster=data.cluster,
            user=data.user or job.user,
            team=data.team or job.team,
            name=data.name or job.name,
            workload=data.workload,
            gpus=data.gpus,
            nodes=data.nodes,
            replicas=data.replicas,
            image=data.image_digest or data.image or job.image,
            priority=job.priority if data.priority is None else data.priority,
            submitted_ms=event.time_ms if job.submitted_ms is None else min(job.submitted_ms, event.time_ms),
        )
        attempts = {number: resizing.refitted(job, attempt) for number, attempt in job.attempts.items()}
        return replace(job, attempts=attempts)

    def pending(self, job: JobRecord, event: Event, data: JobPending) -> JobRecord:
        """Return the job with the scheduler's reason for its waiting; a wait began with its first such reason."""
        lost = pending_names_lost_capacity(data.reason, data.message)
        since_ms = min(ms_of(data.since), event.time_ms)
        before = job.waiting
        if before is not None and before.lost_capacity == lost and before.attempt == data.attempt:
            since_ms = min(since_ms, before.since_ms)
        said = self.reader.of_texts((data.message, "message"), (data.reason, "reason"))
        line = f"{data.reason}: {data.message}" if data.message else data.reason
        waiting = Waiting(since_ms, data.reason, replace(said, line=line[:200]), lost, event.time_ms, data.attempt)
        return replace(job, waiting=waiting)


def _heard(attempt: Attempt, event: Event, now_ms: int) -> Attempt:
    """Return the attempt with its reporters' last word noted; a word after an end that we concluded reopens it."""
    if not isinstance(event.data, _REPORTERS_WORDS):
        return attempt
    closed, reopened = attempt.closed, attempt.reopened
    if closed is not None and event.time_ms > closed.at_ms:
        closed, reopened = None, min(reopened + 1, REOPENED_MAX)
    return replace(
        attempt,
        closed=closed,
        resting=attempt.resting and closed is attempt.closed,
        reopened=reopened,
        heard_ms=max(attempt.heard_ms, event.time_ms),
        heard_at_ms=max(attempt.heard_at_ms, now_ms),
    )


def _on_allocated(
    intake: Intake, job: JobRecord, attempt: Attempt, event: Event, data: JobAllocated, now_ms: int
) -> tuple[JobRecord, Attempt]:
    job = replace(
        job, cluster=job.cluster or data.cluster, user=job.user or data.user, image=data.image_digest or job.image
    )
    return job, resizing.allocated(job, attempt, event, data)


def _ledger(job: JobRecord, attempt: Attempt, at_ms: int) -> goodput.Ledger:
    """Return the attempt's ledger; what is heard before the allocation opens one, which the allocation corrects."""
    return attempt.ledger or resizing.opened_ledger(job, attempt, at_ms)


def _on_started(
    intake: Intake, job: JobRecord, attempt: Attempt, event: Event, data: JobStarted, now_ms: int
) -> tuple[JobRecord, Attempt]:
    at_ms = event.time_ms if attempt.started_ms is None else min(attempt.started_ms, event.time_ms)
    ledger = attempt.ledger and goodput.on_started(attempt.ledger, at_ms)
    return job, replace(attempt, started_ms=at_ms, ledger=ledger)


def _on_alive(
    intake: Intake, job: JobRecord, attempt: Attempt, event: Event, data: JobAlive, now_ms: int
) -> tuple[JobRecord, Attempt]:
    attempt = replace(attempt, alive_ms=int(data.interval_s * SECOND_MS))
    if data.stalled is None:
        return job, attempt
    since_ms, progress_ms = ms_of(data.stalled.since), _progress_ms(attempt)
    if attempt.stalled_ms is not None and progress_ms <= attempt.stalled_ms:
        since_ms = min(since_ms, attempt.stalled_ms)  # the same one, however its reporter dates it
    attempt = replace(attempt, ledger=attempt.ledger and goodput.on_stalled(attempt.ledger, since_ms))
    if progress_ms > event.time_ms:
        return job, attempt  # it went on since
    return job, replace(attempt, stalled_ms=since_ms, suspects=data.stalled.suspects[:64])


def _on_progress(
    intake: Intake, job: JobRecord, attempt: Attempt, event: Event, data: JobProgress, now_ms: int
) -> tuple[JobRecord, Attempt]:
    ledger = goodput.on_progress(_ledger(job, attempt, event.time_ms), event.time_ms, data.step, data.step_time_s)
    # A step that is only told again does not say that the job goes on.
    attempt = replace(attempt, ledger=ledger)
    if attempt.stalled_ms is not None and _progress_ms(attempt) > attempt.stalled_ms:
        attempt = replace(attempt, stalled_ms=None, suspects=())
    return job, attempt


def _progress_ms(attempt: Attempt) -> int:
    """Return when the newest step was complete; 0: none is known."""
    return 0 if attempt.ledger is None else goodput.last_progress_ms(attempt.ledger) or 0


def _on_checkpoint(
    intake: Intake, job: JobRecord, attempt: Attempt, event: Event, data: JobCheckpoint, now_ms: int
) -> tuple[JobRecord, Attempt]:
    ledger = goodput.on_checkpoint(
        _ledger(job, attempt, event.time_ms),
        event.time_ms,
        data.step,
        data.duration_s,
        ok=data.ok,
        restored=data.restored,
        blocking=data.blocking,
    )
    if data.restored and data.ok:
        job = _restored(job, attempt.attempt, data.step)
    return job, replace(attempt, ledger=ledger)


def _restored(job: JobRecord, number: int, step: int) -> JobRecord:
    """Return the job with earlier attempts told what of their work was kept, back to the one that did the step."""
    for earlier in sorted((n for n in job.attempts if n < number), reverse=True):
        attempt = job.attempts[earlier]
        if attempt.ledger is None:
            continue
        told = replace(attempt, ledger=goodput.on_next_restore(attempt.ledger, step))
        job = replace(job, attempts=with_attempt(job, told))
        if attempt.ledger.base_step < step:
            break
    return job


def _on_rank_exited(
    intake: Intake, job: JobRecord, attempt: Attempt, event: Event, data: RankExited, now_ms: int
) -> tuple[JobRecord, Attempt]:
    leaving = intake.reader.exit_of(event, data)
    if any((known.source, known.id) == (leaving.source, leaving.id) for known in attempt.exits):
        return job, attempt
    if leaving.first_ms < (attempt.allocated_ms or 0) - CLOCKS_DIFFER_MS:
        leaving = replace(leaving, first_ms=leaving.at_ms)  # the clock of its node is wrong
    first_ms = leaving.first_ms if attempt.first_exit_ms is None else min(attempt.first_exit_ms, leaving.first_ms)
    exits = keeping.exits_with(attempt, leaving)
    return job, replace(attempt, exits=exits, exits_total=attempt.exits_total + 1, first_exit_ms=first_ms)


def _on_resized(
    intake: Intake, job: JobRecord, attempt: Attempt, event: Event, data: JobResized, now_ms: int
) -> tuple[JobRecord, Attempt]:
    return job, resizing.resized(job, attempt, event, data)


def _on_ended(
    intake: Intake, job: JobRecord, attempt: Attempt, event: Event, data: JobEnded, now_ms: int
) -> tuple[JobRecord, Attempt]:
    mark = fingerprint(event.source, event.id)
    if mark in attempt.ends_seen:
        return job, attempt
    end = intake.reader.end_of(event, data, now_ms=now_ms)
    rank = "scheduler" if end.scheduler else "launcher"
    return job, replace(
        attempt,
        ends={**attempt.ends, rank: end},
        ends_seen=(attempt.ends_seen + mark)[-ENDS_SEEN_BYTES:],
        resting=False,
        restarts_with=data.restarts_with_attempt or attempt.restarts_with,
        preempted_by=data.preempted_by or attempt.preempted_by,
    )


def _on_labelled(
    intake: Intake, job: JobRecord, attempt: Attempt, event: Event, data: JobLabelled, now_ms: int
) -> tuple[JobRecord, Attempt]:
    label = Label(data, event.id, event.source, event.time_ms, now_ms)
    if data.loss is None:
        return job, replace(attempt, label=_later(attempt.label, label))
    losses = tuple(
        replace(loss, label=_later(loss.label, label)) if loss.number == data.loss else loss for loss in attempt.losses
    )
    return job, replace(attempt, losses=losses)


def _later(known: Label | None, told: Label) -> Label:
    """Return the last word of two; of the same time the one that came last."""
    return known if known is not None and known.at_ms > told.at_ms else told


def _on_evidence(
    intake: Intake, job: JobRecord, attempt: Attempt, event: Event, data: NodeEvidence, now_ms: int
) -> tuple[JobRecord, Attempt]:
    observations, overflow = keeping.observations_with(attempt, data.observations)
    told = {observation.code for observation in data.observations}
    others = [other for other in attempt.others if other.node != data.node or other.code not in told]
    others += data.others
    unsaid = data.pool is None or attempt.resting
    pools = attempt.pools if unsaid else {**attempt.pools, data.node: data.pool}
    return job, replace(
        attempt, observations=observations, others=tuple(others[-OTHERS_MAX:]), overflow=overflow, pools=pools
    )


def _on_answer(
    intake: Intake, job: JobRecord, attempt: Attempt, event: Event, data: NodeAnswer, now_ms: int
) -> tuple[JobRecord, Attempt]:
    if data.loss is None:
        return job, replace(attempt, answers={**attempt.answers, data.node: data})
    losses = tuple(
        replace(loss, answers={**loss.answers, data.node: data}) if loss.number == data.loss else loss
        for loss in attempt.losses
    )
    return job, replace(attempt, losses=losses)


def _on_news(
    intake: Intake, job: JobRecord, attempt: Attempt, event: Event, data: NodeNews, now_ms: int
) -> tuple[JobRecord, Attempt]:
    return job, replace(attempt, news={**attempt.news, data.node: data})


def _on_cause_told(
    intake: Intake, job: JobRecord, attempt: Attempt, event: Event, data: CauseTold, now_ms: int
) -> tuple[JobRecord, Attempt]:
    return job, replace(attempt, preempted_for=data.cause)


CHANGES: Final[dict[type, Change]] = {
    JobAllocated: _on_allocated,
    JobStarted: _on_started,
    JobAlive: _on_alive,
    JobProgress: _on_progress,
    JobCheckpoint: _on_checkpoint,
    RankExited: _on_rank_exited,
    JobResized: _on_resized,
    JobEnded: _on_ended,
    JobLabelled: _on_labelled,
    NodeEvidence: _on_evidence,
    NodeAnswer: _on_answer,
    NodeNews: _on_news,
    CauseTold: _on_cause_told,
}
