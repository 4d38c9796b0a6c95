"""Rows of what producers said: facts about jobs, nodes and commands."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final
from zlib import crc32

import msgspec

from faultlens.clock import ms_of
from faultlens.codec import Event
from faultlens.events import (
    DeviceRef,
    JobAllocated,
    JobEnded,
    JobLabelled,
    JobPending,
    JobResized,
    JobStarted,
    JobSubmitted,
    NodeActed,
    NodeFault,
    NodeHealth,
    RemediationResult,
    Slot,
)
from sinks.tables import CommandResult, Fault, JobFact, NodeFact, Row

# Who is right about what became of a job, by the contract's envelope section.
_OFFICIAL: Final = ("scheduler/", "bridge/")
_LATEST_MS: Final = 2**43 - 1  # in the year 2248: what a precedence has room for


def device_json(device: DeviceRef | None) -> str:
    """Return what was said of a device as JSON, empty if nothing was."""
    return "" if device is None else msgspec.json.encode(device).decode()


def ordered(at_ms: int, event: Event) -> int:
    """Return a number that grows with time and never ties for two events: milliseconds, then 20 bits of their ids."""
    return min(max(at_ms, 0), _LATEST_MS) << 20 | crc32(f"{event.source}\x1f{event.id}".encode()) & 0xFFFFF


def _job_fact(event: Event, attempt: int, fact: str, arrived_ms: int, **told: Any) -> list[Row]:
    official = event.source.startswith(_OFFICIAL)
    precedence = official << 63 | ordered(arrived_ms, event)
    return [JobFact(event.subject, attempt, fact, event.source, event.id, event.time_ms, official, precedence, **told)]


def _submitted(event: Event, data: JobSubmitted, arrived_ms: int) -> list[Row]:
    return _job_fact(
        event,
        0,
        "submitted",
        arrived_ms,
        cluster=data.cluster,
        user=data.user or "",
        team=data.team or "",
        name=data.name or "",
        workload=data.workload,
        replicas=data.replicas,
        gpus=data.gpus,
        nodes=data.nodes,
        priority=data.priority,
        image=data.image or "",
        image_digest=data.image_digest or "",
        spec_hash=data.spec_hash or "",
    )


def _pending(event: Event, data: JobPending, arrived_ms: int) -> list[Row]:
    return _job_fact(event, data.attempt or 0, "pending", arrived_ms, reason=data.reason, message=data.message or "")


def _held(slots: Iterable[Slot]) -> int | None:
    """Return how many devices the slots name, None if one of them does not say which it holds."""
    counts = [len(named) if (named := slot.devices or slot.device_refs or slot.mig) else None for slot in slots]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _allocated(event: Event, data: JobAllocated, arrived_ms: int) -> list[Row]:
    return _job_fact(
        event,
        data.attempt,
        "allocated",
        arrived_ms,
        cluster=data.cluster,
        user=data.user or "",
        image_digest=data.image_digest or "",
        gpus=_held(data.allocation),
        node_names=[slot.node for slot in data.allocation],
    )


def _started(event: Event, data: JobStarted, arrived_ms: int) -> list[Row]:
    return _job_fact(event, data.attempt, "started", arrived_ms)


def _resized(event: Event, data: JobResized, arrived_ms: int) -> list[Row]:
    return _job_fact(
        event,
        data.attempt,
        "resized",
        arrived_ms,
        gpus=_held(data.allocation),
        node_names=[slot.node for slot in data.allocation],
        reason=data.reason or "",
    )


def _ended(event: Event, data: JobEnded, arrived_ms: int) -> list[Row]:
    by = data.preempted_by
    return _job_fact(
        event,
        data.attempt,
        "ended",
        arrived_ms,
        outcome=data.outcome,
        exit_code=data.exit_code,
        signal="" if data.signal is None else str(data.signal),
        reason=data.reason or "",
        message=data.message or "",
        restarts_with_attempt=data.restarts_with_attempt,
        preempted_by="" if by is None else f"{by.job_id}/{by.attempt}",
        command_id=data.command_id or "",
    )


def _labelled(event: Event, data: JobLabelled, arrived_ms: int) -> list[Row]:
    return _job_fact(
        event,
        data.attempt,
        "labelled",
        arrived_ms,
        loss=data.loss or 0,
        cause_class=data.cause_class,
        cause_code=data.code,
        told_by=data.by,
        message=data.why or "",
        node_names=[data.node] if data.node else [],
    )


def _health(event: Event, data: NodeHealth, arrived_ms: int) -> list[Row]:
    version = ordered(event.time_ms, event)
    report = NodeFact(
        data.node,
        "report",
        event.time_ms,
        version,
        data.cluster,
        pool=data.pool or "",
        boot_id=data.boot_id or "",
        domains=data.domains,
        gpu_family=data.gpu_family or "",
        host_id=data.host_id or "",
        provider_id=data.provider_id or "",
        driver_version=data.driver_version or "",
        agent_version=data.agent_version or "",
        interval_s=data.interval_s,
        gpus_total=data.gpus_total,
        gpus_allocatable=data.gpus_allocatable,
        failing=[f"{check.name}={check.status}" for check in data.checks if check.status not in {"pass", "off"}],
    )
    if data.devices is None:
        return [report]
    devices = msgspec.json.encode(data.devices).decode()
    return [report, NodeFact(data.node, "inventory", event.time_ms, version, data.cluster, devices=devices)]


def _fault(event: Event, data: NodeFault, arrived_ms: int) -> list[Row]:
    fault = Fault(
        node=data.node,
        time=event.time_ms,
        source=event.source,
        id=event.id,
        cluster=data.cluster,
        pool=data.pool or "",
        kind=data.kind,
        code=data.code,
        subcode=data.subcode or "",
        device_index=None if data.device is None else data.device.index,
        device=device_json(data.device),
        detected_by=data.detected_by,
        count_=data.count,
        synthetic=data.synthetic,
        process="" if data.process is None else msgspec.json.encode(data.process).decode(),
        message=data.message or "",
        boot_id=data.boot_id or "",
        gpu_family=data.gpu_family or "",
        driver_version=data.driver_version or "",
        arrived=arrived_ms,
    )
    node = NodeFact(
        data.node,
        "fault",
        event.time_ms,
        ordered(event.time_ms, event),
        data.cluster,
        pool=data.pool or "",
        boot_id=data.boot_id or "",
        domains=data.domains,
        gpu_family=data.gpu_family or "",
        driver_version=data.driver_version or "",
    )
    return [fault, node]


def _acted(event: Event, data: NodeActed, arrived_ms: int) -> list[Row]:
    return [
        NodeFact(
            data.node,
            "action",
            event.time_ms,
            ordered(event.time_ms, event),
            data.cluster,
            action=data.action,
            actor=data.actor,
            planned=data.planned,
        )
    ]


def _result(event: Event, data: RemediationResult, arrived_ms: int) -> list[Row]:
    return [
        CommandResult(
            command_id=data.command_id,
            at=ms_of(data.at),
            source=event.source,
            id=event.id,
            cluster=data.cluster,
            node=data.node or "",
            job_id=data.job_id or "",
            action=data.action or "",
            state=data.state,
            actuator=data.actuator,
            reason=data.reason or "",
            boot_id=data.boot_id or "",
            arrived=arrived_ms,
        )
    ]


INPUTS: Final[dict[Any, Any]] = {
    JobSubmitted: _submitted,
    JobPending: _pending,
    JobAllocated: _allocated,
    JobStarted: _started,
    JobResized: _resized,
    JobEnded: _ended,
    JobLabelled: _labelled,
    NodeHealth: _health,
    NodeFault: _fault,
    NodeActed: _acted,
    RemediationResult: _result,
}
