"""Rolling counters of one objective and scope: by minute for six hours, by hour beyond, up to the window's length."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from functools import lru_cache
from itertools import accumulate
from operator import add, sub
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from faultlens.clock import HOUR_MS, MINUTE_MS
from faultlens.internal import Sample
from streams.goodput import OVERHEAD

# What is older than this is kept by the hour only.
MINUTES_KEPT_MS: Final = 6 * HOUR_MS
# Parts of a bucket, in this order. The total is not kept: it is good and bad together, so that no rounding can make
# them disagree.
BAD: Final = ("overhead", "platform", "hardware", "driver", "user")
_GOOD, _FIRST_BAD, _ASSUMED_BAD, _ASSUMED_OUT = 0, 1, 1 + len(BAD), 2 + len(BAD)
Bucket = tuple[int, ...]
# A part of a sample: when it begins, the number of its bucket, and what it adds to that.
Share = tuple[int, int, Bucket]
NOTHING: Final[Bucket] = (0,) * (3 + len(BAD))


class Counters(Struct, frozen=True, omit_defaults=True, tag="counters"):
    """What was counted for one objective in one scope.

    `minutes` and `hours` are by the number of the minute or hour since the epoch, no time in both but what was told of
    a whole hour and what was told of parts of it; `sums` is all of them together.
    `dirty`: something changed since the last status, which was written at `written_ms` and said `said`. `bad_ms`: no
    bad time or event is later.
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
    bad_ms: int = 0
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
    hours = {hour: bucket for hour, bucket in hours.items() if bucket}
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
    parts = _parts_of(sample)
    minutes, hours = _spread(sample.from_ms, sample.to_ms, parts, counters.folded_ms)
    if clipped := sample.from_ms < start_ms:
        minutes, hours = (tuple(s for s in shares if s[0] >= start_ms) for shares in (minutes, hours))
        parts = tuple(map(sum, zip(NOTHING, *(shares for _, _, shares in (*minutes, *hours)), strict=True)))
    sums = tuple(map(add, counters.sums or NOTHING, parts))
    return replace(
        counters,
        minutes=_with(counters.minutes, minutes) if minutes else counters.minutes,
        hours=_with(counters.hours, hours) if hours else counters.hours,
        sums=sums if any(sums) else (),
        dirty=True,
        clipped=counters.clipped + clipped,
        bad_ms=max(counters.bad_ms, sample.to_ms) if sample.by_cause else counters.bad_ms,
    )


def _with(known: dict[int, Bucket], shares: Iterable[Share]) -> dict[int, Bucket]:
    """Return the buckets of one length with the shares added."""
    buckets = dict(known)
    for _, index, parts in shares:
        bucket = tuple(map(add, buckets.get(index, NOTHING), parts))
        if any(bucket):
            buckets[index] = bucket
        else:
            buckets.pop(index, None)
    return buckets


def _parts_of(sample: Sample) -> Bucket:
    """Return the sample's amounts as a bucket."""
    parts = list(NOTHING)
    parts[_GOOD], parts[_ASSUMED_BAD], parts[_ASSUMED_OUT] = sample.good, sample.assumed_bad, sample.assumed_out
    for name, amount in sample.by_cause.items():
        parts[_FIRST_BAD + BAD.index(name if name in BAD else OVERHEAD)] += amount
    return tuple(parts)


# The same amounts are counted in several scopes, one after the other.
@lru_cache(maxsize=16)
def _spread(from_ms: int, to_ms: int, parts: Bucket, folded_ms: int) -> tuple[tuple[Share, ...], tuple[Share, ...]]:
    """Return the shares of every minute and of every hour that [from_ms, to_ms) touches, for amounts spread over it.

    The shares of an amount add up to it exactly: each is what the whole part of the amount grows by over the bucket,
    so it does not depend on how buckets are cut, and the negative of an amount has the negative shares.
    """
    span_ms = to_ms - from_ms
    if span_ms <= 0:
        unit_ms = HOUR_MS if from_ms < folded_ms else MINUTE_MS
        share = ((from_ms, from_ms // unit_ms, parts),)
        return ((), share) if unit_ms == HOUR_MS else (share, ())
    minutes: list[Share] = []
    hours: list[Share] = []
    cursor, told = from_ms, NOTHING
    while cursor < to_ms:
        # A whole hour is one bucket even if it is recent: quiet nodes tell of nothing else.
        whole = cursor % HOUR_MS == 0 and to_ms - cursor >= HOUR_MS
        unit_ms = HOUR_MS if whole or cursor < folded_ms else MINUTE_MS
        until = min(to_ms, (cursor // unit_ms + 1) * unit_ms)
        done_ms = until - from_ms
        upto = tuple(
            [part and (part * done_ms // span_ms if part > 0 else -(-part * done_ms // span_ms)) for part in parts]
        )
        (hours if unit_ms == HOUR_MS else minutes).append((cursor, cursor // unit_ms, tuple(map(sub, upto, told))))
        cursor, told = until, upto
    return tuple(minutes), tuple(hours)


def _sum(one: Bucket, other: Bucket, sign: int = 1) -> Bucket:
    parts = tuple(a + sign * b for a, b in zip(one or NOTHING, other or NOTHING, strict=True))
    return parts if any(parts) else ()


def figures(counters: Counters) -> Figures:
    """Return the figures of the whole window, as of when the counters were last `aged`."""
    return figures_of(counters.sums)


class Recent:
    """Total and bad of the buckets since a time, for asking about many windows within it."""

    def __init__(self, counters: Counters, start_ms: int) -> None:
        hours = {hour: _load(bucket) for hour, bucket in counters.hours.items() if (hour + 1) * HOUR_MS > start_ms}
        told = [(hour * HOUR_MS, *load) for hour, load in hours.items()]
        first = -(-start_ms // MINUTE_MS)
        told += [
            (minute * MINUTE_MS, good + (bad := overhead + platform + hardware + driver + user), bad)
            for minute, (good, overhead, platform, hardware, driver, user, _, _) in counters.minutes.items()
            if minute >= first
        ]
        told.sort()
        self._hours = hours
        self._begins = [begin for begin, _, _ in told]
        self._totals = [0, *accumulate(total for _, total, _ in told)]
        self._bads = [0, *accumulate(bad for _, _, bad in told)]

    def since(self, start_ms: int) -> tuple[int, int]:
        """Return total and bad from a time on; an hour that was told of as a whole counts for what is left of it."""
        index = bisect_left(self._begins, start_ms)
        total, bad = self._totals[-1] - self._totals[index], self._bads[-1] - self._bads[index]
        begun_ms = start_ms % HOUR_MS
        if begun_ms and (hour := self._hours.get(start_ms // HOUR_MS)):
            total += hour[0] * (HOUR_MS - begun_ms) // HOUR_MS
            bad += hour[1] * (HOUR_MS - begun_ms) // HOUR_MS
        return total, bad


def _load(bucket: Bucket) -> tuple[int, int]:
    bad = sum(bucket[_FIRST_BAD:_ASSUMED_BAD])
    return bucket[_GOOD] + bad, bad


def figures_of(sums: Bucket) -> Figures:
    """Return the figures of a sum of buckets."""
    parts = sums or NOTHING
    by_cause = dict(zip(BAD, parts[_FIRST_BAD:_ASSUMED_BAD], strict=True))
    return Figures(
        parts[_GOOD],
        {name: amount for name, amount in sorted(by_cause.items()) if amount},
        parts[_ASSUMED_BAD],
        parts[_ASSUMED_OUT],
    )
