"""What a report or fault means: observations, judged by the catalogue for this family and driver."""

from __future__ import annotations

from typing import Any

from faultlens.catalogue import Catalogue, Judgement
from faultlens.causes import class_of
from faultlens.clock import SECOND_MS
from faultlens.codec import Event, stable_id
from faultlens.events import Check, DeviceRef, NodeActed, NodeFault
from faultlens.internal import Observation
from streams.node_health.record import NodeRecord, index_of, named

_MESSAGE_CHARS = 200
# Roles that open a condition; the rest happens and is over.
LASTING = frozenset({"root", "unexpected", "trend"})
# Driver firmware takes the fault of a whole boot; a restart that nobody announced is the loss of the host.
_REBOOT_SEVERITY = 45
_SILENT_SEVERITY = 40
_ACT_SEVERITY = 55


def device_of(check: Check) -> DeviceRef | None:
    """Return the device that a check names: an index, a name such as `mlx5_0` (kept as link), or a reference."""
    if check.device is None or isinstance(check.device, DeviceRef):
        return check.device
    if isinstance(check.device, int):
        return DeviceRef(index=check.device)
    if check.device.isdigit():
        return DeviceRef(index=int(check.device))
    return DeviceRef(link=check.device)


def device_key(device: DeviceRef | None) -> str:
    """Return what tells devices of one node apart."""
    if device is None:
        return "-"
    if device.index is not None:
        return f"{device.index}{':' + str(device.link) if device.link is not None else ''}"
    dra = f"{device.dra.driver}/{device.dra.pool}/{device.dra.device}" if device.dra is not None else None
    return str(device.uuid or device.pci or device.serial or dra or device.link or "-")


def of_fault(catalogue: Catalogue, record: NodeRecord, event: Event, fault: NodeFault, *, now_ms: int) -> Observation:
    """Return the fault as an observation; its device is named from the inventory where that is possible."""
    family, driver = fault.gpu_family or record.gpu_family, fault.driver_version or record.driver_version
    judgement = catalogue.resolve(fault.kind, fault.code, subcode=fault.subcode, family=family, driver=driver)
    device = named(record, fault.device)
    role, lasts = _role(record, event, judgement), judgement.clears != ("once",)
    judged = _judged(judgement)
    if judgement.cause_after_reset is not None and _came_back(record, event, judgement, device):
        judged |= {"cause_code": judgement.cause_after_reset, "cause_class": class_of(judgement.cause_after_reset)}
    return Observation(
        id=event.id,
        source=event.source,
        node=record.node,
        kind=fault.kind,
        code=fault.code,
        subcode=fault.subcode,
        since_ms=event.time_ms,
        last_ms=event.time_ms,
        arrived_ms=now_ms,
        device=device,
        whole_node=judgement.scope == "node" or _nowhere(record, device, fault.kind),
        role=role,
        synthetic=fault.synthetic,
        count=fault.count,
        message=(fault.message or "")[:_MESSAGE_CHARS] or None,
        pid=fault.process.pid if fault.process else None,
        domains=fault.domains or record.domains,
        gpu_family=family,
        driver_version=driver,
        open=lasts and role in LASTING,
        until_ms=None if lasts else event.time_ms,
        **judged,
    )


def _came_back(record: NodeRecord, event: Event, judgement: Judgement, device: DeviceRef | None) -> bool:
    """Return whether the device had a fault of this cause before the node restarted."""
    if record.boot_ms is None or not record.boot_ms <= event.time_ms or index_of(record, device) is None:
        return False
    causes = (judgement.cause_code, judgement.cause_after_reset)
    before = [f for f in record.faults if f.cause_code in causes and f.last_ms < record.boot_ms and not f.synthetic]
    return any(_same_device(fault.device, device) for fault in before)


def _same_device(one: DeviceRef | None, other: DeviceRef | None) -> bool:
    if one is None or other is None or one.uuid is None or other.uuid is None:
        return device_key(one) == device_key(other)
    return one.uuid == other.uuid


def _nowhere(record: NodeRecord, device: DeviceRef | None, kind: str) -> bool:
    if device is not None and device.dra is not None:
        return False
    return kind not in ("xid", "sxid", "gpu_memory", "nvlink") or index_of(record, device) is None


def _role(record: NodeRecord, event: Event, judgement: Judgement) -> str:
    """Return the role; informational within the boot phase of a code and before the first allocation."""
    in_boot = record.boot_ms is not None and 0 <= event.time_ms - record.boot_ms <= judgement.boot_phase_s * 1000
    return "informational" if judgement.boot_phase_s and in_boot and not record.held else judgement.role


