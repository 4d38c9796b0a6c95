"""The job state machine: what launchers, schedulers and nodes say in; verdicts, ledger, samples and findings out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, cast

from msgspec import Struct
from msgspec.structs import replace

from faultlens import topics
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
    JobSubmitted,
    RankExited,
)
from faultlens.internal import CauseAsked, CauseTold, NodeAnswer, NodeEvidence, NodeNews
from faultlens.signatures import SignatureSet
from streams.attribution import Precision
from streams.context import Context
from streams.job_lifecycle import (
    alarming,
    bookkeeping,
    counting,
    ending,
    noticing,
    preempting,
    resting,
    serving,
    telling,
)
from streams.job_lifecycle.deciding import Judge, is_settled
from streams.job_lifecycle.gathering import stub_of
from streams.job_lifecycle.intake import CHANGES, Intake
from streams.job_lifecycle.reading import Reader
from streams.job_lifecycle.record import (
    AMENDED_FOR_MS,
    ATTEMPTS_MAX,
    SEEN_BYTES,
    WINDOW_AFTER_MS,
    Attempt,
    JobRecord,
    with_attempt,
)
from streams.job_lifecycle.repeating import brought_along
from streams.processor import Effects, Emit

_ASKED_FOR: Final = (NodeEvidence, NodeAnswer, NodeNews, CauseTold)
_INTERNAL: Final = (*_ASKED_FOR, CauseAsked)
_OF_THE_JOB: Final = (JobSubmitted, JobPending, CauseAsked)
_GOING_ON: Final = frozenset({JobAlive, JobProgress})
_CONCERN_EARLIER: Final = (JobAllocated, JobCheckpoint, JobLabelled)
_BY_COUNTS: Final = frozenset({"black_hole_node", "different_users_fail_here"})
_USUAL_LIMITS: Final = counting.StartLimits()


class JobLifecycleProcessor:
    """Steps one job's record. Key: the job id."""

    name = "job"
    topics = (topics.JOB_EVENTS, topics.EVIDENCE)
    state_type = JobRecord
    survey_every_ms: int | None = None
    surveys_while_idle = False

    def __init__(
        self,
        signatures: SignatureSet,
        precision: Precision,
        catalogue_version: str,
        limits: counting.StartLimits = _USUAL_LIMITS,
    ) -> None:
        self._limits = limits
        self._intake = Intake(Reader(signatures))
        self._judge = Judge(precision, catalogue_version)

    def key_of(self, event: Event) -> str | None:
        """Return the job id."""
        return event.subject if type(event.data) in CHANGES or isinstance(event.data, _OF_THE_JOB) else None

    def on_event(self, event: Event, now_ms: int, context: Context, state: Struct | None) -> Effects:
        """Return what follows from one record about the job."""
        job = cast("JobRecord", state) if state is not None else JobRecord(job_id=event.subject)
        if isinstance(event.data, _ASKED_FOR) and event.data.attempt not in job.attempts:
            # The attempt told the node of itself, or asked the other job: it was forgotten since.
            return Effects(None) if state is None else Effects(job, (), self._next_wake(job, now_ms))
        if not isinstance(event.data, _INTERNAL):
            mark = fingerprint(event.source, event.id)
            if mark in job.seen:
                return Effects(job, (), self._next_wake(job, now_ms), duplicate=True)
            job = replace(job, seen=(job.seen + mark)[-SEEN_BYTES:])
        if isinstance(event.data, JobSubmitted):
            known, job = job, self._intake.submitted(job, event, event.data)
            emits = counting.moved(known, job, now_ms)
            return self._followed(known, job, list(job.attempts), emits, context, now_ms)
        if isinstance(event.data, JobPending):
            known, job = job, self._intake.pending(job, event, event.data)
            job, emits = noticing.waiting(job, self._limits.pending_ms, now_ms)
            return self._followed(known, job, list(job.attempts), emits, context, now_ms)
        if isinstance(event.data, CauseAsked):
            job, emits = preempting.remembered(job, event.data, now_ms)
            return Effects(job, emits, self._next_wake(job, now_ms))
        return self._on_attempt(job, event, context, now_ms)

    def _on_attempt(self, job: JobRecord, event: Event, context: Context, now_ms: int) -> Effects:
        attempt = self._intake.attempt_of(job, event)
        if attempt is None or (attempt.attempt not in job.attempts and _comes_too_late(job, event, attempt, now_ms)):
            wake_ms = self._next_wake(job, now_ms)
            return Effects(None if wake_ms is None and not job.attempts else job, (), wake_ms)
        known, before = job, attempt
        job, attempt = self._intake.take(job, attempt, event, now_ms)
        moved = counting.moved_with(known, before, job, attempt, now_ms)
        if _is_one_of_many(before, attempt, event):
            job = replace(job, attempts=with_attempt(job, attempt))
            return Effects(job, moved, self._next_wake(job, now_ms))
        attempt, emits = _told(job, before, attempt, event, now_ms) if _tells(before, event) else (attempt, [])
        emits = [*moved, *emits]
        attempt, findings = noticing.while_running(job, attempt, event, now_ms)
        job = replace(job, attempts=with_attempt(job, attempt))
        if not findings and _only_goes_on(job, before, attempt, event):
            return Effects(job, (), self._next_wake(job, now_ms))
        touched = [attempt.attempt]
        if isinstance(event.data, _CONCERN_EARLIER):
            touched += [n for n in job.attempts if not _at_rest(known, job.attempts[n], context, now_ms)]
        # Nodes' lanes say when they learnt a thing; other records are about what happens now.
        learnt_ms = min(event.time_ms, now_ms) if isinstance(event.data, _INTERNAL) else now_ms
        return self._followed(known, job, touched, emits + findings, context, now_ms, learnt_ms=learnt_ms)

    def on_time(self, key: str, now_ms: int, context: Context, state: Struct) -> Effects:
        """Return what is due: ends nobody reported, final verdicts, words sent again, hourly ledgers."""
        known = cast("JobRecord", state)
        awake = resting.rested(known, now_ms)
        if awake is None:
            return Effects(None)
        job, emits = noticing.waiting(awake, self._limits.pending_ms, now_ms)
        for attempt in list(job.attempts.values()):
            due = bookkeeping.due_ms(attempt)
            if due is not None and due <= now_ms:
                attempt, records = bookkeeping.written(job, attempt, now_ms)  # noqa: PLW2901
                attempt, found = noticing.hang(job, attempt, now_ms)  # noqa: PLW2901
                emits += [*records, *found]
                job = replace(job, attempts=with_attempt(job, attempt))
        touched = [n for n in job.attempts if not _at_rest(known, job.attempts[n], context, now_ms)]
        return self._followed(known, job, touched, emits, context, now_ms)

    def survey(self, now_ms: int, states: Iterable[tuple[str, Struct]], lane: int) -> Sequence[Emit]:
        """Return nothing: jobs are not looked at together."""
        return ()

    def on_end(self, key: str, now_ms: int, context: Context, state: Struct) -> Effects:
        """Return the verdicts that only waited to be looked at, and the ledgers of running attempts up to the end."""
        job, emits = self._overdue(cast("JobRecord", state), now_ms, context)
        for attempt in list(job.attempts.values()):
            if attempt.end is None and attempt.ledger is not None:
                attempt, records = bookkeeping.written(job, attempt, now_ms)  # noqa: PLW2901
                emits += records
                job = replace(job, attempts=with_attempt(job, attempt))
        job, capacity = serving.told_to_the_end(job, now_ms)
        return Effects(job, [*emits, *capacity], self._next_wake(job, now_ms))

    def _overdue(self, job: JobRecord, now_ms: int, context: Context) -> tuple[JobRecord, list[Emit]]:
        """Return the job with what was to be final by now looked at: all may have answered since it was the last time.

        Where all lanes share a clock nothing is.
        """
        overdue = [number for number, attempt in job.attempts.items() if _is_overdue(attempt, now_ms)]
        if not overdue:
            return job, []
        effects = self._followed(job, job, overdue, [], context, now_ms)
        return cast("JobRecord", effects.state), list(effects.emits)

    # --- what every step ends with ---------------------------------------------------------------------

    def _followed(
        self,
        known: JobRecord,
        job: JobRecord,
        touched: list[int],
        emits: list[Emit],
        context: Context,
        now_ms: int,
        *,
        learnt_ms: int | None = None,
    ) -> Effects:
        """Return the effects with the ends, verdicts, ledgers and samples of the touched attempts up to date.

        `known` is the job before the step: what of it is the same object still is as it was left. How an attempt
        failed bears on the verdicts of those after it, and on what their recovery is charged to. `learnt_ms`: since
        when what the step is about was known to whoever told us (None: since now).
        """
        before, due = job, set(touched)
        job, more = self._looked_at(known, job, due, context, now_ms)
        if len(job.attempts) > 1 and brought_along(job) != brought_along(known):
            job, others = self._looked_at(known, job, job.attempts.keys() - due, context, now_ms)
            more += others
        emits = [*emits, *more]
        job, capacity = serving.served(resting.bounded(job), now_ms if learnt_ms is None else learnt_ms)
        emits = [*emits, *capacity]
        emits = [*emits, *preempting.answered(before, job, now_ms)] if job.asked else emits
        return Effects(job, alarming.alarmed(emits), self._next_wake(job, now_ms))

    def _looked_at(
        self, known: JobRecord, job: JobRecord, due: set[int], context: Context, now_ms: int
    ) -> tuple[JobRecord, list[Emit]]:
        """Return the job with these attempts up to date, and those after one of which more is known than before."""
        emits: list[Emit] = []
        for number in [*job.attempts]:
            if number not in due:
                continue
            stale = job.attempts[number]
            attempt, more = self._up_to_date(known.attempts.get(number), job, stale, context, now_ms)
            if attempt is not stale and stub_of(attempt) != stub_of(stale):
                due.update(later for later in job.attempts if later > number)
            job = replace(job, attempts=with_attempt(job, attempt))
            attempt, found = noticing.looping(job, attempt, now_ms)
            if found:
                job = replace(job, attempts=with_attempt(job, attempt))
            emits += [*more, *found]
        return job, emits

    def _up_to_date(
        self, known: Attempt | None, job: JobRecord, attempt: Attempt, context: Context, now_ms: int
    ) -> tuple[Attempt, list[Emit]]:
        if attempt.resting:
            attempt, emits = self._judge.on_attempt(job, attempt, context, now_ms)
            attempt, samples = counting.counted(job, attempt, self._limits, now_ms)
            return attempt, emits + samples
        running, attempt = attempt, ending.closed(job, attempt, now_ms, context.blind_ms)
        emits = [] if attempt is running else bookkeeping.queued_after(job, attempt, now_ms)
        losses = []
        for loss in attempt.losses:
            loss, told = telling.lost(job, attempt, loss, now_ms)  # noqa: PLW2901
            loss, decided = self._judge.on_loss(job, attempt, loss, context, now_ms)  # noqa: PLW2901
            losses.append(loss)
            emits += told + decided
        if losses:
            attempt = replace(attempt, losses=tuple(losses))
        if attempt.end is None and attempt.decision is None and not (attempt.ledger and attempt.ledger.closed):
            attempt = bookkeeping.balanced(job, attempt) if losses else attempt
            attempt, samples = counting.counted(job, attempt, self._limits, now_ms)
            return attempt, emits + samples
        attempt, verdicts = self._judge.on_attempt(job, attempt, context, now_ms)
        attempt, words = telling.released(job, attempt, now_ms, _known(attempt))
        attempt = bookkeeping.balanced(job, attempt)
        attempt, records = bookkeeping.written_anew(known, job, attempt, now_ms)
        attempt, samples = counting.counted(job, attempt, self._limits, now_ms)
        attempt = resting.settled_ledger(attempt)
        return attempt, [*emits, *verdicts, *words, *records, *samples]

    def _due(self, job: JobRecord, attempt: Attempt, now_ms: int) -> list[int]:
        """Return the times at which something about the attempt is due."""
        if attempt.end is None:
            due = [
                ending.due_ms(job, attempt),
                bookkeeping.due_ms(attempt),
                counting.due_ms(job, attempt, self._limits),
                resting.due_ms(attempt),
            ]
        else:
            due = [resting.due_ms(attempt)]
        for loss in attempt.undecided:
            answered = all(slot.node in loss.answers for slot in loss.lost)
            due.append(_final_due_ms(loss.at_ms + WINDOW_AFTER_MS, loss.sent_ms, answered=answered, now_ms=now_ms))
        if attempt.failed and not is_settled(attempt):
            answered = not telling.unanswered(attempt)
            due.append(_final_due_ms(attempt.closes_ms, attempt.sent_ms, answered=answered, now_ms=now_ms))
        return [at for at in due if at is not None]

    def _next_wake(self, job: JobRecord, now_ms: int) -> int | None:
        wakes = [due for a in job.attempts.values() for due in self._due(job, a, now_ms)]
        asked = preempting.due_ms(job)
        if asked is not None:
            wakes.append(asked)
        others = (
            noticing.waiting_due_ms(job, self._limits.pending_ms),
            resting.unplaced_due_ms(job),
            serving.due_ms(job),
        )
        wakes += [due_ms for due_ms in others if due_ms is not None]
        return min(wakes, default=None)


