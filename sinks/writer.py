"""Writes events into the store: batches by table, each row effectively once, and no batch lost for one bad row."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Final, Protocol, Self

from faultlens.codec import Event, encode, stable_id
from faultlens.errors import InvalidEventError, WorldError
from faultlens.events import NodeHealth
from faultlens.store import RejectedRowsError
from sinks.input_rows import ordered
from sinks.rows import facts_of, raw_of, rows_of
from sinks.tables import TABLES, Letter, NodeFact, Row, Table

# Inserts of fewer than some 10,000 rows cost more by the row; more than these gain nothing (bench/store.py).
MAX_ROWS: Final = 50_000
MAX_BYTES: Final = 64 * 1024 * 1024
# A few bad rows are bad records; more than these at once are a wrong program or a wrong schema.
MAX_REFUSED_AT_ONCE: Final = 100
# What a row weighs beside the text of its event: tuple, numbers and references (sys.getsizeof, rounded up).
_ROW_BYTES: Final = 512
# What of a refused row is kept: the contract's limits for dead letters.
_WHOLE_BYTES: Final = 160 * 1024
_CUT_BYTES: Final = 64 * 1024


class Target(Protocol):
    """Where rows go: faultlens.store.Store, or a fake that behaves like it."""

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> int:
        """Insert the rows; RejectedRowsError if a value of theirs is at fault, WorldError if anything else is."""


class StoreWriter:
    """Collects the rows of events and inserts them when there are enough, and at `flush` and `close`.

    Rows have deterministic ids and replace their equals, so that events may be added again after a failure or in a
    replay. What is not flushed is lost with the process: whoever acknowledges input flushes first. At most `max_rows`
    rows and about `max_bytes` wait in memory. `written` counts rows by table, `refused` those that became dead letters.
    """

    def __init__(self, store: Target, *, max_rows: int = MAX_ROWS, max_bytes: int = MAX_BYTES) -> None:
        self._store = store
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._waiting: dict[type[Row], list[Row]] = {row: [] for row in TABLES}
        self._reports = _Reports()
        self._rows = 0
        self._bytes = 0
        self._newest_ms = 0
        self.written: Counter[str] = Counter()
        self.refused = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()

    def add(self, event: Event, arrived_ms: int, raw: bytes | None = None) -> None:
        """Take an input or output event that arrived at `arrived_ms`; may flush. WorldError: the store failed."""
        self._newest_ms = max(self._newest_ms, arrived_ms)
        if isinstance(event.data, NodeHealth):
            self._put(raw_of(event, arrived_ms=arrived_ms, raw=raw))
            self._reports.keep(event, event.data)
        else:
            self._put_all(event, arrived_ms, raw)
        self._bytes += len(encode(event) if raw is None else raw)
        if self._rows >= self._max_rows or self._bytes >= self._max_bytes:
            self.flush()

    def flush(self) -> None:
        """Insert all that waits. WorldError: the store failed; what was not inserted waits still."""
        for report in self._reports.take():
            self._waiting[NodeFact] += facts_of(report, arrived_ms=self._newest_ms)
        before = self.refused
        for row, table in TABLES.items():
            waiting = self._waiting[row]
            if waiting:
                self._insert(table, waiting, limit=before + MAX_REFUSED_AT_ONCE)
                self._waiting[row] = []
        self._rows = self._bytes = 0

    def close(self) -> None:
        """Insert all that waits; the store stays open, whoever opened it closes it."""
        self.flush()

    def _put_all(self, event: Event, arrived_ms: int, raw: bytes | None) -> None:
        try:
            rows = rows_of(event, arrived_ms=arrived_ms, raw=raw)
        except InvalidEventError as error:
            self._refuse(event.type, event, str(error))
            return
        for row in rows:
            self._put(row)

    def _put(self, row: Row) -> None:
        self._waiting[type(row)].append(row)
        self._rows += 1
        self._bytes += _ROW_BYTES

    def _insert(self, table: Table, rows: list[Row], *, limit: int) -> None:
        """Insert the rows, halving them around those that the store refuses."""
        try:
            self.written[table.name] += self._store.insert(table.name, table.columns, rows)
        except RejectedRowsError as error:
            if table.row is Letter or self.refused >= limit:
                raise WorldError(
                    f"the store refuses too many rows, last: {error} (is its schema up to date? `faultlens migrate`)"
                ) from error
            if len(rows) == 1:
                self._refuse(table.name, rows[0], str(error))
                return
            middle = len(rows) // 2
            self._insert(table, rows[:middle], limit=limit)
            self._insert(table, rows[middle:], limit=limit)

    def _refuse(self, what: str, refused: object, why: str) -> None:
        self.refused += 1
        text = repr(refused).encode("utf-8", "backslashreplace")
        whole = len(text) <= _WHOLE_BYTES
        self._put(
            Letter(
                topic=f"store/{what}",
                partition=0,
                offset=0,
                event_id=stable_id(what, text.decode()),
                time=self._newest_ms,
                reason="bad_value",
                error=why,
                value=base64.b64encode(text if whole else text[:_CUT_BYTES]).decode(),
                headers={},
                sha256="" if whole else hashlib.sha256(text).hexdigest(),
            )
        )


class _Reports:
    """The last report of each node, and the last with an inventory: of a batch only these say how a node stands.

    Reports are most of all events; making the rows of each would double the writer's work to be replaced at once.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[str, bool], Event] = {}

    def keep(self, event: Event, report: NodeHealth) -> None:
        """Keep the report unless a later one is known."""
        key = (report.node, report.devices is not None)
        known = self._kept.get(key)
        if known is None or known.time_ms < event.time_ms or _wins_tie(known, event):
            self._kept[key] = event

    def take(self) -> list[Event]:
        """Return the reports and forget them."""
        kept = list(self._kept.values())
        self._kept.clear()
        return kept


def _wins_tie(known: Event, event: Event) -> bool:
    """Say whether of two reports of the same moment the store would prefer `event`."""
    return known.time_ms == event.time_ms and ordered(known.time_ms, known) < ordered(event.time_ms, event)
