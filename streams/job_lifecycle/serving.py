"""How many replicas of an inference job are ready, of those that are wanted, for `serving_capacity`."""

from __future__ import annotations

from collections import Counter
from typing import Final

from msgspec.structs import replace

from faultlens.clock import DAY_MS, HOUR_MS
from streams.goodput import OVERHEAD
from streams.job_lifecycle.counting import started_ms
from streams.job_lifecycle.record import Attempt, JobRecord, Serving, cause_of
from streams.processor import Emit
from streams.samples import Place, sample_emits, serving_samples

# Whoever restarts replicas does so within minutes (Kubernetes backs off for five at most). With none left for longer,
# nobody wants the service any more, unless its next one waits to be placed.
GIVEN_UP_MS: Final = HOUR_MS
WAITS_MS: Final = DAY_MS
TOLD_EVERY_MS: Final = HOUR_MS
_BY_WILL: Final = frozenset({"succeeded", "cancelled"})


def served(job: JobRecord, learnt_ms: int) -> tuple[JobRecord, list[Emit]]:
    """Return the job with its serving capacity told up to `learnt_ms`, if that is due or has changed.

    It is told as it was known: what the world tells late counts from when it is heard, and what a node's lane says
    from when that lane learnt it, however late it is read here. No moment is told twice: what is told already stays.
    """
    if job.workload != "inference" or not job.cluster:
        return job, []
    now_ms = learnt_ms if job.serving is None else max(learnt_ms, job.serving.since_ms)
    before, after = job.serving, _serving(job, now_ms)
    if before is None:
        return replace(job, serving=after), []
    same = replace(after, since_ms=before.since_ms) == before
    if same and (now_ms - before.since_ms < TOLD_EVERY_MS or not before.wanted):
        return job, []
    return replace(job, serving=after), _told(job, before, now_ms)


def told_to_the_end(job: JobRecord, now_ms: int) -> tuple[JobRecord, list[Emit]]:
    """Return the job with its serving capacity told up to `now_ms`, however little time that is."""
    if job.serving is None:
        return job, []
    return replace(job, serving=replace(job.serving, since_ms=now_ms)), _told(job, job.serving, now_ms)


def due_ms(job: JobRecord) -> int | None:
    """Return when the capacity is to be told again; None: nothing is wanted, or it is no service."""
    serving = job.serving
    if serving is None or not serving.wanted:
        return None
    until_ms, next_ms = _until_ms(job), serving.since_ms + TOLD_EVERY_MS
    return next_ms if until_ms is None else min(until_ms, next_ms)


def _told(job: JobRecord, serving: Serving, now_ms: int) -> list[Emit]:
    place = Place(job.cluster, team=job.team, workload=job.workload)
    samples = serving_samples(place, serving.since_ms, now_ms, ready=serving.ready, missing=serving.missing)
    return sample_emits(samples, about=f"{job.job_id}/serving", time_ms=now_ms)


def _serving(job: JobRecord, now_ms: int) -> Serving:
    wanted = _wanted(job, now_ms)
    ready = sum(attempt.end is None and started_ms(attempt) is not None for attempt in job.attempts.values())
    ready = min(ready, wanted)
    return Serving(now_ms, ready, _missing(job, wanted - ready))


def _wanted(job: JobRecord, now_ms: int) -> int:
    """Return how many replicas are wanted; from `_until_ms` on none are."""
    until_ms = _until_ms(job)
    return max(1, job.replicas or 1) if until_ms is None or now_ms < until_ms else 0


def _until_ms(job: JobRecord) -> int | None:
    """Return until when a service without a replica is wanted: not beyond an end by will; None: it has replicas."""
    ends = [attempt.end for attempt in job.attempts.values() if attempt.end is not None]
    if len(ends) < len(job.attempts) or not ends:
        return None
    last = max(ends, key=lambda end: end.at_ms)
    if last.outcome in _BY_WILL:
        return last.at_ms
    waits = job.waiting is not None and job.waiting.at_ms > last.at_ms
    return job.waiting.at_ms + WAITS_MS if job.waiting is not None and waits else last.at_ms + GIVEN_UP_MS


def _missing(job: JobRecord, count: int) -> dict[str, int]:
    """Return the missing replicas by what the last ones to end failed of; `overhead`: of nothing."""
    if count <= 0:
        return {}
    ended = sorted((a for a in job.attempts.values() if a.end is not None), key=_ended_ms, reverse=True)
    charged = Counter(_charged(attempt) for attempt in ended[:count])
    charged[OVERHEAD] += count - min(count, len(ended))
    return {name: number for name, number in sorted(charged.items()) if number}


def _ended_ms(attempt: Attempt) -> tuple[int, int]:
    return attempt.end.at_ms if attempt.end is not None else 0, attempt.attempt


def _charged(attempt: Attempt) -> str:
    cause = cause_of(attempt)
    return OVERHEAD if cause is None else cause.cause_class
