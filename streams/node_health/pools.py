"""Which pool of nodes an attempt counts for: what its nodes tell it of theirs."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from faultlens.internal import Held, Released
from streams.node_health.record import POOLS_MAX, NodeRecord, holding_key
from streams.node_health.routing import evidence
from streams.processor import Emit

Pools = tuple[tuple[int, str], ...]
_ENDLESS_MS: Final = 1 << 62


def in_force(pools: Pools, since_ms: int, until_ms: int) -> str:
    """Return the pool at `since_ms`, else the first one that is known of before `until_ms`; empty: none is."""
    earlier = [pool for from_ms, pool in pools if from_ms <= since_ms]
    if earlier:
        return earlier[-1]
    return next((pool for from_ms, pool in pools if from_ms < until_ms), "")


def of_attempt(record: NodeRecord, holder: Held | Released) -> str:
    """Return the pool that the attempt has the node's devices of, as far as its end is known; empty: none is known."""
    return _of(record.pools, holder)


def _of(pools: Pools, holder: Held | Released) -> str:
    until_ms = holder.at_ms if isinstance(holder, Released) and holder.loss is None else _ENDLESS_MS
    return in_force(pools, holder.since_ms, until_ms)


def stood(record: NodeRecord, now_ms: int) -> tuple[NodeRecord, list[Emit]]:
    """Return the record with the pool of its new standing noted, and the word to attempts for which that is news."""
    standing = record.standing
    if standing is None or not standing.pool or (record.pools and record.pools[-1][1] == standing.pool):
        return record, []
    kept = tuple(entry for entry in record.pools if entry[0] < standing.since_ms)
    pools = (*kept, (standing.since_ms, standing.pool))[-POOLS_MAX:]
    holders = {holding_key(r.job_id, r.attempt): r for r in record.released if r.loss is None} | record.held
    told = [
        _word(record, holder, pool, now_ms)
        for holder in holders.values()
        if (pool := _of(pools, holder)) != _of(record.pools, holder)
    ]
    return replace(record, pools=pools), told


def told_at_the_end(record: NodeRecord, before: Held | Released | None, release: Released, now_ms: int) -> list[Emit]:
    """Return the word to an attempt whose pool became known only after it had ended, which is none of its own."""
    if before is None or release.loss is not None:
        return []
    pool = of_attempt(record, release)
    return [] if pool == of_attempt(record, before) else [_word(record, release, pool, now_ms)]


def _word(record: NodeRecord, holder: Held | Released, pool: str, now_ms: int) -> Emit:
    return evidence(record, holder.job_id, holder.attempt, (), now_ms=now_ms, pool=pool)
