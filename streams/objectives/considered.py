"""What of the counters counts: from when on, in which slices of time, and without what is excluded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from faultlens.budget import Slice
from faultlens.clock import HOUR_MS, MINUTE_MS
from faultlens.objectives import Exclusion
from streams.objectives.counters import BAD, NOTHING, Bucket, Counters, Figures, figures_of

_FIRST_BAD = 1


def figures_since(counters: Counters, start_ms: int) -> Figures:
    """Return the figures from a whole hour on."""
    return figures_of(_added([bucket for begins_ms, bucket in _buckets(counters) if begins_ms >= start_ms]))


def by_slice(counters: Counters, start_ms: int, slice_ms: int) -> list[Slice]:
    """Return good and total of each slice, cut at multiples of its length since the epoch, from a whole hour on."""
    slices: dict[int, Slice] = {}
    for begins_ms, bucket in _buckets(counters):
        if begins_ms >= start_ms:
            good, total = slices.get(begins_ms // slice_ms, Slice(0, 0))
            bad = sum(bucket[_FIRST_BAD : _FIRST_BAD + len(BAD)])
            slices[begins_ms // slice_ms] = Slice(good + bucket[0], total + bucket[0] + bad)
    return list(slices.values())


def without(counters: Counters, exclusions: Sequence[Exclusion]) -> Counters:
    """Return the counters without what is excluded: all of a time, or what some classes are charged with in it.

    What was assumed of it leaves with it; where classes are named, as much as cannot be of the others.
    """
    if not exclusions:
        return counters
    minutes = {n: left for n, b in counters.minutes.items() if (left := _left(n * MINUTE_MS, b, exclusions))}
    hours = {n: left for n, b in counters.hours.items() if (left := _left(n * HOUR_MS, b, exclusions))}
    sums = _added([*minutes.values(), *hours.values()])
    return replace(counters, minutes=minutes, hours=hours, sums=sums)


def _left(begins_ms: int, bucket: Bucket, exclusions: Sequence[Exclusion]) -> Bucket:
    """Return what is left of a bucket; empty: nothing."""
    excluded = next((e for e in exclusions if e.from_ms <= begins_ms < e.to_ms), None)
    if excluded is None:
        return bucket
    if not excluded.classes:
        return ()
    good, *bad, assumed_bad, assumed_out = bucket
    kept = [0 if name in excluded.classes else amount for name, amount in zip(BAD, bad, strict=True)]
    return (good, *kept, min(assumed_bad, sum(kept)), assumed_out)


def _buckets(counters: Counters) -> Iterator[tuple[int, Bucket]]:
    for minute, bucket in counters.minutes.items():
        yield minute * MINUTE_MS, bucket
    for hour, bucket in counters.hours.items():
        yield hour * HOUR_MS, bucket


def _added(buckets: Sequence[Bucket]) -> Bucket:
    return tuple(map(sum, zip(NOTHING, *buckets, strict=True)))
