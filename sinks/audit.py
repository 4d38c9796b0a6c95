"""Is anything missing, is anything there twice? Judged from the runs that the sink noted and where the log stands."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sinks.log import Place
from sinks.runs import RunRow


class Extent(NamedTuple):
    """A partition as its broker tells it: the first offset that is kept, the one behind the last, and our commit."""

    low: int
    high: int
    committed: int | None


class Counts(NamedTuple):
    """What runs saw; records are events, ticks and dead ones. `refused` are rows."""

    records: int = 0
    events: int = 0
    ticks: int = 0
    dead: int = 0
    rows: int = 0
    refused: int = 0


@dataclass(frozen=True)
class PartitionAudit:
    """What is known of a partition. Offsets are not records: markers and aborted records have some too.

    `taken` is from the first to behind the last offset that runs tell of; `again` is how many offsets more than one run
    tells of (a crash before the commit: their rows replaced themselves); `waiting` is what is not taken yet. `missing`
    are ranges of offsets that no run tells of although they were acknowledged or passed by.
    """

    place: Place
    low: int
    taken: tuple[int, int]
    counts: Counts
    again: int
    waiting: int
    missing: tuple[tuple[int, int], ...]


def audited(place: Place, runs: Sequence[RunRow], extent: Extent, *, pruned: bool) -> PartitionAudit:
    """Judge a partition by its runs. `pruned`: the store has dropped the oldest of them by age."""
    ordered = sorted(runs, key=lambda run: (run.start, run.stop))
    low = extent.low
    start = ordered[0].start if ordered else low
    reached, again = start, 0
    missing = [] if pruned or start <= low or not ordered else [(low, start)]
    counted: list[RunRow] = []
    for run in ordered:
        if run.start > reached:
            missing.append((reached, run.start))
        again += max(0, min(reached, run.stop) - run.start)
        if run.stop > reached:
            counted.append(run)
        reached = max(reached, run.stop)
    if extent.committed is not None and extent.committed > reached:
        missing.append((reached, extent.committed))
    return PartitionAudit(
        place=place,
        low=low,
        taken=(start, reached),
        counts=Counts(*(sum(getattr(run, name) for run in counted) for name in Counts._fields)),
        again=again,
        waiting=max(0, extent.high - reached),
        missing=tuple(missing),
    )


def miscounted(runs: Iterable[RunRow], offsets: Sequence[int]) -> list[tuple[RunRow, int]]:
    """Return the runs that saw another number of records than the log has, with that number.

    `offsets` are those of all records in the partition, in order.
    """
    wrong = []
    for run in runs:
        first, behind = bisect_left(offsets, run.start), bisect_left(offsets, run.stop)
        if behind - first != run.records:
            wrong.append((run, behind - first))
    return wrong


def by_topic(audits: Iterable[PartitionAudit]) -> Mapping[str, list[PartitionAudit]]:
    """Return the audits by topic, in the order of topics and partitions."""
    topics: dict[str, list[PartitionAudit]] = {}
    for audit in sorted(audits, key=lambda audit: audit.place):
        topics.setdefault(audit.place[0], []).append(audit)
    return topics
