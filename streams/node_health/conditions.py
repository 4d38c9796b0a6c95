"""Open conditions of a node: what opens them, what clears them, and the last hour of faults, folded."""

from __future__ import annotations

from msgspec.structs import replace

from faultlens.catalogue import Catalogue
from faultlens.codec import Event
from faultlens.events import Check, NodeHealth
from faultlens.internal import Held, Observation, Released
from streams.node_health.judging import LASTING, device_key, device_of, of_check
from streams.node_health.record import (
    CONDITIONS_MAX,
    FAULTS_KEPT_MS,
    FAULTS_MAX,
    NodeRecord,
    index_of,
)
from streams.weighing import weight

_HEALTHY = frozenset({"pass", "off"})


def condition_id(observation: Observation) -> str:
    """Return what tells conditions of one node apart: the kind, the code and the device."""
    return f"{observation.kind}:{observation.code}:{device_key(observation.device)}"


def folded(record: NodeRecord, observation: Observation) -> tuple[NodeRecord, Observation, bool]:
    """Return the record with the fault among its recent ones, the fault as folded, and whether it is a new entry.

    The same code on the same device is one entry with a count: 800,000 of one code take the room of one. What comes
    back after it was cured is another one.
    """
    key, horizon_ms = _fold_key(observation), max(f.last_ms for f in (*record.faults, observation)) - FAULTS_KEPT_MS
    kept = [fault for fault in record.faults if fault.last_ms >= horizon_ms]
    for at, fault in enumerate(kept):
        if _fold_key(fault) == key and not _cured_before(fault, observation):
            merged = replace(
                fault,
                since_ms=min(fault.since_ms, observation.since_ms),
                last_ms=max(fault.last_ms, observation.last_ms),
                until_ms=None if fault.until_ms is None else max(fault.until_ms, observation.until_ms or 0),
                count=fault.count + observation.count,
            )
            kept[at] = merged
            earlier = merged.since_ms < fault.since_ms
            return replace(record, faults=tuple(kept)), merged, earlier
    return _noted(replace(record, faults=tuple(kept)), (observation,)), observation, True


def _noted(record: NodeRecord, observations: tuple[Observation, ...]) -> NodeRecord:
    """Return the record with the observations among its recent faults; of too many the least telling are dropped."""
    faults = [*record.faults, *observations]
    overflow = max(0, len(faults) - FAULTS_MAX)
    for _ in range(overflow):
        del faults[_least(faults)]
    return replace(record, faults=tuple(faults), overflow=record.overflow + overflow)


def _least(faults: list[Observation]) -> int:
    """Return the place of the first one that came back later, else of the one that weighs least."""
    newest = {condition_id(fault): at for at, fault in enumerate(faults)}
    came_back = (at for at, fault in enumerate(faults) if newest[condition_id(fault)] != at)
    return next(came_back, min(range(len(faults)), key=lambda at: weight(faults[at])))


def _cured_before(fault: Observation, observation: Observation) -> bool:
    lasts = fault.role in LASTING and fault.clears != ("once",)
    return lasts and fault.until_ms is not None and fault.until_ms <= observation.since_ms


