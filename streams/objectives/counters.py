"""Rolling counters of one objective and scope: by minute for six hours, by hour beyond, up to the window's length."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from faultlens.clock import HOUR_MS, MINUTE_MS
from faultlens.internal import Sample
from streams.goodput import OVERHEAD

# What is older than this is kept by the hour only.
MINUTES_KEPT_MS: Final = 6 * HOUR_MS
# Parts of a bucket, in this order; trailing zeros are left out. The total is not kept: it is good and bad together,
# so that no rounding can make them disagree.
BAD: Final = ("overhead", "platform", "hardware", "driver", "user")
_GOOD, _FIRST_BAD, _ASSUMED_BAD, _ASSUMED_OUT = 0, 1, 1 + len(BAD), 2 + len(BAD)
_PARTS: Final = 3 + len(BAD)

Bucket = tuple[int, ...]


class Counters(Struct, frozen=True, omit_defaults=True, tag="counters"):
    """What was counted for one objective in one scope.

    `minutes` and `hours` are by the number of the minute or hour since the epoch; `sums` is all of them together.
    `dirty`: something changed since the last status, which was written at `written_ms` and said `said`.
    `clipped` counts samples that were older than the window, or partly so.
    """

    objective: str
    cluster: str
    pool: str | None = None
    team: str | None = None
    workload: str | None = None
    minutes: dict[int, Bucket] = {}
    hours: dict[int, Bucket] = {}
    sums: Bucket = ()
    folded_ms: int = 0
    dirty: bool = False
    written_ms: int = 0
    said: bytes = b""
    clipped: int = 0


class Figures(Struct, frozen=True, gc=False):
    """Good and bad by class, in milliseconds or counts, and what of it rests on an assumed verdict."""

    good: int
    by_cause: dict[str, int]
    assumed_bad: int
    assumed_out: int

    @property
    def bad(self) -> int:
        """Everything that was not good."""
        return sum(self.by_cause.values())

    @property
    def total(self) -> int:
        """Good and bad together."""
        return self.good + self.bad


def window_start_ms(now_ms: int, window_ms: int) -> int:
    """Return where a window that ends now begins: at a whole minute, or at a whole hour of more than six hours."""
    unit_ms = MINUTE_MS if window_ms <= MINUTES_KEPT_MS else HOUR_MS
    return (now_ms - window_ms) // unit_ms * unit_ms


def aged(counters: Counters, now_ms: int, window_ms: int) -> Counters:
    """Return the counters with what is old folded into hours, and what has left the window forgotten."""
    border_ms = (now_ms - MINUTES_KEPT_MS) // HOUR_MS * HOUR_MS
    if border_ms <= counters.folded_ms:
        return counters
    minutes, hours, sums = dict(counters.minutes), dict(counters.hours), counters.sums
    for minute in [minute for minute in minutes if minute * MINUTE_MS < border_ms]:
        hour = minute * MINUTE_MS // HOUR_MS
        hours[hour] = _sum(hours.get(hour, ()), minutes.pop(minute))
    oldest = window_start_ms(now_ms, window_ms) // HOUR_MS
    for hour in [hour for hour in hours if hour < oldest]:
        sums = _sum(sums, hours.pop(hour), -1)
    changed = counters.dirty or sums != counters.sums
    return replace(counters, minutes=minutes, hours=hours, sums=sums, folded_ms=border_ms, dirty=changed)


def counted(counters: Counters, sample: Sample, now_ms: int, window_ms: int) -> Counters:
    """Return the counters with a sample added, spread evenly over its time; what is older than the window is not.

    A correction (negative amounts) over the same time takes back exactly what was said, in every bucket.
    """
    counters = aged(counters, now_ms, window_ms)
    start_ms = window_start_ms(now_ms, window_ms)
    amounts = _parts_of(sample)
    minutes, hours, sums = dict(counters.minutes), dict(counters.hours), counters.sums
    clipped = int(sample.from_ms < start_ms)
    for from_ms, to_ms in _cut(sample.from_ms, sample.to_ms, counters.folded_ms):
        if from_ms < start_ms:
            continue
        part = _share(amounts, sample, from_ms, to_ms)
        sums = _sum(sums, part)
        if from_ms < counters.folded_ms:
            _add(hours, from_ms // HOUR_MS, part)
        else:
            _add(minutes, from_ms // MINUTE_MS, part)
    return replace(counters, minutes=minutes, hours=hours, sums=sums, dirty=True, clipped=counters.clipped + clipped)


def _parts_of(sample: Sample) -> Bucket:
    amounts = [0] * _PARTS
    amounts[_GOOD] = sample.good
    for name, amount in sample.by_cause.items():
        index = BAD.index(name) if name in BAD else BAD.index(OVERHEAD)
        amounts[_FIRST_BAD + index] += amount
    amounts[_ASSUMED_BAD], amounts[_ASSUMED_OUT] = sample.assumed_bad, sample.assumed_out
    return tuple(amounts)


def _cut(from_ms: int, to_ms: int, folded_ms: int) -> Iterator[tuple[int, int]]:
    """Cut [from_ms, to_ms) at the borders of buckets; an instant is one piece."""
    if to_ms <= from_ms:
        yield from_ms, from_ms
        return
    cursor = from_ms
    while cursor < to_ms:
        unit_ms = HOUR_MS if cursor < folded_ms else MINUTE_MS
        until = min(to_ms, (cursor // unit_ms + 1) * unit_ms)
        yield cursor, until
        cursor = until


def _share(amounts: Bucket, sample: Sample, from_ms: int, to_ms: int) -> Bucket:
    """Return what of each amount falls into a part of the sample's time, so that all parts add up exactly."""
    span_ms = sample.to_ms - sample.from_ms
    if span_ms <= 0:
        return amounts
    ahead_ms, until_ms = from_ms - sample.from_ms, to_ms - sample.from_ms
    return tuple(_upto(amount, until_ms, span_ms) - _upto(amount, ahead_ms, span_ms) for amount in amounts)


