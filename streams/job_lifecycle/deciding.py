"""Verdicts and their revisions: provisional at the end, final when all nodes have answered, then amended."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from faultlens import topics
from faultlens.clock import moment_of
from faultlens.codec import stable_id
from faultlens.events import JobAttributed, Lost, Status
from streams import goodput
from streams.attribution import End, Facts, Precision, Verdict, attribute
from streams.context import Context
from streams.job_lifecycle.gathering import facts_of, facts_of_loss
from streams.job_lifecycle.record import (
    AMENDED_FOR_MS,
    WINDOW_AFTER_MS,
    Attempt,
    Decision,
    JobRecord,
    Loss,
)
from streams.job_lifecycle.telling import unanswered
from streams.processor import Emit

_NO_EMITS: Final[list[Emit]] = []


class Judge:
    """Makes verdicts. `catalogue` is the version that every verdict carries."""

    def __init__(self, precision: Precision, catalogue: str) -> None:
        self._precision = precision
        self._catalogue = catalogue

    # --- an attempt's end ------------------------------------------------------------------------------

    def on_attempt(self, job: JobRecord, attempt: Attempt, context: Context, now_ms: int) -> tuple[Attempt, list[Emit]]:
        """Return the attempt with the verdict that is right now, and the revisions that say so."""
        if attempt.failed and attempt.context_seen != context.version:
            attempt = replace(attempt, context_seen=context.version)
        end = attempt.end
        if end is None or not attempt.failed:
            return self._withdrawn(attempt, now_ms)
        emits: list[Emit] = []
        if not is_settled(attempt) and _complete(attempt, context, now_ms):
            attempt, emits = self._final(job, attempt, end, context, now_ms)
        if is_settled(attempt) and now_ms >= attempt.closes_ms + AMENDED_FOR_MS and attempt.label is None:
            return attempt, emits
        attempt, more = self._revised(job, attempt, end, context, now_ms)
        return attempt, emits + more

    def _withdrawn(self, attempt: Attempt, now_ms: int) -> tuple[Attempt, list[Emit]]:
        decision = attempt.decision
        if decision is None or decision.withdrawn:
            return attempt, _NO_EMITS
        verdict = replace(decision.verdict, revision=decision.verdict.revision + 1, status="withdrawn")
        withdrawn = Decision(verdict, final_once=decision.final_once, withdrawn=True)
        return replace(attempt, decision=withdrawn), [_published(verdict, now_ms)]

    def _final(
        self, job: JobRecord, attempt: Attempt, end: End, context: Context, now_ms: int
    ) -> tuple[Attempt, list[Emit]]:
        """Return the attempt with its final verdict, which rests on what had arrived when the window closed."""
        facts = facts_of(job, attempt, end, context, by_ms=attempt.closes_ms)
        before = attempt.decision
        status: Status = "amended" if before is not None and before.final_once else "final"
        verdict = self._verdict(job, attempt, facts, status, before)
        decision = Decision(verdict, finalised=True, final_once=True)
        return replace(attempt, decision=decision), [_published(verdict, now_ms)]

    def _revised(
        self, job: JobRecord, attempt: Attempt, end: End, context: Context, now_ms: int
    ) -> tuple[Attempt, list[Emit]]:
        """Return the attempt with a new revision if what is known by now changes the answer."""
        before = attempt.decision
        settled = is_settled(attempt)
        if settled and before is not None and before.verdict.rule == "labelled_by_a_person" and _as_labelled(attempt):
            return attempt, _NO_EMITS
        facts = facts_of(job, attempt, end, context, by_ms=None)
        verdict = self._verdict(job, attempt, facts, "amended" if settled else "provisional", before)
        if before is not None and not before.withdrawn and _same(before.verdict, verdict):
            return attempt, _NO_EMITS
        decision = Decision(verdict, finalised=settled, final_once=before is not None and before.final_once)
        return replace(attempt, decision=decision), [_published(verdict, now_ms)]

    def _verdict(
        self, job: JobRecord, attempt: Attempt, facts: Facts, status: Status, before: Decision | None
    ) -> JobAttributed:
        end_ms = facts.end.at_ms
        gpu_seconds, seconds = (
            (0.0, 0.0) if attempt.ledger is None else goodput.since_checkpoint(attempt.ledger, end_ms)
        )
        return self._record(job, facts, attribute(facts, self._precision), status, before, Lost(gpu_seconds, seconds))

    def _record(
        self,
        job: JobRecord,
        facts: Facts,
        verdict: Verdict,
        status: Status,
        before: Decision | None,
        lost: Lost,
    ) -> JobAttributed:
        return JobAttributed(
            job_id=job.job_id,
            attempt=facts.attempt,
            cluster=job.cluster,
            revision=1 if before is None else before.verdict.revision + 1,
            status=status,
            cause=verdict.cause,
            basis=verdict.basis,
            confidence=verdict.confidence,
            culprit=verdict.culprit,
            evidence=verdict.evidence,
            alternatives=verdict.alternatives,
            retry=verdict.retry,
            lost=lost,
            rule=verdict.rule,
            catalog=self._catalogue,
            ended_at=moment_of(facts.end.at_ms),
            loss=facts.loss,
        )

    # --- losses that the attempt survives --------------------------------------------------------------

    def on_loss(
        self, job: JobRecord, attempt: Attempt, loss: Loss, context: Context, now_ms: int
    ) -> tuple[Loss, list[Emit]]:
        """Return the loss with its verdict; an attempt that fails inside the loss's window takes it over."""
        closes_ms = loss.at_ms + WINDOW_AFTER_MS
        decision = loss.decision
        if attempt.takes_over(loss):
            if decision is None or decision.withdrawn:
                return loss, _NO_EMITS
            verdict = replace(decision.verdict, revision=decision.verdict.revision + 1, status="withdrawn")
            withdrawn = Decision(verdict, final_once=decision.final_once, withdrawn=True)
            return replace(loss, decision=withdrawn), [_published(verdict, now_ms)]
        answered = all(slot.node in loss.answers for slot in loss.lost) and _told_up_to(context, closes_ms)
        emits: list[Emit] = []
        if (decision is None or not decision.finalised) and answered and now_ms >= closes_ms:
            loss, emits = self._decided(job, attempt, loss, context, now_ms, "final")
        elif decision is not None and decision.finalised and now_ms >= closes_ms + AMENDED_FOR_MS and not loss.label:
            return loss, emits
        status: Status = "amended" if loss.decision is not None and loss.decision.finalised else "provisional"
        loss, more = self._decided(job, attempt, loss, context, now_ms, status)
        return loss, emits + more

    def _decided(
        self, job: JobRecord, attempt: Attempt, loss: Loss, context: Context, now_ms: int, status: Status
    ) -> tuple[Loss, list[Emit]]:
        before, final = loss.decision, status == "final"
        facts = facts_of_loss(job, attempt, loss, context, by_ms=loss.at_ms + WINDOW_AFTER_MS if final else None)
        once = before is not None and before.final_once
        status = "amended" if final and once else status
        verdict = self._record(job, facts, attribute(facts, self._precision), status, before, Lost(0.0, 0.0))
        if not final and before is not None and not before.withdrawn and _same(before.verdict, verdict):
            return loss, _NO_EMITS
        finalised = final or (before is not None and before.finalised)
        decision = Decision(verdict, finalised, final_once=once or final)
        return replace(loss, decision=decision), [_published(verdict, now_ms)]


