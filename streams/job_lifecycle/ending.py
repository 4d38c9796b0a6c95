"""Ends that nobody reports: when the pipeline closes an attempt by itself."""

from __future__ import annotations

from msgspec.structs import replace

from faultlens.internal import NodeNews
from streams.attribution import End
from streams.job_lifecycle.record import (
    MISSED_ALIVES,
    NEXT_ATTEMPT_GRACE_MS,
    NO_ALIVE_GRACE_MS,
    REPORTER_LOST_MS,
    Attempt,
    JobRecord,
)


def missed_ms(attempt: Attempt, blind_ms: int) -> int | None:
    """Return when the attempt's reporters have missed three words; None: it has ended, or they never spoke.

    Each time that they had only been slow, twice as long is waited for them.
    """
    if attempt.end is not None or not attempt.heard_at_ms:
        return None
    if attempt.alive_ms is None:
        silent_since_ms, usual_ms = max(attempt.heard_at_ms, attempt.allocated_ms or 0, blind_ms), NO_ALIVE_GRACE_MS
    else:
        silent_since_ms, usual_ms = max(attempt.heard_at_ms, blind_ms), MISSED_ALIVES * attempt.alive_ms
    return silent_since_ms + max(usual_ms, min(usual_ms << attempt.reopened, REPORTER_LOST_MS))


def due_ms(job: JobRecord, attempt: Attempt, blind_ms: int = 0) -> int | None:
    """Return when the attempt is to be closed if nothing is heard of it until then; None: nothing says so.

    `blind_ms`: until when nobody was there to hear.
    """
    silent_ms = missed_ms(attempt, blind_ms)
    if silent_ms is None:
        return None
    reasons = [max(news.at_ms, news.told_ms) for news in attempt.news.values() if _still_concerns(attempt, news)]
    following_ms = None if job.workload == "inference" else _followed_ms(job, attempt)
    if following_ms is not None:
        reasons.append(following_ms + NEXT_ATTEMPT_GRACE_MS)
    if attempt.alive_ms is not None:
        reasons.append(max(attempt.heard_at_ms, blind_ms) + REPORTER_LOST_MS)
    return max(silent_ms, min(reasons)) if reasons else None


def _followed_ms(job: JobRecord, attempt: Attempt) -> int | None:
    """Return when the next attempt was allocated; one between them may have got nothing, or never been heard of."""
    later = (a for number, a in job.attempts.items() if number > attempt.attempt)
    return min((a.allocated_ms for a in later if a.allocated_ms is not None), default=None)


def _still_concerns(attempt: Attempt, news: NodeNews) -> bool:
    """Return whether what befell the node befell one that is held, and not only one that was lost and outlived."""
    outlived = any(
        loss.at_ms >= news.at_ms and any(slot.node == news.node for slot in loss.lost) for loss in attempt.losses
    )
    return news.node in attempt.slots and not outlived


def closed(job: JobRecord, attempt: Attempt, now_ms: int, blind_ms: int) -> Attempt:
    """Return the attempt closed as failed at its reporters' last word, when that is due.

    It counts as closed since it was due, however far this lane has come by now: what had arrived by then is the same.
    """
    due = due_ms(job, attempt, blind_ms)
    if due is None or now_ms < due:
        return attempt
    at_ms = max(attempt.heard_ms, attempt.allocated_ms or 0)
    end = End(
        id=f"{job.job_id}/{attempt.attempt}/end_not_reported",
        source="bridge/faultlens",
        at_ms=at_ms,
        arrived_ms=due,
        outcome="failed",
        reason="end_not_reported",
        unreported=True,
    )
    return replace(attempt, closed=end)