def _judged(judgement: Judgement) -> dict[str, Any]:
    return {
        "cause_class": judgement.cause_class,
        "cause_code": judgement.cause_code,
        "severity": judgement.severity,
        "meaning": judgement.meaning,
        "hint": judgement.action_hint,
        "scope": judgement.scope,
        "yields_to": judgement.yields_to,
        "clears": judgement.clears,
        "fatal": judgement.fatal_to_job,
        "acts_late": judgement.acts_late,
        "latent_ms": judgement.latent_s * SECOND_MS,
        "known": judgement.known,
    }


def of_check(catalogue: Catalogue, record: NodeRecord, event: Event, check: Check, *, now_ms: int) -> Observation:
    """Return a check that did not pass as an observation that stays open until it passes."""
    judgement = catalogue.resolve_check(check.name, check.component, check.status, check.code)
    device = named(record, device_of(check))
    key = device_key(device)
    return Observation(
        id=stable_id(record.node, "check", check.name, key, event.time_ms),
        source=event.source,
        node=record.node,
        kind="check",
        code=check.name,
        subcode=f"{check.status}/{check.code}" if check.code else check.status,
        since_ms=event.time_ms,
        last_ms=event.time_ms,
        arrived_ms=now_ms,
        device=device,
        whole_node=device is None or device.index is None,
        role=judgement.role,
        message=(check.message or "")[:_MESSAGE_CHARS] or None,
        domains=record.domains,
        gpu_family=record.gpu_family,
        driver_version=record.driver_version,
        open=True,
        **_judged(judgement),
    )


def of_reboot(record: NodeRecord, event: Event, *, now_ms: int) -> Observation:
    """Return that the node restarted some time between its last report and this one."""
    planned = record.down is not None
    cause = ("platform", "platform.maintenance") if planned else ("hardware", "host.lost.rebooted")
    return Observation(
        id=stable_id(record.node, "rebooted", event.time_ms),
        source=event.source,
        node=record.node,
        kind="kernel",
        code="rebooted",
        since_ms=record.report_ms or event.time_ms,
        last_ms=event.time_ms,
        until_ms=event.time_ms,
        arrived_ms=now_ms,
        cause_class=cause[0],
        cause_code=cause[1],
        role="root",
        severity=_REBOOT_SEVERITY,
        meaning="the node restarted",
        whole_node=True,
        scope="node",
        awaited=_takes_no_work(record),
        domains=record.domains,
    )


def _takes_no_work(record: NodeRecord) -> bool:
    """Return whether the node was held back from new work, so that whoever restarted it waited for its jobs to end."""
    held_back = record.cordon is not None or record.drain is not None
    return held_back or (record.gpus_total > 0 and record.gpus_allocatable == 0)


def of_silence(record: NodeRecord, since_ms: int, *, now_ms: int) -> Observation:
    """Return that the node stopped reporting while most of its cluster went on."""
    return Observation(
        id=stable_id(record.node, "silent", record.report_ms),
        source=f"agent/{record.node}",
        node=record.node,
        kind="kernel",
        code="silent",
        since_ms=record.report_ms,
        last_ms=since_ms,
        arrived_ms=now_ms,
        cause_class="hardware",
        cause_code="host.lost.silent",
        role="root",
        severity=_SILENT_SEVERITY,
        meaning="the node fell silent",
        whole_node=True,
        scope="node",
        open=True,
        domains=record.domains,
    )


_ACT_MEANING = {
    "drain": ("drained", "platform.eviction"),
    "reboot": ("rebooted by hand", "platform.maintenance"),
    "replace": ("replaced", "platform.maintenance"),
    "remove": ("removed", "platform.maintenance"),
}


def of_act(record: NodeRecord, event: Event, act: NodeActed, *, now_ms: int) -> Observation | None:
    """Return what somebody did to the node, when it can end jobs."""
    if act.action not in _ACT_MEANING:
        return None
    meaning, code = _ACT_MEANING[act.action]
    if act.planned:
        code = "platform.maintenance"
    if act.command_id is not None:
        code = "platform.remediation"
    return Observation(
        id=event.id,
        source=event.source,
        node=record.node,
        kind="other",
        code=f"act_{act.action}",
        since_ms=event.time_ms,
        last_ms=event.time_ms,
        until_ms=event.time_ms,
        arrived_ms=now_ms,
        cause_class="platform",
        cause_code=code,
        role="root",
        severity=_ACT_SEVERITY,
        meaning=f"{meaning} by {act.actor}",
        message=act.reason,
        whole_node=True,
        scope="node",
        domains=record.domains,
    )
