"""What a ledger has to say now that it has not said before: records that replace, and what that does to the sums."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from faultlens.clock import MINUTE_MS, moment_of
from faultlens.events import JobTime
from streams.goodput.model import MAX_BLOCKS, Interval, Ledger
from streams.goodput.settling import trimmed
from streams.goodput.tiling import intervals

# Class of time that was not productive and that no failure is behind.
OVERHEAD = "overhead"


class Change(Struct, frozen=True, gc=False):
    """By how much the GPU-milliseconds of [from_ms, to_ms) change: productive ones, and others by class of cause."""

    from_ms: int
    to_ms: int
    good: int
    by_cause: dict[str, int]

    @property
    def total(self) -> int:
        """The change of the allocated GPU-milliseconds."""
        return self.good + sum(self.by_cause.values())


class Flushed(Struct, frozen=True):
    """The ledger after a flush, the records to write, all of its revision, and the changes of the sums."""

    ledger: Ledger
    records: tuple[Interval, ...]
    changes: tuple[Change, ...]


def flush(ledger: Ledger, now_ms: int) -> Flushed:
    """Return what must be written at `now_ms`: what differs from what was written before, and nothing else.

    A record replaces what earlier ones said of the same time. Time that was written and turns out not to have been
    allocated (the end was earlier) is replaced by a record with no GPUs.
    """
    now = intervals(ledger, now_ms)
    changed = [entry for entry in _aligned(ledger.written, now) if not _same(entry[2], entry[3])]
    if not changed:
        return Flushed(ledger, (), ())
    after = trimmed(replace(ledger, written=now, revision=ledger.revision + 1))
    return Flushed(after, tuple(_records(changed)), tuple(_changes(changed)))


def told(ledger: Ledger) -> tuple[Change, ...]:
    """Return what flushes have said so far, as far back as the ledger keeps it piece by piece."""
    return tuple(_changes((interval.from_ms, interval.to_ms, None, interval) for interval in ledger.written))


def needs_flush(ledger: Ledger) -> bool:
    """Return whether so much is settled that it should be written before the hour is over."""
    return len(ledger.blocks) > 2 * MAX_BLOCKS


def job_time(interval: Interval, *, job_id: str, ledger: Ledger, cluster: str, team: str | None) -> JobTime:
    """Return an interval of a flush as the record to send; `ledger` is the one after that flush."""
    return JobTime(
        job_id,
        ledger.attempt,
        ledger.revision,
        cluster,
        interval.category,
        moment_of(interval.from_ms),
        moment_of(interval.to_ms),
        interval.gpus,
        team,
        interval.cause,
    )


_Aligned = tuple[int, int, Interval | None, Interval | None]


def _aligned(before: tuple[Interval, ...], after: tuple[Interval, ...]) -> Iterator[_Aligned]:
    """Cut both tilings at each other's borders; None where one of them says nothing."""
    borders = sorted({border for interval in (*before, *after) for border in (interval.from_ms, interval.to_ms)})
    old, new = iter(before), iter(after)
    was, now = next(old, None), next(new, None)
    for start, stop in pairwise(borders):
        while was is not None and was.to_ms <= start:
            was = next(old, None)
        while now is not None and now.to_ms <= start:
            now = next(new, None)
        yield start, stop, _at(was, start), _at(now, start)


def _at(interval: Interval | None, at_ms: int) -> Interval | None:
    return interval if interval is not None and interval.from_ms <= at_ms else None


def _same(one: Interval | None, other: Interval | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.category == other.category and one.gpus == other.gpus and one.cause == other.cause


def _records(changed: Iterable[_Aligned]) -> Iterator[Interval]:
    current: Interval | None = None
    for start, stop, _, now in changed:
        said = Interval("other", start, stop, 0) if now is None else replace(now, from_ms=start, to_ms=stop)
        if current is not None and current.to_ms == start and _same(current, said):
            current = replace(current, to_ms=stop)
            continue
        if current is not None:
            yield current
        current = said
    if current is not None:
        yield current


def _changes(changed: Iterable[_Aligned]) -> Iterator[Change]:
    """Return one change for each stretch; short neighbours within a minute of the clock are one."""
    current: Change | None = None
    for start, stop, was, now in changed:
        change = _change(start, stop, was, now)
        if current is not None and current.from_ms // MINUTE_MS == (stop - 1) // MINUTE_MS:
            current = _sum(current, change)
            continue
        if current is not None and _counts(current):
            yield current
        current = change
    if current is not None and _counts(current):
        yield current


def _counts(change: Change) -> bool:
    return change.good != 0 or bool(change.by_cause)


def _change(start: int, stop: int, was: Interval | None, now: Interval | None) -> Change:
    good, by_cause = 0, dict[str, int]()
    for interval, sign in ((was, -1), (now, 1)):
        if interval is None:
            continue
        amount = sign * interval.gpus * (stop - start)
        if interval.category == "productive":
            good += amount
        else:
            name = OVERHEAD if interval.cause is None else interval.cause.cause_class
            by_cause[name] = by_cause.get(name, 0) + amount
    return Change(start, stop, good, _nonzero(by_cause))


def _sum(one: Change, other: Change) -> Change:
    by_cause = dict(one.by_cause)
    for name, amount in other.by_cause.items():
        by_cause[name] = by_cause.get(name, 0) + amount
    return Change(one.from_ms, other.to_ms, one.good + other.good, _nonzero(by_cause))


def _nonzero(by_cause: dict[str, int]) -> dict[str, int]:
    return {name: amount for name, amount in sorted(by_cause.items()) if amount}
