"""A store in memory for tests: rows replace their equals as in the tables of the real one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from faultlens.store import RejectedRowsError
from sinks.runs import RUNS_TABLE
from sinks.tables import TABLES

# A table's key and version, by its name.
_BY_NAME: Final[dict[str, tuple[tuple[str, ...], str | None]]] = {
    table.name: (table.key, table.version) for table in TABLES.values()
} | {RUNS_TABLE: (("topic", "partition", "start"), "stop")}

FakeRow = dict[str, object]


class MemoryStore:
    """Takes rows as `faultlens.store.Store` does; `refuse` says of which (table, row) it will have nothing.

    `inserts` counts the calls that it carried out, `taken` the rows by table, replaced ones included.
    """

    def __init__(self, refuse: Callable[[str, Mapping[str, object]], bool] = lambda _table, _row: False) -> None:
        self._refuse = refuse
        self._tables: dict[str, dict[tuple[object, ...], FakeRow]] = {name: {} for name in _BY_NAME}
        self._tokens: set[tuple[str, str]] = set()
        self.inserts = 0
        self.taken: Counter[str] = Counter()

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[object]], token: str = "") -> int:
        """Keep the rows, all or none; RejectedRowsError if one is refused. A known `token` drops them in silence."""
        named = [dict(zip(columns, row, strict=True)) for row in rows]
        if any(self._refuse(table, row) for row in named):
            raise RejectedRowsError(f"{table} takes no such row: refused by the test")
        self.inserts += 1
        if token and (table, token) in self._tokens:
            return len(rows)
        self._tokens.add((table, token))
        self.taken[table] += len(rows)
        for row in named:
            self._replace(table, row)
        return len(rows)

    def close(self) -> None:
        """Stay as it is: a test looks into it afterwards."""

    def rows(self, table: str) -> list[FakeRow]:
        """Return the table's rows as a SELECT with FINAL would, in the order of their key."""
        kept = self._tables[table]
        return [kept[key] for key in sorted(kept, key=repr)]

    def _replace(self, table: str, row: FakeRow) -> None:
        names, version = _BY_NAME[table]
        key = tuple(row[name] for name in names)
        known = self._tables[table].get(key)
        if known is None or version is None or known[version] <= row[version]:  # type: ignore[operator]
            self._tables[table][key] = row
