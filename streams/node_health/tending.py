"""What remediation is told of a node, and what follows on the node from what remediation did."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, cast

import msgspec
from msgspec.structs import replace

from faultlens import topics
from faultlens.clock import MINUTE_MS
from faultlens.codec import Event, fingerprint, stable_id
from faultlens.events import DeviceRef, NodeActed, NodeFault
from faultlens.internal import Announced, Condition, Intervened, NodeFacts, Observation, Tended
from streams.node_health import conditions, routing
from streams.node_health.conditions import without
from streams.node_health.record import Acts, NodeRecord, index_of, named
from streams.processor import Effects, Emit

_US: Final = "faultlens"
JOBS_TOLD: Final = 32
GPUS_TOLD: Final = 32
# What a repair of ours may have cured although no check vouches for it (contract, "Open conditions").
_WHOLE_NODE: Final = frozenset({"reboot", "power_cycle", "replace"})
# Whoever tells of a scheduler's nodes is named so (contract, sources).
_BRIDGE: Final = "bridge/"
# The evidence window opens so long before the first sign of trouble (contract).
_WINDOW_MS: Final = 10 * MINUTE_MS
_encode: Final = msgspec.msgpack.Encoder().encode


def with_facts(effects: Effects, now_ms: int) -> Effects:
    """Return the effects, and in them where the node stands now if remediation does not know that yet."""
    record = cast("NodeRecord", effects.state)
    if record.cluster == "" or record.standing is None:
        return effects
    if record.watch_until_ms and now_ms > record.watch_until_ms:
        record = replace(record, watch_until_ms=0)
    facts = _facts(record)
    mark = fingerprint(_encode(facts).hex())
    if mark == record.facts_told:
        return effects if record is effects.state else replace(effects, state=record)
    key = stable_id(record.node, "facts", mark.hex(), now_ms)
    told = Emit(topics.CONDITIONS, record.cluster, key, now_ms, replace(facts, at_ms=now_ms))
    # What somebody did to the node explains how it stands now.
    acts = [emit for emit in effects.emits if isinstance(emit.data, Intervened)]
    rest = [emit for emit in effects.emits if not isinstance(emit.data, Intervened)]
    return replace(effects, state=replace(record, facts_told=mark), emits=[*acts, told, *rest])


def _facts(record: NodeRecord) -> NodeFacts:
    """Return where the node stands, at no time: only what changed is told."""
    standing, watched = record.standing, record.watch_until_ms > 0
    acts = [act for act in (record.down, record.drain, record.cordon) if act is not None]
    return NodeFacts(
        node=record.node,
        cluster=record.cluster,
        at_ms=0,
        state="available" if standing is None else standing.state,
        planned=standing is not None and standing.planned,
        gpus_total=record.gpus_total,
        gpus_allocatable=record.gpus_allocatable if watched else 0,
        interval_ms=record.interval_ms,
        report_ms=record.report_ms if watched else 0,
        pool=record.pool,
        domains=record.domains,
        boot_id=record.boot_id,
        gpu_family=record.gpu_family,
        driver_version=record.driver_version,
        agent_version=record.agent_version,
        host_id=record.host_id,
        command_id=next((act.command_id for act in acts if act.command_id is not None), None),
        actor=next((act.actor for act in acts if act.command_id is None), None),
        jobs=tuple(list(record.held)[:JOBS_TOLD]) if watched else (),
        job_gpus=max((held.job_gpus for held in record.held.values()), default=0) if watched else 0,
        job_priority=max(_priorities(record), default=None) if watched else None,
        gpus=tuple(name for device in record.devices if (name := device.uuid or device.serial))[:GPUS_TOLD],
    )


def _priorities(record: NodeRecord) -> Iterator[float]:
    return (held.priority for held in record.held.values() if held.priority is not None)


def told(record: NodeRecord, changed: Iterable[Observation], phase: str, now_ms: int) -> list[Emit]:
    """Return the word on conditions to remediation and, for those that are over, to the attempts they hit."""
    emits = []
    for observation in changed:
        name = stable_id(record.node, conditions.condition_id(observation), observation.since_ms)
        data = Condition(
            node=record.node,
            cluster=record.cluster,
            phase=phase,  # type: ignore[arg-type]
            condition_id=name,
            observation=observation,
            at_ms=now_ms,
            pool=record.pool,
            boot_id=record.boot_id,
        )
        emits.append(Emit(topics.CONDITIONS, record.cluster, f"{name}-{phase}-{now_ms}", now_ms, data))
    over = [o for o in changed if o.until_ms is not None]
    return emits + (routing.to_holders(record, over, now_ms, cured=True) if over else [])


def announced(record: NodeRecord, fault: NodeFault, observation: Observation, now_ms: int) -> list[Emit]:
    """Return the word that the driver announced a recovery step, when that is what the fault is (Xid 154)."""
    if (fault.kind, fault.code) != ("xid", "154") or fault.synthetic or _is_backlog(record, fault, observation, now_ms):
        return []
    data = Announced(
        record.node,
        record.cluster,
        observation.since_ms,
        observation.hint,
        observation.device,
        observation.subcode or "",
        observation.id,
    )
    return [Emit(topics.CONDITIONS, record.cluster, stable_id(observation.id, "announced"), now_ms, data)]


def _is_backlog(record: NodeRecord, fault: NodeFault, observation: Observation, now_ms: int) -> bool:
    """Return whether a word of unknown boot is so old that it may be over: no check says when it is."""
    is_old = now_ms - observation.since_ms > _WINDOW_MS and observation.since_ms < record.report_ms
    return fault.boot_id is None and is_old


def intervened(record: NodeRecord, event: Event, act: NodeActed, now_ms: int) -> Emit:
    """Return the word that somebody changed the node."""
    data = Intervened(
        record.node,
        record.cluster,
        act.action,
        act.actor,
        act.planned,
        event.time_ms,
        act.reason,
        act.command_id,
        watched=event.source.startswith(_BRIDGE),
    )
    return Emit(topics.CONDITIONS, record.cluster, stable_id(event.source, event.id, "act"), now_ms, data)


def tended(record: NodeRecord, word: Tended) -> tuple[NodeRecord, Sequence[Observation]]:
    """Return the record after a word of remediation, and the conditions that what it did has cured."""
    record = replace(record, watch_until_ms=word.watch_until_ms, facts_told=b"")
    done, act = word.done, Acts(word.at_ms, planned=False, actor=_US, command_id=word.command_id or "")
    if done == "block_new_work" and record.cordon is None:
        return replace(record, cordon=act), ()
    if done == "drain" and record.drain is None:
        return replace(record, drain=act), ()
    if done == "return_to_service":
        return replace(record, cordon=_but_ours(record.cordon), drain=_but_ours(record.drain)), ()
    is_cured = _cured(record, word.device, done or "")
    if is_cured is None:
        return record, ()
    keys = [key for key, open_ in record.conditions.items() if open_.since_ms <= word.at_ms and is_cured(open_)]
    return without(record, keys, word.at_ms)


def _but_ours(act: Acts | None) -> Acts | None:
    return None if act is None or act.command_id is not None else act


def _cured(record: NodeRecord, device: DeviceRef | None, done: str) -> Callable[[Observation], bool] | None:
    """Return what tells the conditions that an action cures; None: it is no repair."""
    if done in _WHOLE_NODE:
        return _by_remediation
    if done == "restart_services":
        return lambda found: _by_remediation(found) and found.scope != "device"
    if done == "reset_device":
        wanted = index_of(record, named(record, device))
        return lambda found: (
            _by_remediation(found) and (wanted is None or index_of(record, found.device) in (wanted, None))
        )
    return None


def _by_remediation(found: Observation) -> bool:
    return "remediation" in found.clears