def _final_due_ms(closes_ms: int, sent_ms: int, *, answered: bool, now_ms: int) -> int:
    """Return when a verdict that is not final yet may become so, or its nodes are to be asked again."""
    if now_ms < closes_ms:
        return closes_ms
    return telling.looked_again_ms(closes_ms, now_ms) if answered else telling.sent_again_ms(sent_ms, closes_ms)


def _is_overdue(attempt: Attempt, now_ms: int) -> bool:
    """Return whether a verdict on the attempt or a loss of it is not final though its window has closed."""
    if attempt.failed and not is_settled(attempt) and attempt.closes_ms <= now_ms:
        return True
    return any(loss.at_ms + WINDOW_AFTER_MS <= now_ms for loss in attempt.undecided)


def _comes_too_late(job: JobRecord, event: Event, attempt: Attempt, now_ms: int) -> bool:
    """Return whether an attempt that is not known is one that was forgotten: nothing would ever end it again."""
    opens = isinstance(event.data, JobAllocated | JobEnded | JobLabelled)
    return _forgotten(job, attempt.attempt) or (not opens and event.time_ms < now_ms - AMENDED_FOR_MS)


def _forgotten(job: JobRecord, number: int) -> bool:
    """Return whether the attempt is older than what is kept whole, or was folded from between them."""
    older = len(job.attempts) >= ATTEMPTS_MAX and number < min(job.attempts)
    return older or number in job.folded or number in job.stubs


