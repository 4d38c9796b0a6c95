"""Rows of what faultlens said: verdicts, states, ledgers, objectives, incidents, commands and dead letters."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from faultlens.clock import HOUR_MS, ms_of
from faultlens.codec import Event
from faultlens.errors import InvalidEventError
from faultlens.events import (
    DeadLetter,
    FleetTime,
    Incident,
    JobAttributed,
    JobFinding,
    JobTime,
    NodeState,
    RemediationCommand,
    SloStatus,
)
from sinks.input_rows import device_json
from sinks.tables import (
    Attribution,
    Command,
    EvidenceOf,
    Finding,
    FleetUse,
    GpuTime,
    IncidentChange,
    Letter,
    NodeStateSince,
    Row,
    Standing,
)

# A row an hour: as long as answers are kept (400 days, topics.py). Nothing runs or waits for longer.
MAX_LEDGER_HOURS: Final = 400 * 24


def _attributed(event: Event, data: JobAttributed, arrived_ms: int) -> list[Row]:
    verdict = Attribution(
        job_id=data.job_id,
        attempt=data.attempt,
        loss=data.loss or 0,
        revision=data.revision,
        status=data.status,
        cluster=data.cluster,
        class_=data.cause.cause_class,
        code=data.cause.code,
        summary=data.cause.summary,
        basis=data.basis,
        confidence=data.confidence,
        node=data.culprit.node or "",
        device_index=None if data.culprit.device is None else data.culprit.device.index,
        device=device_json(data.culprit.device),
        rank=data.culprit.rank,
        alternatives=[(other.cause_class, other.code, other.confidence) for other in data.alternatives],
        advice=data.retry.advice,
        exclude_nodes=data.retry.exclude_nodes,
        exclude_devices=data.retry.exclude_devices,
        lost_gpu_seconds=data.lost.gpu_seconds,
        since_checkpoint_s=data.lost.since_checkpoint_s,
        rule=data.rule,
        catalog=data.catalog,
        ended_at=ms_of(data.ended_at),
        emitted=event.time_ms,
        event_id=event.id,
    )
    return [verdict, *_evidence_of(event, data)]


def _evidence_of(event: Event, data: JobAttributed) -> list[Row]:
    return [
        EvidenceOf(
            job_id=data.job_id,
            attempt=data.attempt,
            loss=data.loss or 0,
            revision=data.revision,
            position=position,
            role=item.role,
            source=item.source,
            event_id=item.id,
            time=ms_of(item.time),
            what=item.what,
            ended_at=ms_of(data.ended_at),
            emitted=event.time_ms,
        )
        for position, item in enumerate(data.evidence)
    ]


def _finding(event: Event, data: JobFinding, arrived_ms: int) -> list[Row]:
    cause = data.cause
    return [
        Finding(
            job_id=data.job_id,
            attempt=data.attempt,
            kind=data.kind,
            since=ms_of(data.since),
            until=_ms_or_none(data.until),
            cluster=data.cluster,
            node=data.node or "",
            device_index=None if data.device is None else data.device.index,
            device=device_json(data.device),
            ranks=data.ranks or (),
            ratio=data.ratio,
            class_="" if cause is None else cause.cause_class,
            code="" if cause is None else cause.code,
            summary="" if cause is None else cause.summary,
            basis=data.basis,
            evidence=[(item.role, item.source, item.id, ms_of(item.time), item.what) for item in data.evidence],
            emitted=event.time_ms,
            event_id=event.id,
        )
    ]


def _state(event: Event, data: NodeState, arrived_ms: int) -> list[Row]:
    return [
        NodeStateSince(
            node=data.node,
            since=ms_of(data.since),
            state=data.state,
            cluster=data.cluster,
            pool=data.pool or "",
            gpus_total=data.gpus_total,
            gpus_allocatable=data.gpus_allocatable,
            planned=data.planned,
            cause=data.cause or "",
            incident_id=data.incident_id or "",
            emitted=event.time_ms,
            event_id=event.id,
            of_cluster=data.cluster,
        )
    ]


def _job_time(event: Event, data: JobTime, arrived_ms: int) -> list[Row]:
    start_ms, stop_ms = ms_of(data.start), ms_of(data.stop)
    first, last = start_ms // HOUR_MS, -(-stop_ms // HOUR_MS)
    if last - first > MAX_LEDGER_HOURS:
        raise InvalidEventError(
            "bad_value", f"a ledger record of {last - first} hours, at most {MAX_LEDGER_HOURS} are kept"
        )
    cause = data.cause
    return [
        GpuTime(
            job_id=data.job_id,
            attempt=data.attempt,
            hour=hour * HOUR_MS,
            revision=data.revision,
            start=max(start_ms, hour * HOUR_MS),
            stop=min(stop_ms, (hour + 1) * HOUR_MS),
            cluster=data.cluster,
            team=data.team or "",
            category=data.category,
            gpus=data.gpus,
            class_="" if cause is None else cause.cause_class,
            code="" if cause is None else cause.code,
            emitted=event.time_ms,
        )
        for hour in range(first, last)
        if stop_ms > start_ms
    ]


def _fleet_time(event: Event, data: FleetTime, arrived_ms: int) -> list[Row]:
    return [
        FleetUse(
            cluster=data.cluster,
            pool=data.pool or "",
            start=ms_of(data.start),
            stop=ms_of(data.stop),
            gpu_seconds=data.gpu_seconds,
            emitted=event.time_ms,
        )
    ]


def _standing(event: Event, data: SloStatus, arrived_ms: int) -> list[Row]:
    return [
        Standing(
            objective=data.objective,
            cluster=data.scope.cluster,
            pool=data.scope.pool or "",
            team=data.scope.team or "",
            workload=data.scope.workload or "",
            window=data.window,
            time=event.time_ms,
            unit=data.unit,
            good=data.good,
            total=data.total,
            attained=data.attained,
            target=data.target,
            budget_remaining=data.budget_remaining,
            burn=data.burn,
            by_cause=data.by_cause,
            low=None if data.bounds is None else data.bounds.low,
            high=None if data.bounds is None else data.bounds.high,
            event_id=event.id,
        )
    ]


def _incident(event: Event, data: Incident, arrived_ms: int) -> list[Row]:
    return [
        IncidentChange(
            incident_id=data.incident_id,
            emitted=event.time_ms,
            event_id=event.id,
            cluster=data.cluster,
            phase=data.phase,
            cause=data.cause,
            severity=data.severity,
            nodes=data.scope.nodes,
            devices=data.scope.devices or (),
            domains=data.scope.domains or {},
            rollout_id=data.scope.rollout_id or "",
            first_seen=ms_of(data.first_seen),
            last_seen=ms_of(data.last_seen),
            count_=data.count,
            rule=data.rule,
            evidence=data.evidence,
            command_ids=data.command_ids,
            jobs=data.jobs,
            closed_because=data.closed_because or "",
            waits_for=data.waits_for or "",
        )
    ]


def _command(event: Event, data: RemediationCommand, arrived_ms: int) -> list[Row]:
    return [
        Command(
            command_id=data.command_id,
            cluster=data.cluster,
            node=data.node or "",
            job_id=data.job_id or "",
            device=device_json(data.device),
            boot_id=data.boot_id or "",
            action=data.action,
            rung=data.rung,
            fault_codes=data.reason.fault_codes,
            incident_id=data.reason.incident_id,
            attributions=data.reason.attributions,
            issued_at=ms_of(data.issued_at),
            expires_at=ms_of(data.expires_at),
            finish_by=ms_of(data.finish_by),
            mode=data.mode,
            policy=data.policy,
            exclude_nodes=data.exclude_nodes or (),
            exclude_devices=data.exclude_devices or (),
            emitted=event.time_ms,
            replayed=data.replayed,
        )
    ]


def _letter(event: Event, data: DeadLetter, arrived_ms: int) -> list[Row]:
    return [
        Letter(
            topic=data.topic,
            partition=data.partition,
            offset=data.offset,
            event_id=event.id,
            time=event.time_ms,
            reason=data.reason,
            error=data.error,
            value=data.value,
            headers=data.headers,
            sha256=data.sha256 or "",
        )
    ]


def _ms_or_none(moment: datetime | None) -> int | None:
    return None if moment is None else ms_of(moment)


ANSWERS: Final[dict[Any, Any]] = {
    JobAttributed: _attributed,
    JobFinding: _finding,
    NodeState: _state,
    JobTime: _job_time,
    FleetTime: _fleet_time,
    SloStatus: _standing,
    Incident: _incident,
    RemediationCommand: _command,
    DeadLetter: _letter,
}
