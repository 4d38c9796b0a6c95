"""What a node's time was: samples for the objectives, and what its GPUs were used for."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from streams.node_health.record import MISSED_INTERVALS, NodeRecord, Standing
from streams.processor import Emit
from streams.samples import NodeTime, node_samples, sample_emits, use_samples

_TAKING_WORK: Final = frozenset({"available", "degraded"})
_REST_OF: Final = {
    "draining": "draining",
    "maintenance": "maintenance",
    "down": "down",
    "silent": "unknown",
    "removed": "down",
}


def counted(record: NodeRecord, to_ms: int) -> tuple[NodeRecord, list[Emit]]:
    """Return the record with its time counted up to `to_ms` in the standing it has, and the samples that say so."""
    standing = record.standing
    if standing is None or to_ms <= record.counted_ms:
        return record, []
    from_ms = record.counted_ms
    time = NodeTime(
        cluster=record.cluster,
        pool=standing.pool,
        from_ms=from_ms,
        to_ms=to_ms,
        state=standing.state,
        planned=standing.planned,
        gpus_total=standing.gpus_total,
        gpus_allocatable=standing.gpus_allocatable,
        cause=standing.cause,
        covered=record.covered,
        late_ms=_late_ms(record, from_ms, to_ms),
    )
    emits = sample_emits(node_samples(time), about=record.node, time_ms=to_ms)
    return replace(record, counted_ms=to_ms, late_ms=0), emits


def _late_ms(record: NodeRecord, from_ms: int, to_ms: int) -> int:
    """Return how long of the interval no report vouched for: a report vouches for the next three intervals."""
    vouched_to_ms = record.report_ms + MISSED_INTERVALS * record.interval_ms
    still_late_ms = max(0, to_ms - max(from_ms, vouched_to_ms)) if record.covered else 0
    return min(to_ms - from_ms, record.late_ms + still_late_ms)


def next_count(at_ms: int, every_ms: int) -> int:
    """Return the next full multiple of `every_ms` after `at_ms`."""
    return (at_ms // every_ms + 1) * every_ms


def used(record: NodeRecord, to_ms: int) -> NodeRecord:
    """Return the record with the use of its GPUs added up to `to_ms`."""
    standing = record.standing
    if standing is None or not record.covered or standing.gpus_total == 0 or to_ms <= record.use_to_ms:
        return record
    if record.use_to_ms == 0:
        return replace(record, use_from_ms=to_ms, use_to_ms=to_ms)
    span_ms = to_ms - record.use_to_ms
    use_ms = dict(record.use_ms)
    for use, gpus in _uses(record, standing).items():
        if gpus:
            use_ms[use] = use_ms.get(use, 0) + gpus * span_ms
    return replace(record, use_ms=use_ms, use_to_ms=to_ms)


def _uses(record: NodeRecord, standing: Standing) -> dict[str, int]:
    """Return what each GPU of the node is used for now; they add up to its total."""
    total = standing.gpus_total
    allocated = min(total, sum(held.gpus for held in record.held.values()))
    rest = total - allocated
    if standing.state in _TAKING_WORK:
        healthy = max(0, min(rest, standing.gpus_allocatable - allocated))
        return {"allocated": allocated, "idle_healthy": healthy, "in_repair": rest - healthy}
    if standing.state != "blocked":
        return {"allocated": allocated, _REST_OF[standing.state]: rest}
    if any(c.kind == "check" and c.code == "validation" for c in record.conditions.values()):
        return {"allocated": allocated, "admission": rest}
    hit = {c.device.index for c in record.conditions.values() if c.device and c.device.index is not None}
    broken = min(rest, len(hit))
    return {"allocated": allocated, "blocked": broken or rest, "stranded": rest - broken if broken else 0}


def use_flushed(record: NodeRecord) -> tuple[NodeRecord, list[Emit]]:
    """Return the record with nothing left to tell of the use of its GPUs, and the record that tells it."""
    if not record.use_ms or record.use_to_ms <= record.use_from_ms:
        return record, []
    samples = use_samples(
        cluster=record.cluster,
        pool=record.pool,
        from_ms=record.use_from_ms,
        to_ms=record.use_to_ms,
        gpu_ms=record.use_ms,
    )
    emits = sample_emits(samples, about=record.node, time_ms=record.use_to_ms)
    return replace(record, use_ms={}, use_from_ms=record.use_to_ms), emits
