"""Verdicts and their revisions: provisional at the end, final when all nodes have answered, then amended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from faultlens import topics
from faultlens.clock import moment_of
from faultlens.codec import stable_id
from faultlens.events import JobAttributed, Lost, Scope, Status
from faultlens.internal import NodeAnswer, Observation
from streams import goodput
from streams.attribution import Earlier, End, Facts, Precision, Said, Verdict, attribute, order_ms
from streams.context import Context, Open, What, covers
from streams.job_lifecycle.record import (
    AMENDED_FOR_MS,
    WINDOW_AFTER_MS,
    WINDOW_BEFORE_MS,
    Attempt,
    Decision,
    JobRecord,
    Label,
    Loss,
)
from streams.job_lifecycle.repeating import brought_along
from streams.job_lifecycle.telling import opens_ms, stalled_since_ms, trouble_ms, unanswered
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


# --- facts ---------------------------------------------------------------------------------------------


def facts_of(job: JobRecord, attempt: Attempt, end: End, context: Context, *, by_ms: int | None) -> Facts:
    """Return all that a verdict on the attempt rests on, of what had arrived by `by_ms` (None: by now)."""
    held = {slot.node: slot.devices for slot in attempt.answering.values()}
    waiting = job.waiting
    facts = _shared(job, attempt, context, held=held, answers=attempt.answers, by_ms=by_ms)
    return replace(
        _with_label(facts, attempt.label, by_ms),
        end=end,
        opens_ms=opens_ms(attempt),
        closes_ms=attempt.window_ends_ms,
        trouble_ms=trouble_ms(attempt),
        stalled_ms=stalled_since_ms(attempt),
        exits=attempt.last_exits,
        suspects=attempt.suspects,
        suspects_on=attempt.seats_of(attempt.suspects),
        earlier=_earlier(job, attempt),
        brought=brought_along(job),
        how=how_it_failed(attempt),
        steps_after=_steps_after(attempt, facts),
        lost_capacity=waiting is not None and waiting.lost_capacity,
        pending=Said() if waiting is None else waiting.said,
    )


def _with_label(facts: Facts, label: Label | None, by_ms: int | None) -> Facts:
    if label is None or (by_ms is not None and label.arrived_ms > by_ms):
        return facts
    return replace(facts, label=label.label, label_id=label.id, label_source=label.source, label_ms=label.at_ms)


def _steps_after(attempt: Attempt, facts: Facts) -> dict[str, int]:
    """Return the steps after each observation; what hit the attempt in a loss is not cleared by those of the rest."""
    hit = {slot.node for loss in attempt.losses if attempt.takes_over(loss) for slot in loss.lost}
    return {o.id: facts.steps_after.get(o.id, 0) for o in facts.observations if o.node not in hit}


def facts_of_loss(job: JobRecord, attempt: Attempt, loss: Loss, context: Context, *, by_ms: int | None) -> Facts:
    """Return the facts of a loss that the attempt survived: the lost nodes stand for what it held."""
    held = {slot.node: slot.devices for slot in loss.lost}
    facts = _shared(job, attempt, context, held=held, answers=loss.answers, by_ms=by_ms)
    end = End(loss.id, loss.source, loss.at_ms, loss.at_ms, "failed", reason=loss.reason)
    exits = tuple(e for e in attempt.exits if e.node in held and e.at_ms <= loss.at_ms + WINDOW_AFTER_MS)
    return replace(
        _with_label(facts, loss.label, by_ms),
        end=end,
        opens_ms=loss.at_ms - WINDOW_BEFORE_MS,
        closes_ms=loss.at_ms + WINDOW_AFTER_MS,
        trouble_ms=min([loss.at_ms, *(e.first_ms for e in exits)]),
        loss=loss.number,
        exits=exits,
        exits_total=len(exits),
        steps_after={},
    )


def _shared(
    job: JobRecord,
    attempt: Attempt,
    context: Context,
    *,
    held: dict[str, tuple[int, ...] | None],
    answers: dict[str, NodeAnswer],
    by_ms: int | None,
) -> Facts:
    observations = [
        o for o in attempt.observations.values() if _hits(o, held) and (by_ms is None or o.arrived_ms <= by_ms)
    ]
    places = _Places(held, answers, observations, job.cluster)
    ledger = attempt.ledger
    return Facts(
        job_id=job.job_id,
        attempt=attempt.attempt,
        end=attempt.end or End("", "", 0, 0, "failed"),
        held=held,
        opens_ms=0,
        closes_ms=0,
        trouble_ms=0,
        allocated_ms=attempt.allocated_ms,
        started_ms=attempt.started_ms,
        user=job.user,
        image=job.image,
        workload=job.workload,
        exits=attempt.exits,
        exits_total=attempt.exits_total,
        observations=tuple(observations),
        others=attempt.others,
        answers=tuple(answers.values()),
        incidents=places.of(context.incidents, by_ms),
        maintenance=places.of(context.maintenance, by_ms),
        rollouts=places.of(context.rollouts, by_ms),
        steps_after={} if ledger is None else {o.id: goodput.steps_after(ledger, order_ms(o)) for o in observations},
        reports_progress=ledger is not None and goodput.last_progress_ms(ledger) is not None,
        last_progress_ms=None if ledger is None else goodput.last_progress_ms(ledger),
    )


def _hits(observation: Observation, held: Mapping[str, tuple[int, ...] | None]) -> bool:
    """Return whether the observation is about what was held, as far as its device is known."""
    if observation.node not in held:
        return False
    devices, device = held[observation.node], observation.device
    if observation.whole_node or devices is None or device is None or device.index is None:
        return True
    return device.index in devices


class _Places:
    """Which of the held nodes lie in the scope of what concerns everyone."""

    def __init__(
        self,
        held: Mapping[str, tuple[int, ...] | None],
        answers: Mapping[str, NodeAnswer],
        observations: Sequence[Observation],
        cluster: str,
    ) -> None:
        self._cluster = cluster
        self._nodes = {node: _place(node, answers, observations) for node in held}

    def of(self, entries: Mapping[str, Open[What]], by_ms: int | None) -> tuple[Open[What], ...]:
        """Return the entries of the job's cluster that had arrived by then and cover a held node."""
        return tuple(
            entry
            for entry in entries.values()
            if entry.what.cluster == self._cluster
            and (by_ms is None or entry.arrived_ms <= by_ms)
            and (not self._nodes or any(_covers(entry.what.scope, n, place) for n, place in self._nodes.items()))
        )


