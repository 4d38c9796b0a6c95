"""The rows of events, by table, until they are in the store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar

from faultlens.codec import Event, encode
from faultlens.errors import InvalidEventError
from faultlens.events import NodeHealth
from sinks.halving import Halving
from sinks.input_rows import ordered
from sinks.rows import facts_of, raw_of, rows_of
from sinks.tables import TABLES, Row, Table

Owner = TypeVar("Owner")

# What a row weighs beside the text of its event: tuple, numbers and references (sys.getsizeof, rounded up).
ROW_BYTES = 512


class Refused(NamedTuple, Generic[Owner]):
    """What the store will not have: `what` is the table, or the event's type where not even a row could be made."""

    what: str
    item: Row | Event
    error: str
    owner: Owner


class Waiting(Generic[Owner]):
    """Rows of one table that wait, each with its owner, and how far inserting them has come."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.rows: list[Row] = []
        self.owners: list[Owner] = []
        self._halving: Halving | None = None

    def begun(self) -> Halving:
        """Return how far inserting has come, rows included that were put since it began."""
        if self._halving is None:
            self._halving = Halving(len(self.rows))
        self._halving.grow(len(self.rows))
        return self._halving

    def clear(self) -> None:
        """Forget the rows."""
        self.rows, self.owners, self._halving = [], [], None


class Batch(Generic[Owner]):
    """Collects the rows of events; `owner` is what a caller wants to know of a row that is refused.

    `size` and `weight` are the rows and about the bytes that wait, `newest_ms` the latest arrival. The same events in
    the same order give the same rows.
    """

    def __init__(self) -> None:
        self._waiting: dict[type[Row], Waiting[Owner]] = {row: Waiting(table) for row, table in TABLES.items()}
        self._reports: _Reports[Owner] = _Reports()
        self.size = 0
        self.weight = 0
        self.newest_ms = 0
        self.refused: list[Refused[Owner]] = []

    def add(self, event: Event, arrived_ms: int, owner: Owner, raw: bytes | None = None) -> None:
        """Take an input or output event that arrived at `arrived_ms`; `raw` is the record as it came in."""
        self.newest_ms = max(self.newest_ms, arrived_ms)
        self.weight += len(encode(event) if raw is None else raw)
        if isinstance(event.data, NodeHealth):
            self.put(raw_of(event, arrived_ms=arrived_ms, raw=raw), owner)
            self._reports.keep(event, event.data, owner)
            return
        try:
            rows = rows_of(event, arrived_ms=arrived_ms, raw=raw)
        except InvalidEventError as error:
            self.refused.append(Refused(event.type, event, str(error), owner))
            return
        for row in rows:
            self.put(row, owner)

    def put(self, row: Row, owner: Owner) -> None:
        """Take a row."""
        waiting = self._waiting[type(row)]
        waiting.rows.append(row)
        waiting.owners.append(owner)
        self.size += 1
        self.weight += ROW_BYTES

    def settled(self) -> Iterator[Waiting[Owner]]:
        """Yield the tables that rows wait for, in the order of writing; add nothing in between."""
        for report, owner in self._reports.take():
            for row in facts_of(report, arrived_ms=self.newest_ms):
                self.put(row, owner)
        yield from (waiting for waiting in self._waiting.values() if waiting.rows)

    def clear(self) -> None:
        """Forget what was inserted and what was refused."""
        self.size = self.weight = 0
        self.refused = []


class _Reports(Generic[Owner]):
    """The last report of each node, and the last with an inventory: of a batch only these say how a node stands.

    Reports are most of all events; making the rows of each would double the writer's work to be replaced at once.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[str, bool], tuple[Event, Owner]] = {}

    def keep(self, event: Event, report: NodeHealth, owner: Owner) -> None:
        """Keep the report unless a later one is known."""
        key = (report.node, report.devices is not None)
        known = self._kept.get(key)
        if known is None or known[0].time_ms < event.time_ms or _wins_tie(known[0], event):
            self._kept[key] = (event, owner)

    def take(self) -> list[tuple[Event, Owner]]:
        """Return the reports and forget them."""
        kept = list(self._kept.values())
        self._kept.clear()
        return kept


def _wins_tie(known: Event, event: Event) -> bool:
    """Say whether of two reports of the same moment the store would prefer `event`."""
    return known.time_ms == event.time_ms and ordered(known.time_ms, known) < ordered(event.time_ms, event)
