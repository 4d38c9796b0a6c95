"""Adds up the ledger by the hour, so that questions about months need not carry out what each hour's records say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from sinks.runs import RUNS_TABLE
from sinks.tables import TABLES, GpuTime

LEDGER: Final = TABLES[GpuTime].name
# Records that are added up at once, by whole hours: they took 160 MB of the engine's memory.
RECORDS_AT_ONCE: Final = 500_000
# Beside a stream, adding up takes at most a twentieth of the time of one core.
EVERY_S: Final = 30.0
REST: Final = 20.0
# Another writer may have marked an hour so long before its rows can be seen: until then it is added up again.
OTHERS_S: Final = 600

_MARK: Final = (
    "INSERT INTO gpu_hours_due SELECT fromUnixTimestamp64Milli(arrayJoin({hours:Array(Int64)}), 'UTC'), now64(3, 'UTC')"
)
_DUE: Final = """\
SELECT toUnixTimestamp64Milli(d.hour) AS hour_ms, r.records AS records
FROM (SELECT hour, max(at) AS at FROM gpu_hours_due GROUP BY hour) AS d
LEFT JOIN (SELECT hour, max(version) AS version FROM gpu_hours GROUP BY hour) AS v ON d.hour = v.hour
LEFT JOIN (SELECT hour, count() AS records FROM gpu_time GROUP BY hour) AS r ON d.hour = r.hour
WHERE v.version < d.at + toIntervalSecond({others:UInt32})
ORDER BY hour_ms
"""
# As one block: an hour's rows are in one part, there as a whole or not at all when the store is killed.
_ADD_UP: Final = """\
INSERT INTO gpu_hours (hour, cluster, team, category, class, code, gpu_ms, wall_ms, version)
SELECT hour, cluster, team, category, class, code, sum(gpu_ms), sum(wall_ms), now64(3, 'UTC')
FROM gpu_time_latest
WHERE hour >= fromUnixTimestamp64Milli({first:Int64}, 'UTC')
    AND hour <= fromUnixTimestamp64Milli({last:Int64}, 'UTC')
    AND has({hours:Array(Int64)}, toUnixTimestamp64Milli(hour))
GROUP BY hour, cluster, team, category, class, code
SETTINGS max_insert_threads = 1, min_insert_block_size_rows = 1000000000, min_insert_block_size_bytes = 0
"""


class Whole(Protocol):
    """A store that rows can be inserted into, and that can be asked; `faultlens.store.Store` is one."""

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[object]], token: str = "") -> int:
        """Insert the rows."""

    def command(self, sql: str, params: Mapping[str, object] | None = None) -> None:
        """Carry out a statement."""

    def query(self, sql: str, params: Mapping[str, object] | None = None) -> list[dict[str, Any]]:
        """Return the rows that the SQL selects."""

    def close(self) -> None:
        """Give it back."""


def add_up(store: Whole, *, others_s: int = 0) -> int:
    """Add up the hours that were written to since they last were, and return how many. WorldError: the store failed.

    `others_s`: how long before others' rows can be seen they may have said which hour these are of.
    """
    due = [(row["hour_ms"], row["records"]) for row in store.query(_DUE, {"others": others_s})]
    for hours in at_once(due):
        store.command(_ADD_UP, {"first": hours[0], "last": hours[-1], "hours": hours})
    return len(due)


def at_once(due: Iterable[tuple[int, int]], most: int = RECORDS_AT_ONCE) -> Iterator[list[int]]:
    """Yield hours, each given with its number of records, in groups of at most so many records, or single ones."""
    hours: list[int] = []
    held = 0
    for hour_ms, records in due:
        if hours and held + records > most:
            yield hours
            hours, held = [], 0
        hours.append(hour_ms)
        held += records
    if hours:
        yield hours


class AddingUp:
    """A store to write to, whose ledger is added up by the hour: at the end, and beside a stream now and then.

    `clock_s`: a monotonic clock of a stream, after whose batches it adds up when it has rested; None: only at the end.
    An hour is marked before its rows are inserted, so that a crash in between forgets none: the next writer adds it up.
    """

    def __init__(self, store: Whole, *, clock_s: Callable[[], float] | None = None) -> None:
        self._store = store
        self._clock_s = clock_s
        self._next_s = 0.0
        self._behind = True

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[object]], token: str = "") -> int:
        """Insert the rows; raises what the store raises."""
        if table == LEDGER:
            at = columns.index("hour")
            self._store.command(_MARK, {"hours": list({row[at] for row in rows})})
            self._behind = True
        count = self._store.insert(table, columns, rows, token)
        if table == RUNS_TABLE and self._clock_s is not None and self._clock_s() >= self._next_s:
            began_s = self._clock_s()
            self.settle()
            self._next_s = self._clock_s() + max(EVERY_S, REST * (self._clock_s() - began_s))
        return count

    def settle(self) -> None:
        """Add up what is due. WorldError: the store failed."""
        if self._behind:
            add_up(self._store, others_s=0 if self._clock_s is None else OTHERS_S)
            self._behind = False

    def close(self) -> None:
        """Add up what is due, and give the store back."""
        self.settle()
        self._store.close()