def _tells(before: Attempt, event: Event) -> bool:
    """Return whether others may have to be told of what the record makes known."""
    return type(event.data) not in _GOING_ON or before.closed is not None


def _told(job: JobRecord, before: Attempt, attempt: Attempt, event: Event, now_ms: int) -> tuple[Attempt, list[Emit]]:
    """Return the attempt with what the record makes known told to nodes and other jobs, and its ledger written."""
    emits: list[Emit] = []
    if isinstance(event.data, JobAllocated | JobResized):
        new = [slot for node, slot in attempt.slots.items() if before.slots.get(node) != slot]
        emits += telling.held(job, attempt, new, now_ms)
        attempt = replace(attempt, told=None) if new or isinstance(event.data, JobResized) else attempt
    if isinstance(event.data, JobResized):
        gone = [slot for node, slot in before.slots.items() if node not in {*attempt.slots, *attempt.gone}]
        emits += telling.left(job, attempt, gone, event.time_ms, now_ms)
    if before.closed is not None and attempt.closed is None and attempt.end is None:
        emits += telling.held(job, attempt, list(attempt.slots.values()), now_ms)
    if isinstance(event.data, JobEnded):
        emits += preempting.asking(job, attempt, now_ms)
    if before.allocated_ms is None and attempt.allocated_ms is not None:
        emits += bookkeeping.queued(job, attempt, now_ms)
    if isinstance(event.data, JobCheckpoint):
        attempt, records = bookkeeping.written(job, attempt, now_ms)
        emits += records
    return attempt, emits


