"""The node state machine: reports, faults, actions and allocations in; states, evidence and conditions out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, cast

from msgspec import Struct
from msgspec.structs import replace

from faultlens import topics
from faultlens.catalogue import Catalogue
from faultlens.clock import HOUR_MS, MINUTE_MS, SECOND_MS, moment_of
from faultlens.codec import Event, fingerprint, stable_id
from faultlens.events import NodeActed, NodeFault, NodeHealth, NodeState
from faultlens.internal import Held, LaneCensus, Observation, Released, Tended
from streams.context import Context
from streams.node_health import accounting, conditions, describing, judging, pools, routing, standing, tending, uses
from streams.node_health.record import (
    FORGOTTEN_AFTER_MS,
    HELD_MAX,
    MISSED_INTERVALS,
    ON_TIME_INTERVALS,
    RELEASED_KEPT_MS,
    RELEASED_MAX,
    SEEN_BYTES,
    SEEN_REPORTS_BYTES,
    Acts,
    NodeRecord,
    holding_key,
)
from streams.processor import Effects, Emit

_NEVER_MS: Final = 1 << 62


class NodeHealthProcessor:
    """Steps one node's record. Key: the node's name."""

    name = "node"
    topics = (topics.NODE_EVENTS, topics.ALLOCATIONS)
    state_type = NodeRecord
    survey_every_ms: int | None = MINUTE_MS
    surveys_while_idle = False

    def __init__(self, catalogue: Catalogue, *, count_every_ms: int = HOUR_MS) -> None:
        """`count_every_ms`: how often the time of a node whose state does not change is told to the objectives."""
        self._catalogue = catalogue
        self._count_every_ms = count_every_ms
        self._steps: dict[type, Callable[[NodeRecord, Event, Any, int, Context], tuple[NodeRecord, list[Emit]]]] = {
            NodeHealth: self._on_health,
            NodeFault: self._on_fault,
            NodeActed: self._on_act,
            Held: self._on_held,
            Released: self._on_released,
            Tended: self._on_tended,
        }

    def key_of(self, event: Event) -> str | None:
        """Return the node."""
        return event.subject if type(event.data) in self._steps else None

    def on_event(self, event: Event, now_ms: int, context: Context, state: Struct | None) -> Effects:
        """Return what follows from a report, fault, action or allocation."""
        record: NodeRecord = state if state is not None else NodeRecord(node=event.subject)  # type: ignore[assignment]
        data = event.data
        mark = fingerprint(event.source, event.id)
        if type(data) is NodeHealth:
            if event.skewed and mark in record.seen_reports:
                return Effects(record, (), self._next_wake(record), duplicate=True)
            seen_reports = (record.seen_reports + mark)[-SEEN_REPORTS_BYTES:]
            if self._is_quiet(record, event, data, context):
                late_ms = describing.late(record, event)
                quiet = replace(
                    record, report_ms=event.time_ms, reported_ms=now_ms, late_ms=late_ms, seen_reports=seen_reports
                )
                return Effects(quiet, (), self._next_wake(quiet))
            record = replace(record, seen_reports=seen_reports)
        elif mark in record.seen:
            return Effects(record, (), self._next_wake(record), duplicate=True)
        else:
            # A lane that has heard of no time yet is at its beginning, and would forget the node when it does.
            record = replace(record, seen=(record.seen + mark)[-SEEN_BYTES:], heard_ms=now_ms or event.time_ms)
        record = accounting.used(record, now_ms)
        record, emits = self._steps[type(data)](record, event, data, now_ms, context)
        at_ms = min(event.time_ms, now_ms)
        return tending.with_facts(self._settled(record, emits, context, at_ms=at_ms, now_ms=now_ms), now_ms)

    def on_time(self, key: str, now_ms: int, context: Context, state: Struct) -> Effects:
        """Return what is due: answers, silence, the hour's counts, and in the end that the node is gone."""
        record = accounting.used(cast("NodeRecord", state), now_ms)
        if now_ms >= (standing.forgotten_ms(record) or now_ms + 1):
            return self._forgotten(record, context, now_ms)
        # An answer is complete up to its time: what is learnt at that very time goes before it.
        record, emits = self._silenced(record, context, now_ms)
        record, answers = self._answered(record, now_ms)
        emits += answers
        effects = tending.with_facts(self._settled(record, emits, context, at_ms=now_ms, now_ms=now_ms), now_ms)
        settled = cast("NodeRecord", effects.state)
        if now_ms < accounting.next_count(settled.counted_ms, self._count_every_ms):
            return effects
        return self._flushed(settled, list(effects.emits), now_ms)

    def on_end(self, key: str, now_ms: int, context: Context, state: Struct) -> Effects:
        """Return what is known but not yet written when a recording ends at `now_ms`."""
        effects = self._settled(cast("NodeRecord", state), [], context, at_ms=now_ms, now_ms=now_ms)
        record = accounting.used(cast("NodeRecord", effects.state), now_ms)
        return self._flushed(record, list(effects.emits), now_ms)

    def survey(self, now_ms: int, states: Iterable[tuple[str, Struct]], lane: int) -> Sequence[Emit]:
        """Return how many covered nodes of each cluster reported on time.

        When we lose them all at once, each has missed two intervals by the time that the first one has missed three.
        """
        covered: dict[str, int] = {}
        on_time: dict[str, int] = {}
        record: Any
        for _, record in states:
            if record.covered and record.removed is None:
                cluster = record.cluster
                covered[cluster] = covered.get(cluster, 0) + 1
                if now_ms - record.reported_ms < ON_TIME_INTERVALS * record.interval_ms:
                    on_time[cluster] = on_time.get(cluster, 0) + 1
        return [
            Emit(
                topics.CENSUS,
                cluster,
                stable_id(cluster, lane, now_ms),
                now_ms,
                LaneCensus(cluster, lane, now_ms, count, on_time.get(cluster, 0)),
            )
            for cluster, count in sorted(covered.items())
        ]

    # --- reports ---------------------------------------------------------------------------------------

    def _is_quiet(self, record: NodeRecord, event: Event, report: NodeHealth, context: Context) -> bool:
        """Return whether the report only says that all is as it was; most do."""
        return (
            event.time_ms > record.report_ms
            and record.covered
            and not record.conditions
            and record.silent_since_ms is None
            and record.down is None
            and record.removed is None
            and not record.watch_until_ms
            and not context.maintenance
            and report.boot_id == record.boot_id
            and (report.pool == record.pool or not report.pool)
            and report.gpus_allocatable == record.gpus_allocatable
            and report.gpus_total == record.gpus_total
            and report.agent_version == record.agent_version
            and report.driver_version == record.driver_version
            and report.devices is None
            and len(report.checks) == len(record.checks)
            and describing.all_passed(report)
            and int(report.interval_s * SECOND_MS) == record.interval_ms
        )

    def _on_health(
        self, record: NodeRecord, event: Event, report: NodeHealth, now_ms: int, context: Context
    ) -> tuple[NodeRecord, list[Emit]]:
        if record.covered and event.time_ms <= record.report_ms:
            return record, []
        new_boot = record.boot_id is not None and report.boot_id not in (None, record.boot_id)
        emits: list[Emit] = []
        if new_boot:
            record, emits = self._rebooted(record, event, now_ms)
        found = conditions.failing_checks(self._catalogue, record, event, report, now_ms=now_ms)
        record = describing.described(record, event, report, now_ms=now_ms)
        record, over = conditions.cleared_by_checks(record, report.checks, event.time_ms)
        record, returned = describing.returned(record, event.time_ms)
        emits += tending.told(record, (*over, *returned), "cleared", now_ms)
        for observation in found:
            record, told = self._with_condition(record, observation, now_ms)
            emits += told
        return record, emits

    def _rebooted(self, record: NodeRecord, event: Event, now_ms: int) -> tuple[NodeRecord, list[Emit]]:
        restart = judging.of_reboot(record, event, now_ms=now_ms)
        record, _, _ = conditions.folded(record, restart)
        # When between the two reports it restarted is not known: what it cures was last true at the earlier one.
        record, over = conditions.cleared_by_boot(record, record.report_ms or event.time_ms)
        emits = routing.to_holders(record, [restart], now_ms)
        emits += routing.news(record, "rebooted", restart.since_ms, now_ms, record.held.values())
        emits += tending.told(record, over, "cleared", now_ms)
        return replace(record, boot_ms=event.time_ms, down=None), emits

    def _with_condition(
        self, record: NodeRecord, observation: Observation, now_ms: int
    ) -> tuple[NodeRecord, list[Emit]]:
        record, new = conditions.opened(record, observation)
        if new is None:
            return record, []
        emits = routing.to_holders(record, [new], now_ms)
        return record, emits + tending.told(record, (new,), "opened", now_ms)

    # --- faults and actions ----------------------------------------------------------------------------

    def _on_fault(
        self, record: NodeRecord, event: Event, fault: NodeFault, now_ms: int, context: Context
    ) -> tuple[NodeRecord, list[Emit]]:
        record = describing.introduced(record, event, fault.cluster, fault.pool, fault.domains)
        observation = judging.of_fault(self._catalogue, record, event, fault, now_ms=now_ms)
        old = conditions.before_this_boot(record, event, fault.boot_id)
        if old:
            observation = replace(observation, open=False)
        elif describing.passed_since(record, observation):
            observation = replace(observation, open=False, until_ms=record.report_ms)
        record, entry, is_new = conditions.folded(record, observation)
        emits = routing.to_holders(record, [entry], now_ms) if is_new and not fault.synthetic else []
        emits += [] if old else tending.announced(record, fault, observation, now_ms)
        record, told = _with_uses(record, uses.by_fault(record, observation), now_ms)
        record, opened = conditions.opened(record, observation)
        if opened is not None:
            told += tending.told(record, (opened,), "opened", now_ms)
        return record, emits + told

    def _on_act(
        self, record: NodeRecord, event: Event, act: NodeActed, now_ms: int, context: Context
    ) -> tuple[NodeRecord, list[Emit]]:
        record = describing.introduced(record, event, act.cluster, None, {})
        emits = [tending.intervened(record, event, act, now_ms)]
        observation = judging.of_act(record, event, act, now_ms=now_ms)
        if observation is not None:
            record, entry, _ = conditions.folded(record, observation)
            emits += routing.to_holders(record, [entry], now_ms)
        if act.action == "uncordon":
            record, over = conditions.cleared_by_a_person(record, event.time_ms)
            emits += tending.told(record, over, "cleared", now_ms)
        done = Acts(event.time_ms, act.planned, act.actor, act.reason or "", act.command_id)
        record = describing.acted(record, act.action, done)
        if act.action in ("reboot", "replace", "remove"):
            emits += routing.news(record, "down", event.time_ms, now_ms, record.held.values())
        return record, emits

    # --- allocations -----------------------------------------------------------------------------------

    def _on_held(
        self, record: NodeRecord, event: Event, held: Held, now_ms: int, context: Context
    ) -> tuple[NodeRecord, list[Emit]]:
        key = holding_key(held.job_id, held.attempt)
        emits = routing.news(record, "reallocated", held.since_ms, event.time_ms, routing.overlapping(record, held))
        emits += routing.missed_news(record, held, event.time_ms)
        if record.cluster == "":
            record = replace(record, cluster=held.cluster)
        # An end that was concluded and taken back: the attempt holds the node again.
        kept = tuple(r for r in record.released if holding_key(r.job_id, r.attempt) != key or r.loss is not None)
        due = tuple(r for r in record.answers_due if holding_key(r.job_id, r.attempt) != key or r.loss is not None)
        record = replace(record, released=kept, answers_due=due)
        overflow = 0 if key in record.held or len(record.held) < HELD_MAX else 1
        if not overflow:
            record = replace(record, held={**record.held, key: held})
        record, told = _with_uses(record, uses.by_holder(record, held), now_ms)
        known = {o.id: o for o in (*record.conditions.values(), *record.faults)}
        mine = [o for o in known.values() if routing.bears_on(record, held, o)]
        pool = pools.of_attempt(record, held)
        if mine or pool:
            told_pool = pool or None
            emits.append(routing.evidence(record, held.job_id, held.attempt, mine, now_ms=now_ms, pool=told_pool))
        return replace(record, overflow=record.overflow + overflow), emits + told

    def _on_released(
        self, record: NodeRecord, event: Event, release: Released, now_ms: int, context: Context
    ) -> tuple[NodeRecord, list[Emit]]:
        key = holding_key(release.job_id, release.attempt)
        held = record.held.get(key)
        if held is not None and release.devices is None:
            release = replace(release, devices=held.devices, refs=held.refs)
        if release.loss is None or not release.keeps:
            record = replace(record, held={k: v for k, v in record.held.items() if k != key})
        same = (release.job_id, release.attempt, release.loss)
        before = next((r for r in record.released if (r.job_id, r.attempt, r.loss) == same), None)
        kept = [r for r in record.released if r is not before and now_ms - r.at_ms <= RELEASED_KEPT_MS]
        due = tuple(r for r in record.answers_due if (r.job_id, r.attempt, r.loss) != same)
        record = replace(record, released=(*kept, release)[-RELEASED_MAX:], answers_due=due)
        emits = routing.answered_again(record, release, before, now_ms)
        emits += pools.told_at_the_end(record, before or held, release, now_ms)
        if release.loss is None:
            record, told = _with_uses(record, uses.by_holder(record, release), now_ms)
            emits += told
        if not release.failed:
            return record, emits
        if release.closes_ms <= now_ms:
            return record, emits + routing.answer(record, release, now_ms)
        found = routing.relevant(record, release)
        early = [routing.evidence(record, release.job_id, release.attempt, found, now_ms=now_ms)] if found else []
        # One that is dropped here is told again in five minutes and answered then.
        return replace(record, answers_due=(*due, release)[-RELEASED_MAX:]), emits + early

    def _on_tended(
        self, record: NodeRecord, event: Event, word: Tended, now_ms: int, context: Context
    ) -> tuple[NodeRecord, list[Emit]]:
        record, over = tending.tended(record, word)
        return record, tending.told(record, over, "cleared", now_ms)

    # --- time ------------------------------------------------------------------------------------------

    def _answered(self, record: NodeRecord, now_ms: int) -> tuple[NodeRecord, list[Emit]]:
        due = [r for r in record.answers_due if r.closes_ms <= now_ms]
        if not due:
            return record, []
        emits = [emit for release in due for emit in routing.answer(record, release, now_ms)]
        return replace(record, answers_due=tuple(r for r in record.answers_due if r.closes_ms > now_ms)), emits

    def _silenced(self, record: NodeRecord, context: Context, now_ms: int) -> tuple[NodeRecord, list[Emit]]:
        """Return the record as silent when the cluster's count says that this node alone, not we, went quiet."""
        if not record.covered or record.silent_since_ms is not None or record.removed is not None:
            return record, []
        blind_ms = max(context.blind_until_ms.get(record.cluster, 0), context.blind_ms)
        third_ms = max(record.reported_ms, blind_ms) + MISSED_INTERVALS * record.interval_ms
        census = context.census.get(record.cluster)
        if now_ms < third_ms:
            # After a time in which we were blind: looked at again when the third interval since then is over.
            return replace(record, looked_ms=third_ms - max(record.interval_ms, MINUTE_MS)), []
        record = replace(record, looked_ms=now_ms)
        if census is None or census.at_ms < third_ms or census.on_time * 2 < census.covered:
            return record, []
        maintenance = standing.maintenance_of(record, context)
        if maintenance is not None or record.down is not None:
            return record, []
        silence = judging.of_silence(record, third_ms, now_ms=now_ms)
        record, _, _ = conditions.folded(record, silence)
        emits = routing.to_holders(record, [silence], now_ms)
        emits += routing.news(record, "silent", silence.since_ms, now_ms, record.held.values())
        emits += tending.told(record, (silence,), "opened", now_ms)
        return replace(record, silent_since_ms=third_ms), emits

    def _flushed(self, record: NodeRecord, emits: list[Emit], now_ms: int) -> Effects:
        record, samples = accounting.counted(record, now_ms)
        record, uses = accounting.use_flushed(record)
        return Effects(record, [*emits, *samples, *uses], self._next_wake(record))

    def _forgotten(self, record: NodeRecord, context: Context, now_ms: int) -> Effects:
        """Return the end of a node that nobody speaks of any more: it counts as removed from now on."""
        gone = Acts(now_ms, planned=True, actor="faultlens", reason="not heard of for four weeks")
        effects = self._settled(replace(record, removed=gone), [], context, at_ms=now_ms, now_ms=now_ms)
        effects = tending.with_facts(effects, now_ms)
        effects = self._flushed(cast("NodeRecord", effects.state), list(effects.emits), now_ms)
        return Effects(None, effects.emits)

    # --- what every step ends with ---------------------------------------------------------------------

    def _settled(self, record: NodeRecord, emits: list[Emit], context: Context, *, at_ms: int, now_ms: int) -> Effects:
        """Return the effects with the node's state published when it changed and its time before that counted."""
        if record.cluster == "" or not (record.covered or record.introduced):
            return Effects(record, emits, self._next_wake(record))
        if record.standing is None:
            record = replace(record, counted_ms=at_ms)
        now = standing.stand(record, context, at_ms)
        if now == record.standing:
            return Effects(record, emits, self._next_wake(record))
        record, samples = accounting.counted(record, now.since_ms)
        record, told = pools.stood(replace(record, standing=now), now_ms)
        data = NodeState(
            node=record.node,
            cluster=record.cluster,
            pool=record.pool,
            state=now.state,
            since=moment_of(now.since_ms),
            gpus_total=now.gpus_total,
            gpus_allocatable=now.gpus_allocatable,
            planned=now.planned,
            cause=now.cause,
            incident_id=now.incident_id,
        )
        key = stable_id(record.node, now.since_ms, now.state, now.gpus_allocatable, now_ms)
        publish = Emit(topics.NODE_STATES, record.node, key, now_ms, data)
        return Effects(record, [*emits, *samples, *told, publish], self._next_wake(record))

    def _next_wake(self, record: NodeRecord) -> int | None:
        """Return when the node has to be looked at again without news."""
        wake_ms = _NEVER_MS
        if record.covered and record.silent_since_ms is None and record.removed is None:
            third_ms = record.reported_ms + MISSED_INTERVALS * record.interval_ms
            again_ms = record.looked_ms + max(record.interval_ms, MINUTE_MS)
            wake_ms = max(third_ms, again_ms)
        if record.standing is not None:
            wake_ms = min(wake_ms, accounting.next_count(record.counted_ms, self._count_every_ms))
        for release in record.answers_due:
            wake_ms = min(wake_ms, release.closes_ms)
        if wake_ms <= record.reported_ms + FORGOTTEN_AFTER_MS:
            return wake_ms
        forgotten_ms = standing.forgotten_ms(record)
        if forgotten_ms is not None:
            wake_ms = min(wake_ms, forgotten_ms)
        return wake_ms if wake_ms < _NEVER_MS else None


def _with_uses(before: NodeRecord, record: NodeRecord, now_ms: int) -> tuple[NodeRecord, list[Emit]]:
    """Return the record with its uses changed, and the faults told again to those who have other ones before them."""
    return record, routing.to_holders(record, uses.met_later(before, record), now_ms)
