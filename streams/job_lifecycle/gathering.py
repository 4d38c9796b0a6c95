"""The facts that a verdict rests on: all that is known of an attempt or a loss, of what had arrived by then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from faultlens.events import Scope
from faultlens.internal import NodeAnswer, Observation
from streams import goodput
from streams.attribution import Earlier, End, Facts, Said, order_ms
from streams.context import Context, Open, What, covers_any
from streams.job_lifecycle.record import WINDOW_AFTER_MS, WINDOW_BEFORE_MS, Attempt, JobRecord, Label, Loss
from streams.job_lifecycle.repeating import brought_along
from streams.job_lifecycle.telling import opens_ms, stalled_since_ms, trouble_ms


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
    hit = {slot.node for slot in attempt.taken_over}
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
        self._nodes = held.keys()
        self._pools: set[str | None] = set()
        self._domains: set[tuple[str, str]] = set()
        self._all_known = True
        domains_of = {o.node: o.domains for o in reversed(observations) if o.domains}
        for node in held:
            self._add(answers.get(node), domains_of.get(node))

    def _add(self, answer: NodeAnswer | None, domains: Mapping[str, str] | None) -> None:
        if answer is not None:
            self._pools.add(answer.pool)
            domains = answer.domains
        if domains is None:
            self._all_known = False
        else:
            self._domains.update(domains.items())

    def of(self, entries: Mapping[str, Open[What]], by_ms: int | None) -> tuple[Open[What], ...]:
        """Return the entries of the job's cluster that had arrived by then and cover a held node."""
        return tuple(
            entry
            for entry in entries.values()
            if entry.what.cluster == self._cluster
            and (by_ms is None or entry.arrived_ms <= by_ms)
            and (not self._nodes or self._covered(entry.what.scope))
        )

    def _covered(self, scope: Scope) -> bool:
        # Until a node has answered nobody knows its pool and domains: what names any may concern it.
        if not self._all_known and (scope.pools or scope.domains):
            return True
        return covers_any(scope, nodes=self._nodes, pools=self._pools, domains=self._domains)


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