def is_settled(attempt: Attempt) -> bool:
    """Return whether the end in force has had its final verdict."""
    decision = attempt.decision
    return decision is not None and decision.finalised and not decision.withdrawn


def _complete(attempt: Attempt, context: Context, now_ms: int) -> bool:
    """Return whether the job's clock, the context's and every node's answer have passed the window's end."""
    closes_ms = attempt.closes_ms
    return now_ms >= closes_ms and _told_up_to(context, closes_ms) and not unanswered(attempt)


def _told_up_to(context: Context, closes_ms: int) -> bool:
    """Return whether the context's clock has come this far, as far as it is known."""
    return context.clock_ms is None or context.clock_ms >= closes_ms


def _as_labelled(attempt: Attempt) -> bool:
    decision, label = attempt.decision, attempt.label
    if decision is None or label is None:
        return False
    root = next((item for item in decision.verdict.evidence if item.role == "root"), None)
    return root is not None and root.id == label.id


def _same(one: JobAttributed, other: JobAttributed) -> bool:
    """Return whether two revisions say the same: class, code, culprit and advice; of a settled one also the basis."""
    return (
        one.cause.cause_class == other.cause.cause_class
        and one.cause.code == other.cause.code
        and one.culprit.node == other.culprit.node
        and one.culprit.device == other.culprit.device
        and one.retry == other.retry
        and (one.basis == other.basis or other.status == "provisional")
    )


def _published(verdict: JobAttributed, now_ms: int) -> Emit:
    key = stable_id(verdict.job_id, verdict.attempt, verdict.loss or 0, verdict.revision)
    return Emit(topics.ATTRIBUTIONS, verdict.job_id, key, now_ms, verdict)
