"""The audit's evidence: runs from the store, the log read once more, and whether each record's rows are there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from faultlens.clock import DAY_MS, ms_of
from faultlens.errors import InvalidEventError
from faultlens.store import Store
from sinks.audit import Extent, PartitionAudit, audited, miscounted
from sinks.intake import Clock, Intake
from sinks.log import Place, Taken
from sinks.rows import rows_of
from sinks.runs import RUNS_TABLE, RunRow
from sinks.tables import TABLES, Table

# The table of runs forgets after 90 days (migration 0004); a day before that its beginning is no proof any more.
RUNS_KEPT_MS: Final = 89 * DAY_MS
# Keys asked for at once: what one statement can carry in the address of an HTTP request.
CHUNK: Final = 1_000
MAX_TOLD: Final = 20

Key = tuple[object, ...]


class MissingRow(NamedTuple):
    """A record whose row is not in the store, nor is a dead letter about it."""

    topic: str
    partition: int
    offset: int
    table: str


@dataclass
class Deep:
    """What reading the log again showed: records compared, and what of them is wrong."""

    records: int = 0
    rows: int = 0
    miscounted: list[tuple[RunRow, int]] = field(default_factory=list)
    missing: list[MissingRow] = field(default_factory=list)
    doubled: dict[str, int] = field(default_factory=dict)

    @property
    def is_good(self) -> bool:
        """Whether nothing is wrong."""
        return not (self.miscounted or self.missing or self.doubled)


def audit(store: Store, extents: Mapping[Place, Extent], now_ms: int) -> list[PartitionAudit]:
    """Judge every partition by the runs in the store."""
    runs = runs_of(store)
    oldest = store.query(f"SELECT topic, partition, min(written) AS oldest FROM {RUNS_TABLE} GROUP BY topic, partition")  # noqa: S608
    pruned = {(row["topic"], row["partition"]): ms_of(row["oldest"]) < now_ms - RUNS_KEPT_MS for row in oldest}
    return [
        audited(place, runs.get(place, ()), extent, pruned=pruned.get(place, False))
        for place, extent in sorted(extents.items())
    ]


def runs_of(store: Store) -> dict[Place, list[RunRow]]:
    """Return the runs in the store, by partition."""
    columns = ", ".join(
        f"toUnixTimestamp64Milli({name}) AS {name}" if name.endswith("_arrived") else name for name in RunRow._fields
    )
    runs: dict[Place, list[RunRow]] = defaultdict(list)
    for row in store.query(f"SELECT {columns} FROM {RUNS_TABLE} FINAL ORDER BY topic, partition, start"):  # noqa: S608
        run = RunRow(**row)
        runs[(run.topic, run.partition)].append(run)
    return dict(runs)


def audit_deeply(
    store: Store, read: Callable[[Place, int, int], Iterable[Taken]], audits: Sequence[PartitionAudit], clock: Clock
) -> Deep:
    """Read what was taken of each partition once more, and look for the rows of every record."""
    deep, runs, checker = Deep(), runs_of(store), _Checker(store, Intake(clock))
    for partition in audits:
        start, reached = partition.taken
        offsets: list[int] = []
        for record in read(partition.place, start, reached):
            offsets.append(record.offset)
            checker.check(record)
        whole = [run for run in runs.get(partition.place, []) if run.start >= partition.low]
        deep.miscounted += miscounted(whole, offsets)
        deep.records += len(offsets)
    checker.flush()
    deep.rows, deep.missing = checker.rows, checker.missing
    deep.doubled = _doubled(store)
    return deep


def _doubled(store: Store) -> dict[str, int]:
    """Return how many rows each table shows more than once to those who read it with FINAL."""
    found = {}
    for table in TABLES.values():
        key = ", ".join(table.key)
        row = store.query(f"SELECT count() AS shown, uniqExact({key}) AS distinct FROM {table.name} FINAL")[0]  # noqa: S608
        if row["shown"] != row["distinct"]:
            found[table.name] = row["shown"] - row["distinct"]
    return found


class _Checker:
    """Looks for rows by their keys, many at once."""

    def __init__(self, store: Store, intake: Intake) -> None:
        self._store = store
        self._intake = intake
        self._types = _types(store)
        self._waiting: dict[str, dict[Key, Taken]] = {table.name: {} for table in TABLES.values()}
        self.rows = 0
        self.missing: list[MissingRow] = []

    def check(self, record: Taken) -> None:
        """Look for the record's rows, now or when enough wait."""
        if not record.value:
            return
        try:
            event, arrived_ms = self._intake.event(record)
            rows = rows_of(event, arrived_ms=arrived_ms)
        except InvalidEventError:
            self._buried(record)
            return
        for row in rows:
            table = TABLES[type(row)]
            named = dict(zip(table.columns, row, strict=True))
            self._wait(table, tuple(named[name] for name in table.key), record)

    def flush(self) -> None:
        """Look for what waits."""
        for table in TABLES.values():
            self._look(table)

    def _buried(self, record: Taken) -> None:
        if not self._is_buried(record):
            self._tell(record, "dead_letters")

    def _wait(self, table: Table, key: Key, record: Taken) -> None:
        waiting = self._waiting[table.name]
        waiting[key] = record
        if len(waiting) >= CHUNK:
            self._look(table)

    def _look(self, table: Table) -> None:
        waiting, self._waiting[table.name] = self._waiting[table.name], {}
        self.rows += len(waiting)
        for key in waiting.keys() - self._found(table, list(waiting)):
            if not self._is_buried(waiting[key]):
                self._tell(waiting[key], table.name)

    def _found(self, table: Table, keys: list[Key]) -> set[Key]:
        if not keys:
            return set()
        types = self._types[table.name]
        columns = [_as_given(name, types[name]) for name in table.key]
        given = ", ".join("Int64" if kind.startswith("DateTime64") else kind for kind in types.values())
        one = len(columns) == 1
        sought = (
            f"{columns[0]} IN {{keys:Array({given})}}"
            if one
            else (
                f"{table.key[0]} IN {{first:Array({types[table.key[0]]})}} "
                f"AND ({', '.join(columns)}) IN {{keys:Array(Tuple({given}))}}"
            )
        )
        named = ", ".join(f"{column} AS k{number}" for number, column in enumerate(columns))
        params: dict[str, Any] = {"keys": [key[0] for key in keys] if one else keys}
        if not one:
            params["first"] = sorted({str(key[0]) for key in keys})
        rows = self._store.query(f"SELECT DISTINCT {named} FROM {table.name} WHERE {sought}", params)  # noqa: S608
        return {tuple(row.values()) for row in rows}

    def _is_buried(self, record: Taken) -> bool:
        rows = self._store.query(
            "SELECT 1 FROM dead_letters WHERE topic = {topic:String} AND partition = {partition:UInt32} "
            "AND offset = {offset:Int64} LIMIT 1",
            {"topic": record.topic, "partition": record.partition, "offset": record.offset},
        )
        return bool(rows)

    def _tell(self, record: Taken, table: str) -> None:
        if len(self.missing) < MAX_TOLD:
            self.missing.append(MissingRow(record.topic, record.partition, record.offset, table))


def _types(store: Store) -> dict[str, dict[str, str]]:
    """Return the types of the tables' keys, in their order, without what only says how they are kept."""
    rows = store.query("SELECT table, name, type FROM system.columns WHERE database = currentDatabase()")
    known = {(row["table"], row["name"]): row["type"] for row in rows}
    return {
        table.name: {
            name: known[(table.name, name)].removeprefix("LowCardinality(").removesuffix(")")
            if known[(table.name, name)].startswith("LowCardinality(")
            else known[(table.name, name)]
            for name in table.key
        }
        for table in TABLES.values()
    }


def _as_given(name: str, kind: str) -> str:
    """Return the expression of a key column as rows have it."""
    return f"toUnixTimestamp64Milli({name})" if kind.startswith("DateTime64") else name