def _covers(scope: Scope, node: str, place: tuple[str | None, dict[str, str]] | None) -> bool:
    # Until the node has answered nobody knows its pool and domains: what names any may concern it.
    if place is None and (scope.pools or scope.domains):
        return True
    pool, domains = place or (None, {})
    return covers(scope, node=node, pool=pool, domains=domains)


def _place(
    node: str, answers: Mapping[str, NodeAnswer], observations: Sequence[Observation]
) -> tuple[str | None, dict[str, str]] | None:
    answer = answers.get(node)
    if answer is not None:
        return answer.pool, answer.domains
    domains = next((o.domains for o in observations if o.node == node and o.domains), None)
    return None if domains is None else (None, domains)


def how_it_failed(attempt: Attempt) -> str:
    """Return what two failures of a job have in common when they are the same: words, status and signal."""
    end = attempt.end
    if end is None:
        return ""
    telling = min(attempt.exits, key=lambda e: (e.said.role != "root", e.first_ms, e.rank), default=None)
    said = telling.said if telling is not None else end.said
    code = telling.exit_code if telling is not None else end.exit_code
    signal = telling.signal if telling is not None else end.signal
    return f"{said.signature}|{code}|{signal}|{end.outcome}"


def _earlier(job: JobRecord, attempt: Attempt) -> tuple[Earlier, ...]:
    """Return how earlier attempts of the job failed."""
    stubs = {number: stub for number, stub in job.stubs.items() if number < attempt.attempt}
    for number, other in job.attempts.items():
        stub = stub_of(other)
        if number < attempt.attempt and stub is not None:
            stubs[number] = stub
    return tuple(stubs[number] for number in sorted(stubs))


def stub_of(attempt: Attempt) -> Earlier | None:
    """Return what is remembered of a failed attempt; None: it did not fail."""
    decision = attempt.decision
    if decision is None or decision.withdrawn:
        return None
    verdict = decision.verdict
    return Earlier(
        attempt.attempt,
        tuple(sorted(attempt.slots)),
        how_it_failed(attempt),
        None,
        verdict.cause.cause_class,
        verdict.cause.code,
        verdict.basis,
    )
