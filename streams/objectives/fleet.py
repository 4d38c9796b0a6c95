"""What the GPUs of a cluster or pool were used for, by the hour."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from faultlens import topics
from faultlens.clock import HOUR_MS, MINUTE_MS, SECOND_MS, moment_of
from faultlens.codec import stable_id
from faultlens.events import FleetTime
from faultlens.internal import UseSample
from streams.processor import Emit

# Hours that late records can still change.
HOURS_KEPT: Final = 48
# An hour is told so long after its end, when all nodes have told of it.
GRACE_MS: Final = 5 * MINUTE_MS


class FleetHours(Struct, frozen=True, omit_defaults=True, tag="fleet"):
    """GPU-milliseconds by use, by the number of the hour since the epoch; `dirty` are the hours to tell (again).

    `late` counts records about hours that are no longer kept.
    """

    cluster: str
    pool: str | None = None
    hours: dict[int, dict[str, int]] = {}
    dirty: tuple[int, ...] = ()
    told_ms: int = 0
    late: int = 0


def used(fleet: FleetHours, sample: UseSample, now_ms: int) -> FleetHours:
    """Return the hours with a sample added, spread evenly over its time."""
    oldest = now_ms // HOUR_MS - HOURS_KEPT
    hours = {hour: uses for hour, uses in fleet.hours.items() if hour >= oldest}
    dirty, late = {hour for hour in fleet.dirty if hour >= oldest}, 0
    span_ms = sample.to_ms - sample.from_ms
    for hour in range(sample.from_ms // HOUR_MS, (max(sample.from_ms, sample.to_ms - 1)) // HOUR_MS + 1):
        if hour < oldest:
            late = 1
            continue
        ahead_ms = max(0, hour * HOUR_MS - sample.from_ms)
        until_ms = min(span_ms, (hour + 1) * HOUR_MS - sample.from_ms)
        uses = dict(hours.get(hour, {}))
        for use, amount in sample.gpu_ms.items():
            part = amount * until_ms // span_ms - amount * ahead_ms // span_ms if span_ms > 0 else amount
            uses[use] = uses.get(use, 0) + part
        hours[hour] = uses
        dirty.add(hour)
    return replace(fleet, hours=hours, dirty=tuple(sorted(dirty)), late=fleet.late + late)


def due_ms(fleet: FleetHours, now_ms: int) -> int | None:
    """Return when the next hour is to be told; None: all are."""
    if not fleet.dirty:
        return None
    over_ms = (fleet.dirty[0] + 1) * HOUR_MS + GRACE_MS
    return over_ms if over_ms > now_ms else (now_ms // GRACE_MS + 1) * GRACE_MS


def told(fleet: FleetHours, key: str, now_ms: int, *, unfinished: bool = False) -> tuple[FleetHours, list[Emit]]:
    """Return the records of hours that are over and changed (`unfinished`: of all that changed)."""
    ready = [hour for hour in fleet.dirty if unfinished or (hour + 1) * HOUR_MS + GRACE_MS <= now_ms]
    left = tuple(hour for hour in fleet.dirty if hour not in ready)
    at_ms = max(now_ms, fleet.told_ms + 1)
    emits = [_record(fleet, key, hour, at_ms) for hour in ready]
    return replace(fleet, dirty=left, told_ms=at_ms if emits else fleet.told_ms), emits


def _record(fleet: FleetHours, key: str, hour: int, at_ms: int) -> Emit:
    data = FleetTime(
        fleet.cluster,
        moment_of(hour * HOUR_MS),
        moment_of((hour + 1) * HOUR_MS),
        _seconds(sorted(fleet.hours.get(hour, {}).items())),
        fleet.pool,
    )
    return Emit(topics.FLEET_TIME, fleet.cluster, stable_id(key, hour, at_ms), at_ms, data)


def _seconds(uses: Iterable[tuple[str, int]]) -> dict[str, float]:
    return {use: amount / SECOND_MS for use, amount in uses if amount}
