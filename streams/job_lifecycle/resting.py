"""What becomes of attempts that nothing can change any more: they shrink, and are forgotten in the end."""

from __future__ import annotations

from msgspec.structs import replace

from streams import goodput
from streams.job_lifecycle import preempting
from streams.job_lifecycle.gathering import stub_of
from streams.job_lifecycle.record import (
    AMENDED_FOR_MS,
    ATTEMPTS_MAX,
    STUB_KEPT_MS,
    STUBS_MAX,
    UNPLACED_KEPT_MS,
    Attempt,
    JobRecord,
)


def due_ms(attempt: Attempt) -> int | None:
    """Return when the attempt may shrink, or be forgotten; None: it has not ended, or waits for its final verdict.

    One that somebody labelled and that nobody ever reported is forgotten as well: a name may have been mistyped.
    """
    if attempt.label is not None and attempt.end is None and not attempt.heard_at_ms:
        return attempt.label.arrived_ms + STUB_KEPT_MS
    if attempt.end is None or not _settled(attempt):
        return None
    return attempt.closes_ms + (STUB_KEPT_MS if attempt.resting else AMENDED_FOR_MS)


def _settled(attempt: Attempt) -> bool:
    if attempt.undecided:
        return False
    return not attempt.failed or (attempt.decision is not None and attempt.decision.finalised)


def rested(job: JobRecord, now_ms: int) -> JobRecord | None:
    """Return the job without what can no longer matter at `now_ms`; None: nothing of it can.

    For a week evidence may amend a verdict. After that only a label can: of a failed attempt the verdict stays, of
    others nothing.
    """
    attempts = {}
    for number, attempt in job.attempts.items():
        due = due_ms(attempt)
        if due is None or now_ms < due:
            attempts[number] = attempt
        elif not attempt.resting and attempt.decision is not None:
            attempts[number] = _slim(attempt)
    asked = preempting.unforgotten(job, now_ms)
    unplaced_ms = unplaced_due_ms(job)
    if unplaced_ms is not None and now_ms >= unplaced_ms:
        return None
    if (
        asked == job.asked
        and attempts.keys() == job.attempts.keys()
        and all(attempts[n] is job.attempts[n] for n in attempts)
    ):
        return job
    if not attempts and not asked:
        return None
    return replace(job, attempts=attempts, asked=asked, seen=job.seen if attempts else b"")


def unplaced_due_ms(job: JobRecord) -> int | None:
    """Return when a job is forgotten that waits and was never given anything; None: it was."""
    words_ms = [job.submitted_ms or 0, job.waiting.at_ms if job.waiting is not None else 0]
    if job.attempts or job.asked or not any(words_ms):
        return None
    return max(words_ms) + UNPLACED_KEPT_MS


def _slim(attempt: Attempt) -> Attempt:
    """Return an attempt with its end, verdict and counts, and nothing that they rested on."""
    kept = list(attempt.slots.items())[:8]
    return replace(
        attempt,
        resting=True,
        slots={node: replace(slot, devices=None, ranks=None) for node, slot in kept},
        pools={} if attempt.pool is None else dict.fromkeys(dict(kept) or [*attempt.pools][:1], attempt.pool),
        ledger=None,
        exits=attempt.exits[:1],
        observations={},
        others=(),
        answers={},
        news={},
        slow=(),
    )


def settled_ledger(attempt: Attempt) -> Attempt:
    """Return an attempt that ended well with its ledger's evidence laid down as pieces of time.

    Of a failed one the steps are still asked for: evidence that comes late must be held against them.
    """
    ledger = attempt.ledger
    if ledger is None or not ledger.closed or attempt.failed:
        return attempt
    return replace(attempt, ledger=goodput.rested(ledger))


def bounded(job: JobRecord) -> JobRecord:
    """Return the job with its oldest settled attempts folded into stubs, beyond the limit of what is kept whole."""
    if len(job.attempts) <= ATTEMPTS_MAX:
        return job
    attempts, stubs = dict(job.attempts), dict(job.stubs)
    for number, attempt in job.attempts.items():
        if len(attempts) <= ATTEMPTS_MAX:
            break
        if attempt.end is None or not _settled(attempt):
            continue  # a replica that runs for months keeps nothing of those beside it
        stub = stub_of(attempt)
        if stub is not None:
            stubs[number] = stub
        del attempts[number]
    kept = dict(sorted(stubs.items())[-STUBS_MAX:])
    oldest = min(attempts, default=0)
    folded = sorted(number for number in {*job.folded, *(job.attempts.keys() - attempts.keys())} if number > oldest)
    return replace(job, attempts=attempts, stubs=kept, folded=tuple(folded[-STUBS_MAX:]))
