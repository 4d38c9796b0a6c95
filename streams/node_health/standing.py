"""Which state a node is in: an ordered table, the first line that holds decides."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, cast

from msgspec import Struct
from msgspec.structs import replace

from faultlens.clock import HOUR_MS
from faultlens.events import NodeStateName, PlatformMaintenance
from faultlens.internal import Observation
from streams.context import Context, Open, covers
from streams.node_health.conditions import is_validation
from streams.node_health.record import FORGOTTEN_AFTER_MS, MISSED_INTERVALS, NodeRecord, Standing

# Roles of open conditions that make a node degraded: what is known to be harmless does not.
# A recording may end in the middle of a node's restart.
STOPPED_MS: Final = HOUR_MS
_DEGRADING: Final = frozenset({"root", "unexpected"})
Found = tuple[int, bool, str | None, str | None]


def maintenance_of(record: NodeRecord, context: Context) -> Open[PlatformMaintenance] | None:
    """Return the maintenance that the node is in, the earliest where there are several."""
    running = [entry for entry in _maintenances(record, context) if entry.until_ms is None]
    return min(running, key=lambda entry: entry.since_ms, default=None)


def _maintenances(record: NodeRecord, context: Context) -> list[Open[PlatformMaintenance]]:
    return [
        entry
        for entry in context.maintenance.values()
        if entry.what.cluster == record.cluster
        and covers(entry.what.scope, node=record.node, pool=record.pool, domains=record.domains)
    ]


def _removed(record: NodeRecord, context: Context) -> Found | None:
    act = record.removed
    return None if act is None else (act.since_ms, True, None, None)


def _maintenance(record: NodeRecord, context: Context) -> Found | None:
    entry = maintenance_of(record, context)
    if entry is None:
        return None
    return entry.since_ms, entry.what.planned, "platform.maintenance", None


def _down(record: NodeRecord, context: Context) -> Found | None:
    act = record.down
    return None if act is None else (act.since_ms, act.planned, "platform.maintenance", None)


def _silent(record: NodeRecord, context: Context) -> Found | None:
    since = record.silent_since_ms
    return None if since is None else (since, False, "host.lost.silent", None)


def _draining(record: NodeRecord, context: Context) -> Found | None:
    act = record.drain
    return None if act is None else (act.since_ms, act.planned, None, None)


def _blocked(record: NodeRecord, context: Context) -> Found | None:
    if record.cordon is not None:
        return record.cordon.since_ms, record.cordon.planned, None, None
    missing = next((c for c in record.conditions.values() if is_validation(c)), None)
    return None if missing is None else (missing.since_ms, False, missing.cause_code, None)


def _degraded(record: NodeRecord, context: Context) -> Found | None:
    worst = worst_condition(record)
    if worst is not None:
        return worst.since_ms, False, worst.cause_code, None
    if record.gpus_allocatable < record.gpus_total:
        return record.report_ms, False, None, None
    return None


def worst_condition(record: NodeRecord) -> Observation | None:
    """Return the open condition of the highest severity that makes the node degraded, the earliest of equals."""
    bad = [c for c in record.conditions.values() if c.role in _DEGRADING and not c.synthetic]
    return min(bad, key=lambda c: (-c.severity, c.since_ms, c.id), default=None)


STATES: Final[tuple[tuple[NodeStateName, Callable[[NodeRecord, Context], Found | None]], ...]] = (
    ("removed", _removed),
    ("maintenance", _maintenance),
    ("down", _down),
    ("silent", _silent),
    ("draining", _draining),
    ("blocked", _blocked),
    ("degraded", _degraded),
)


_RANKS: Final = {state: rank for rank, state in enumerate([*(state for state, _ in STATES), "available"])}


def stand(record: NodeRecord, context: Context, at_ms: int) -> Standing:
    """Return the state the node is in, by what was learnt at `at_ms`.

    A state began when its cause did, but never before what was already counted.
    """
    ended_ms = _ended_ms(record, context, at_ms)
    for state, holds in STATES:
        found = holds(record, context)
        if found is not None:
            since_ms, planned, cause, incident_id = found
            return _settled(record, Standing(
                state, since_ms, planned, record.gpus_total, record.gpus_allocatable, cause, incident_id, record.pool
            ), ended_ms)  # fmt: skip
    standing = Standing(
        "available", ended_ms, False, record.gpus_total, record.gpus_allocatable, pool=record.pool
    )  # fmt: skip
    return _settled(record, standing, ended_ms)


def _ended_ms(record: NodeRecord, context: Context, at_ms: int) -> int:
    """Return when the state before ended, if it is over: maintenance when that was said, others as it is learnt."""
    if record.standing is None or record.standing.state != "maintenance":
        return at_ms
    ends = [e.until_ms for e in _maintenances(record, context) if e.until_ms is not None and e.until_ms <= at_ms]
    return max(ends, default=at_ms)


def _settled(record: NodeRecord, standing: Standing, ended_ms: int) -> Standing:
    """Return the standing with its beginning put right against the one before it."""
    before = record.standing
    if before is None:
        # The node is counted from here on, whatever its clock says and however long the cause has been there.
        return replace(standing, since_ms=record.counted_ms)
    same = (before.state, before.planned) == (standing.state, standing.planned)
    floor_ms = max(before.since_ms, record.counted_ms)
    if _RANKS[standing.state] > _RANKS[before.state]:
        floor_ms = max(floor_ms, ended_ms)
    since_ms = before.since_ms if same else max(standing.since_ms, floor_ms)
    described = (standing.gpus_total, standing.gpus_allocatable, standing.pool)
    if same and (before.gpus_total, before.gpus_allocatable, before.pool) != described:
        since_ms = max(record.report_ms, floor_ms)
    return Standing(
        standing.state, since_ms, standing.planned, standing.gpus_total, standing.gpus_allocatable,
        standing.cause, standing.incident_id, standing.pool,
    )  # fmt: skip


def forgotten_ms(record: NodeRecord) -> int | None:
    """Return when a node is forgotten if nothing more is heard of it; None: not as long as it is as it is.

    That is one which was removed, or whose reports have ceased, or of which only allocations are known. One that a
    scheduler speaks of stays: it says so when a node goes.
    """
    spoken_of = record.introduced and not record.covered
    if record.held or (spoken_of and record.removed is None):
        return None
    return max(record.heard_ms, record.reported_ms) + FORGOTTEN_AFTER_MS


def stopped_reporting(states: Iterable[tuple[str, Struct]], at_ms: int) -> dict[str, int]:
    """Return the nodes whose health reports ended well before `at_ms` and that nobody removed, with the last one's
    arrival: their time since then counts as lost."""
    records = ((name, cast("NodeRecord", state)) for name, state in states)
    return {
        name: record.reported_ms
        for name, record in records
        if record.covered
        and record.removed is None
        and at_ms - record.reported_ms > max(STOPPED_MS, MISSED_INTERVALS * record.interval_ms)
    }