def _fold_key(observation: Observation) -> tuple[str, ...]:
    # A fault of a later minute may be another job's; the same storm is one entry.
    minute = ""
    if observation.role in ("application", "sympathetic"):
        minute = str(observation.since_ms // 600_000)
    elif observation.clears == ("once",):  # it happened and was over: what comes later is another one
        minute = str(observation.since_ms // 60_000)
    return observation.kind, observation.code, observation.subcode or "", device_key(observation.device), minute


def is_validation(observation: Observation) -> bool:
    """Return whether this is the check that holds a node back until it has passed it; it accuses nothing."""
    return observation.kind == "check" and observation.code == "validation"


def opened(record: NodeRecord, observation: Observation) -> tuple[NodeRecord, Observation | None]:
    """Return the record with the condition open, and the condition when it is new or began earlier than known."""
    lasts = observation.role in LASTING or is_validation(observation)
    if not observation.open or not lasts or observation.synthetic:
        return record, None
    key = condition_id(observation)
    known = record.conditions.get(key)
    if known is not None and known.since_ms <= observation.since_ms:
        return record, None
    conditions = {**record.conditions, key: observation}
    if len(conditions) <= CONDITIONS_MAX:
        return replace(record, conditions=conditions), observation
    least = min(conditions, key=lambda name: weight(conditions[name]))
    del conditions[least]
    record = replace(record, conditions=conditions, overflow=record.overflow + 1)
    return record, None if least == key else observation


def before_this_boot(record: NodeRecord, event: Event, boot_id: str | None) -> bool:
    """Return whether the fault belongs to an earlier boot: it explains failures but is no condition now."""
    if boot_id is not None and record.boot_id is not None and boot_id != record.boot_id:
        return record.report_ms > event.time_ms
    return record.boot_ms is not None and event.time_ms < record.boot_ms


def cleared_by_a_person(record: NodeRecord, at_ms: int) -> tuple[NodeRecord, tuple[Observation, ...]]:
    """Return the record without its conditions, since somebody put the node back to work; what still fails returns.

    Its checks are forgotten too, so that the next report is not taken for one that says nothing new.
    """
    return without(
        replace(record, checks=()), [key for key, c in record.conditions.items() if c.since_ms <= at_ms], at_ms
    )


def cleared_by_boot(record: NodeRecord, at_ms: int) -> tuple[NodeRecord, tuple[Observation, ...]]:
    """Return the record without the conditions that a restart cures, and these with the time of their cure."""
    return without(record, [key for key, c in record.conditions.items() if _cured_by_boot(c)], at_ms)


def _cured_by_boot(condition: Observation) -> bool:
    return condition.kind == "check" or "boot" in condition.clears


def cleared_by_checks(
    record: NodeRecord, checks: tuple[Check, ...], at_ms: int
) -> tuple[NodeRecord, tuple[Observation, ...]]:
    """Return the record without what these checks say is over, and the conditions that are."""
    if not record.conditions:
        return record, ()
    failing = {(c.name, device_key(device_of(c))) for c in checks if c.status not in _HEALTHY}
    known = {c.name for c in checks}
    # A check that stopped passing on any device does not vouch for the others, and one that is off for nothing.
    passing = {c.name for c in checks if c.status == "pass"} - {name for name, _ in failing}
    over = [
        key
        for key, condition in record.conditions.items()
        if condition.last_ms < at_ms and _is_over(condition, passing=passing, known=known, failing=failing)
    ]
    return without(record, over, at_ms)


def _is_over(condition: Observation, *, passing: set[str], known: set[str], failing: set[tuple[str, str]]) -> bool:
    if condition.kind == "check":
        return condition.code in known and (condition.code, device_key(condition.device)) not in failing
    if "check:*" in condition.clears:
        return not failing
    return any(clear.removeprefix("check:") in passing for clear in condition.clears if clear.startswith("check:"))


def without(record: NodeRecord, keys: list[str], at_ms: int) -> tuple[NodeRecord, tuple[Observation, ...]]:
    """Return the record without the conditions of these keys, over at `at_ms`, and them."""
    if not keys:
        return record, ()
    over = tuple(_ended(record.conditions[key], at_ms) for key in keys)
    left = {key: condition for key, condition in record.conditions.items() if key not in keys}
    faults = tuple(_ended(f, at_ms) if f.open and condition_id(f) in keys else f for f in record.faults)
    # An attempt whose allocation is yet to arrive may have met what is over now.
    known = {fault.id for fault in faults}
    record = replace(record, conditions=left, faults=faults)
    return _noted(record, tuple(condition for condition in over if condition.id not in known)), over


def _ended(condition: Observation, at_ms: int) -> Observation:
    return replace(condition, open=False, until_ms=max(at_ms, condition.since_ms))


def failing_checks(
    catalogue: Catalogue, record: NodeRecord, event: Event, report: NodeHealth, *, now_ms: int
) -> list[Observation]:
    """Return an observation for every check that did not pass, and for every one that vanished without `off`."""
    found = [
        of_check(catalogue, record, event, check, now_ms=now_ms)
        for check in report.checks
        if check.status not in _HEALTHY
    ]
    return found + [of_check(catalogue, record, event, check, now_ms=now_ms) for check in _vanished(record, report)]


def _vanished(record: NodeRecord, report: NodeHealth) -> list[Check]:
    """Return the checks that the node's last report had and this one lacks, as missing."""
    if report.agent_version != record.agent_version or report.parts is not None:
        return []
    present = {check.name for check in report.checks}
    gone = {check.name: check for check in record.checks if check.name not in present and check.status != "off"}
    still = {c.code for c in record.conditions.values() if c.kind == "check" and c.message == _VANISHED}
    return [_missing(check) for check in gone.values()] + [
        Check(name=name, component="agent", status="missing", message=_VANISHED) for name in sorted(still - present)
    ]


_VANISHED = "the check is no longer reported"


def _missing(check: Check) -> Check:
    return Check(name=check.name, component=check.component, status="missing", message=_VANISHED)


def whole_or_same_device(record: NodeRecord, observation: Observation, holder: Held | Released) -> bool:
    """Return whether the observation concerns a holder of devices; True where it is not known which ones it holds."""
    device = observation.device
    if observation.whole_node:
        return True
    if holder.refs is not None and device is not None and device.dra is not None:
        return f"{device.dra.driver}/{device.dra.pool}/{device.dra.device}" in holder.refs
    index = index_of(record, device)
    return holder.devices is None or index is None or index in holder.devices
