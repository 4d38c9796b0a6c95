"""Which jobs met an application-like code on which device: what tells a broken device from a broken program."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from faultlens.clock import MINUTE_MS, SECOND_MS
from faultlens.events import DeviceRef
from faultlens.internal import Held, Observation, OtherUse, Released
from streams.node_health.conditions import whole_or_same_device
from streams.node_health.judging import device_key
from streams.node_health.record import USE_KEYS_MAX, USES_KEPT_MS, USES_MAX, NodeRecord, Use, index_of

# The clocks of a node and of who allocates it differ by seconds; a kernel log may come minutes after a job's end.
_SKEW_MS = 10 * SECOND_MS
_LAG_MS = 2 * MINUTE_MS


def use_key(record: NodeRecord, observation: Observation) -> str:
    """Return code and device, by what stays with the GPU when the node is renamed."""
    device = observation.device
    stays = None if device is None else device.uuid or device.serial
    return f"{observation.code}@{stays or device_key(device)}"


def by_fault(record: NodeRecord, observation: Observation) -> NodeRecord:
    """Return the record with the jobs that held the device noted as having met the code there."""
    if not _tells(record, observation):
        return record
    holders: list[Held | Released] = [*record.held.values(), *(r for r in record.released if r.loss is None)]
    met = [_met(record, holder, observation) for holder in holders]
    key = use_key(record, observation)
    return _with(record, key, (*record.uses.get(key, ()), *(use for use in met if use is not None)))


def by_holder(record: NodeRecord, holder: Held | Released) -> NodeRecord:
    """Return the record with the codes that the holder met; what was noted of a time it did not hold is taken back.

    The allocation may arrive after the faults, and when it ended may be known only after that.
    """
    attempt = (holder.job_id, holder.attempt)
    met: dict[str, list[Use]] = {
        key: [use for use in uses if (use.job_id, use.attempt) != attempt or _holds(holder, use.at_ms)]
        for key, uses in record.uses.items()
    }
    for fault in record.faults:
        use = _met(record, holder, fault) if _tells(record, fault) else None
        if use is not None:
            met.setdefault(use_key(record, fault), []).append(use)
    for key, uses in met.items():
        record = _with(record, key, uses)
    return record


def _tells(record: NodeRecord, observation: Observation) -> bool:
    return observation.role == "application" and index_of(record, observation.device) is not None


def _holds(holder: Held | Released, at_ms: int) -> bool:
    ended = isinstance(holder, Released) and at_ms > holder.at_ms + _LAG_MS
    return at_ms >= holder.since_ms - _SKEW_MS and not ended


def _met(record: NodeRecord, holder: Held | Released, fault: Observation) -> Use | None:
    """Return that the holder met the fault; None: not on its devices, or not in its time."""
    at_ms = max(fault.since_ms, min(fault.last_ms, holder.since_ms - _SKEW_MS))
    if not _holds(holder, at_ms) or not whole_or_same_device(record, fault, holder):
        return None
    brought = isinstance(holder, Released) and fault.cause_code in holder.brought
    return Use(holder.job_id, holder.attempt, holder.user or holder.job_id, holder.image or "", at_ms, brought)


def _with(record: NodeRecord, key: str, uses: Iterable[Use]) -> NodeRecord:
    """Return the record with these uses of a key: each attempt's first, of too many the newest."""
    first: dict[tuple[str, int], Use] = {}
    for use in sorted(uses, key=lambda use: (use.at_ms, use.job_id, use.attempt, use.brought)):
        earliest = first.setdefault((use.job_id, use.attempt), use)
        if use.brought and not earliest.brought:
            first[use.job_id, use.attempt] = replace(earliest, brought=True)
    newest_ms = max((use.at_ms for use in first.values()), default=0)
    kept = tuple(use for use in first.values() if newest_ms - use.at_ms <= USES_KEPT_MS)[-USES_MAX:]
    if kept == record.uses.get(key, ()):
        return record
    known = {name: users for name, users in record.uses.items() if name != key}
    if kept:
        known[key] = kept
    while len(known) > USE_KEYS_MAX:
        known.pop(next(iter(known)))
    return replace(record, uses=known)


def others(record: NodeRecord, job_id: str, attempt: int, observations: Iterable[Observation]) -> list[OtherUse]:
    """Return which other jobs met the same application-like code on the same device before this attempt did.

    A job that met it on several devices, of this node or others, says nothing against one of them: a program does that.
    """
    found = []
    for observation in observations:
        if observation.role != "application":
            continue
        uses = record.uses.get(use_key(record, observation), ())
        own_ms = next((u.at_ms for u in uses if (u.job_id, u.attempt) == (job_id, attempt)), observation.since_ms)
        for use in uses:
            before = use.job_id != job_id and 0 < own_ms - use.at_ms <= USES_KEPT_MS
            if before and not use.brought and _devices_met(record, observation.code, use) == 1:
                device = observation.device or DeviceRef()
                other = OtherUse(observation.code, device, use.job_id, use.user, use.image, use.at_ms, record.node)
                found.append(other)
    return found


def _devices_met(record: NodeRecord, code: str, use: Use) -> int:
    """Return on how many devices the attempt met the code."""
    keys = [key for key in record.uses if key.partition("@")[0] == code]
    attempt = (use.job_id, use.attempt)
    return sum(any((u.job_id, u.attempt) == attempt for u in record.uses[key]) for key in keys)


def met_later(before: NodeRecord, record: NodeRecord) -> list[Observation]:
    """Return the faults whose other uses may be others than before: who met them must be told again.

    What a job met on one device changes what it says of another one.
    """
    changed: dict[str, int] = {}
    for key in {*before.uses, *record.uses}:
        if before.uses.get(key) != record.uses.get(key):
            first_ms = min(use.at_ms for use in {*before.uses.get(key, ())} ^ {*record.uses.get(key, ())})
            code = key.partition("@")[0]
            changed[code] = min(first_ms, changed.get(code, first_ms))
    return [
        fault
        for fault in record.faults
        if _tells(record, fault) and (since_ms := changed.get(fault.code)) is not None and fault.last_ms > since_ms
    ]