def _is_one_of_many(before: Attempt, attempt: Attempt, event: Event) -> bool:
    """Return whether nothing follows from the record by itself: a node's pool, an answer before the last one that is
    waited for, or an exit after the end that is only counted. A gang's thousands would each be judged with all before.
    """
    if isinstance(event.data, NodeEvidence):
        return not event.data.observations
    if isinstance(event.data, NodeAnswer):
        return event.data.loss is None and not is_settled(attempt) and bool(telling.unanswered(attempt))
    if isinstance(event.data, RankExited):
        known = (before.exits, before.first_exit_ms, before.closed)
        return attempt.end is not None and known == (attempt.exits, attempt.first_exit_ms, attempt.closed)
    return False


def _only_goes_on(job: JobRecord, before: Attempt, attempt: Attempt, event: Event) -> bool:
    """Return whether a running attempt only said that it still runs, or how far it is: most words of jobs do.

    It started, that was counted, and it has nothing behind it that could change: nothing follows until something is
    due, and that its reporter spoke just now puts off.
    """
    return (
        type(event.data) in _GOING_ON
        and attempt.started_ms is not None
        and "job_start" in attempt.counted
        and attempt.end is None
        and before.closed is None
        and attempt.decision is None
        and not (attempt.losses or attempt.resting or job.asked or job.workload == "inference")
        and attempt.alive_ms != 0
    )


def _at_rest(known: JobRecord, attempt: Attempt, context: Context, now_ms: int) -> bool:
    """Return whether nothing can follow for an attempt: it ended, is as the last step left it, nobody announced news
    since, and its window is open yet or its verdict final. What those before it and the job's other ends tell of it is
    seen to when they change.
    """
    if attempt is not known.attempts.get(attempt.attempt) or attempt.end is None or attempt.losses:
        return False
    seen = attempt.context_seen == context.version
    return not attempt.failed or (seen and (now_ms < attempt.closes_ms or is_settled(attempt)))


def _known(attempt: Attempt) -> telling.Known:
    """Return what is known of why the attempt failed."""
    decision = attempt.decision
    if not attempt.failed or decision is None:
        return telling.Known()
    verdict = decision.verdict
    # What rests on the nodes' counts must not change these in turn.
    named = verdict.culprit.node if verdict.rule not in _BY_COUNTS else None
    return telling.Known(verdict.cause.code, verdict.basis == "assumed", named or "")
