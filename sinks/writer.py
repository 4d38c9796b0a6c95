"""Writes events into the store: batches by table, each row effectively once, and no batch lost for one bad row."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Final, Protocol, Self

import msgspec

from faultlens.codec import Event, stable_id
from faultlens.dead_letters import Origin, letter
from faultlens.errors import WorldError
from faultlens.store import RejectedRowsError
from sinks.batch import Batch, Owner, Refused, Waiting
from sinks.rows import facts_of
from sinks.tables import Letter

# Inserts of fewer than some 10,000 rows cost more by the row; more than these gain nothing (bench/store.py).
MAX_ROWS: Final = 50_000
MAX_BYTES: Final = 64 * 1024 * 1024
# A few bad rows are bad records; more than these at once are a wrong program or a wrong schema.
MAX_REFUSED_AT_ONCE: Final = 100
REASON: Final = "bad_value"

_pack: Final = msgspec.msgpack.Encoder().encode


class Target(Protocol):
    """Where rows go: faultlens.store.Store, or a fake that behaves like it."""

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[object]], token: str = "") -> int:
        """Insert the rows; RejectedRowsError if a value of theirs is at fault, WorldError if anything else is."""


def insert(store: Target, batch: Batch[Owner], written: Counter[str], *, limit: int | None = None) -> None:
    """Insert all that waits in the batch and count it by table; what is refused is added to the batch's `refused`.

    WorldError: the store failed, or refused more than `limit` rows of the batch. The next call goes on from there:
    what is in is not inserted again, and what is inserted again for want of an answer has the same token.
    """
    for waiting in batch.settled():
        _insert_table(store, waiting, batch.refused, written, limit)
        waiting.clear()


def _insert_table(
    store: Target, waiting: Waiting[Owner], refused: list[Refused[Owner]], written: Counter[str], limit: int | None
) -> None:
    table, halving = waiting.table, waiting.begun()
    while (run := halving.run) is not None:
        rows = waiting.rows[slice(*run)]
        try:
            written[table.name] += store.insert(table.name, table.columns, rows, token_of(table.name, rows))
        except RejectedRowsError as error:
            if (bad := halving.refused()) is None:
                continue
            refused.append(Refused(table.name, waiting.rows[bad], str(error), waiting.owners[bad]))
            if limit is not None and (table.row is Letter or len(refused) > limit):
                raise WorldError(
                    f"the store refuses too many rows, last: {error} (is its schema up to date? `faultlens migrate`)"
                ) from error
        else:
            halving.accepted()


def token_of(table: str, rows: Sequence[Sequence[object]]) -> str:
    """Return what tells an insert from all others: a digest of exactly its rows.

    The store drops an insert whose token it knows without looking at its rows. A token made of anything else, such as
    a range of offsets, loses rows as soon as the same range gives others: after an upgrade, or cut in halves.
    """
    try:
        packed = _pack(rows)
    except (OverflowError, TypeError, ValueError):  # a number of more than 64 bits, which the store is about to refuse
        packed = repr(rows).encode("utf-8", "backslashreplace")
    return f"{table}:{len(rows)}:{hashlib.blake2b(packed, digest_size=16).hexdigest()}"


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
        self._batch: Batch[None] = Batch()
        self.written: Counter[str] = Counter()
        self.refused = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()

    def add(self, event: Event, arrived_ms: int, raw: bytes | None = None) -> None:
        """Take an input or output event that arrived at `arrived_ms`; may flush. WorldError: the store failed."""
        batch = self._batch
        batch.add(event, arrived_ms, None, raw)
        if batch.size >= self._max_rows or batch.weight >= self._max_bytes:
            self.flush()

    def flush(self) -> None:
        """Insert all that waits. WorldError: the store failed; what was not inserted waits still."""
        batch = self._batch
        insert(self._store, batch, self.written, limit=MAX_REFUSED_AT_ONCE)
        self.refused += len(batch.refused)
        for refused in batch.refused:
            for row in facts_of(_letter(refused, batch.newest_ms), arrived_ms=batch.newest_ms):
                batch.put(row, None)
        batch.refused = []
        insert(self._store, batch, self.written, limit=MAX_REFUSED_AT_ONCE)
        batch.clear()

    def close(self) -> None:
        """Insert all that waits; the store stays open, whoever opened it closes it."""
        self.flush()


def _letter(refused: Refused[None], at_ms: int) -> Event:
    """Return the dead letter of a row whose record is not at hand: the row itself is its value."""
    text = repr(refused.item)
    origin = Origin(f"store/{refused.what}", 0, 0, headers={"row": stable_id(refused.what, text)})
    value = text.encode("utf-8", "backslashreplace")
    return letter(value, origin, reason=REASON, error=refused.error, at_ms=at_ms)
