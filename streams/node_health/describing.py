"""What reports and actions say of the node itself, put into its record."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from faultlens.clock import MINUTE_MS, SECOND_MS
from faultlens.codec import Event
from faultlens.events import Check, NodeHealth
from faultlens.internal import Observation
from streams.node_health.record import (
    CHECKS_MAX,
    DEVICES_MAX,
    DOMAINS_MAX,
    MISSED_INTERVALS,
    Acts,
    NodeRecord,
)

# A report may still be on its way when a node goes down.
_LAST_WORDS_MS: Final = 2 * MINUTE_MS
PASSED: Final = frozenset({"pass", "off"})


def late(record: NodeRecord, event: Event) -> int:
    """Return the time since the last count that no report vouched for, the one at hand included."""
    if not record.covered:
        return 0
    vouched_to_ms = max(record.report_ms + MISSED_INTERVALS * record.interval_ms, record.counted_ms)
    return record.late_ms + max(0, event.time_ms - vouched_to_ms)


def all_passed(report: NodeHealth) -> bool:
    """Return whether the node passed all that its agent checked."""
    for check in report.checks:  # noqa: SIM110 - every report of the fleet comes through here: a generator doubles it
        if check.status not in PASSED:
            return False
    return True


def described(record: NodeRecord, event: Event, report: NodeHealth, *, now_ms: int) -> NodeRecord:
    """Return the record with what the report says of the node itself."""
    return replace(
        record,
        cluster=report.cluster,
        pool=report.pool or record.pool,
        domains=dict(list(report.domains.items())[:DOMAINS_MAX]) or record.domains,
        gpu_family=report.gpu_family or record.gpu_family,
        driver_version=report.driver_version or record.driver_version,
        agent_version=report.agent_version,
        boot_id=report.boot_id or record.boot_id,
        host_id=report.host_id or report.provider_id or record.host_id,
        devices=report.devices[:DEVICES_MAX] if report.devices is not None else record.devices,
        gpus_total=report.gpus_total,
        gpus_allocatable=report.gpus_allocatable,
        covered=True,
        introduced=True,
        interval_ms=int(report.interval_s * SECOND_MS),
        late_ms=late(record, event),
        report_ms=event.time_ms,
        reported_ms=now_ms,
        checks=tuple(Check(c.name, c.component, c.status) for c in report.checks[:CHECKS_MAX]),
        removed=_outlived(record.removed, event.time_ms),
        down=_outlived(record.down, event.time_ms),
    )


def returned(record: NodeRecord, at_ms: int) -> tuple[NodeRecord, tuple[Observation, ...]]:
    """Return the record as no longer silent, and the silence that is over."""
    if record.silent_since_ms is None:
        return record, ()
    silences = [f for f in record.faults if (f.kind, f.code) == ("kernel", "silent") and f.open]
    over = {f.id: replace(f, open=False, until_ms=at_ms) for f in silences}
    faults = tuple(over.get(f.id, f) for f in record.faults)
    return replace(record, silent_since_ms=None, faults=faults), tuple(over.values())


def passed_since(record: NodeRecord, observation: Observation) -> bool:
    """Return whether a report later than the fault already passed the check that clears it."""
    if observation.since_ms >= record.report_ms:
        return False
    passing = {c.name for c in record.checks if c.status == "pass"}
    return any(clear.removeprefix("check:") in passing for clear in observation.clears)


def _outlived(act: Acts | None, at_ms: int) -> Acts | None:
    """Return what was done to the node unless a report from well after it shows that the node is back."""
    return None if act is None or at_ms > act.since_ms + _LAST_WORDS_MS else act


def introduced(record: NodeRecord, event: Event, cluster: str, pool: str | None, domains: dict[str, str]) -> NodeRecord:
    """Return the record with what the first event of a node that never reported says of where it is."""
    if record.introduced:
        return record
    return replace(record, introduced=True, cluster=cluster, pool=pool, domains=domains)


def _over(before: Acts | None, done: Acts) -> Acts:
    """Return whose hold on the node counts: what is done for us on top of somebody else's does not make it ours."""
    if before is None or before.command_id is not None or done.command_id is None:
        return done
    return before


def _left(hold: Acts | None, done: Acts) -> Acts | None:
    """Return the hold that a return leaves: somebody else's that began after it, when it is told late."""
    return hold if hold is not None and hold.command_id is None and hold.since_ms > done.since_ms else None


def acted(record: NodeRecord, action: str, done: Acts) -> NodeRecord:
    """Return the record after somebody's action."""
    if action == "cordon":
        return replace(record, cordon=_over(record.cordon, done))
    if action == "uncordon":
        return replace(record, cordon=_left(record.cordon, done), drain=_left(record.drain, done))
    if action == "drain":
        return replace(record, drain=_over(record.drain, done))
    if action in ("reboot", "replace"):
        return replace(record, down=done)
    if action == "remove":
        return replace(record, removed=done)
    back = replace(record, removed=None, cordon=None, drain=None)
    # One that comes back is missed only after its first report.
    return back if record.removed is None else replace(back, covered=False)