def _upto(amount: int, ahead_ms: int, span_ms: int) -> int:
    """Return the whole part of the amount's share of the first `ahead_ms`; of its negative the negative."""
    share = abs(amount) * ahead_ms // span_ms
    return share if amount >= 0 else -share


def _add(buckets: dict[int, Bucket], index: int, part: Bucket) -> None:
    bucket = _sum(buckets.get(index, ()), part)
    if bucket:
        buckets[index] = bucket
    else:
        buckets.pop(index, None)


def _sum(one: Bucket, other: Bucket, sign: int = 1) -> Bucket:
    size = max(len(one), len(other))
    left, right = one + (0,) * (size - len(one)), other + (0,) * (size - len(other))
    parts = [a + sign * b for a, b in zip(left, right, strict=True)]
    while parts and not parts[-1]:
        parts.pop()
    return tuple(parts)


def figures(counters: Counters) -> Figures:
    """Return the figures of the whole window, as of when the counters were last `aged`."""
    return _figures(counters.sums)


def loads(counters: Counters, start_ms: int) -> list[tuple[int, int, int]]:
    """Return (begin, total, bad) of every bucket that begins at `start_ms` or later."""
    found = []
    for buckets, unit_ms in ((counters.hours, HOUR_MS), (counters.minutes, MINUTE_MS)):
        for index, bucket in buckets.items():
            if index * unit_ms >= start_ms:
                bad = sum(bucket[_FIRST_BAD:_ASSUMED_BAD])
                found.append((index * unit_ms, bucket[_GOOD] + bad, bad))
    return found


def _figures(sums: Bucket) -> Figures:
    parts = sums + (0,) * (_PARTS - len(sums))
    by_cause = dict(zip(BAD, parts[_FIRST_BAD:_ASSUMED_BAD], strict=True))
    return Figures(
        parts[_GOOD],
        {name: amount for name, amount in sorted(by_cause.items()) if amount},
        parts[_ASSUMED_BAD],
        parts[_ASSUMED_OUT],
    )
