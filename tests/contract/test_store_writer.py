"""What the writer promises of any store: one suite over the store in memory and an embedded ClickHouse."""

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import pytest

from faultlens.clock import moment_of
from faultlens.codec import Event, encode
from faultlens.errors import WorldError
from faultlens.events import JobEnded, JobTime, NodeHealth
from faultlens.store import Store, StoreBusyError, open_store
from sinks.memory import MemoryStore
from sinks.migrate import migrate
from sinks.rows import rows_of
from sinks.tables import TABLES, Letter, Table
from sinks.writer import MAX_REFUSED_AT_ONCE, StoreWriter, Target, token_of
from tests.clickhouse.reading import plain, rows_in
from tests.contract.telling import AT_MS, answers, inputs, told, verdict

# No exit code is as large; ClickHouse has 32 bits for them.
IMPOSSIBLE = 2**40

FakeRow = Mapping[str, object]


class Backend(Protocol):
    """A store with a way to look into its tables."""

    @property
    def target(self) -> Target:
        """What the writer writes to."""

    def rows(self, table: str) -> Sequence[FakeRow]:
        """Return a table's rows, once each, in the order of their key."""

    def count(self, table: str) -> int:
        """Return how many rows a table has, those that replace each other counted apart."""


class InMemory:
    """The fake."""

    def __init__(self) -> None:
        self.target = MemoryStore(lambda _, row: row.get("exit_code") == IMPOSSIBLE)

    def rows(self, table: str) -> Sequence[FakeRow]:
        return self.target.rows(table)

    def count(self, table: str) -> int:
        return self.target.taken[table]


class InClickHouse:
    """The real one; rows come back as they were given: times as milliseconds, sequences as tuples."""

    def __init__(self, store: Store) -> None:
        self.target = store

    def rows(self, table: str) -> Sequence[FakeRow]:
        return rows_in(self.target, table, next(t for t in TABLES.values() if t.name == table).columns)

    def count(self, table: str) -> int:
        return int(self.target.query(f"SELECT count() AS n FROM {table}")[0]["n"])  # noqa: S608


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    pytest.importorskip("chdb", reason="chDB is not installed (extra `store`)")
    with open_store(str(tmp_path_factory.mktemp("contract") / "store")) as store:
        migrate(store)
        yield store


@pytest.fixture(params=["memory", pytest.param("chdb", marks=pytest.mark.store)])
def backend(request: pytest.FixtureRequest) -> Backend:
    if request.param == "memory":
        return InMemory()
    store: Store = request.getfixturevalue("opened")
    for table in TABLES.values():
        store.command(f"TRUNCATE TABLE {table.name}")
    return InClickHouse(store)


def write(target: Target, events: Sequence[Event], *, max_rows: int = 50_000) -> StoreWriter:
    with StoreWriter(target, max_rows=max_rows) as writer:
        for event in events:
            writer.add(event, event.time_ms + 100)
    return writer


def content(backend: Backend) -> dict[str, set[str]]:
    return {table.name: {repr(plain(row)) for row in backend.rows(table.name)} for table in TABLES.values()}


def expected(events: Sequence[Event]) -> dict[str, set[str]]:
    kept: dict[str, set[str]] = {table.name: set() for table in TABLES.values()}
    for event in events:
        for row in rows_of(event, arrived_ms=event.time_ms + 100):
            table: Table = TABLES[type(row)]
            kept[table.name].add(repr(plain(dict(zip(table.columns, row, strict=True)))))
    return kept


def test_what_is_written_is_what_is_read_and_every_table_is_used(backend: Backend) -> None:
    events = inputs() + answers()
    writer = write(backend.target, events)
    assert all(expected(events).values())
    assert content(backend) == expected(events)
    assert writer.written == {name: len(rows) for name, rows in expected(events).items()}


def test_a_replay_changes_nothing(backend: Backend) -> None:
    write(backend.target, inputs() + answers())
    before = content(backend)
    write(backend.target, inputs() + answers())
    assert content(backend) == before


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_order_and_batches_do_not_matter(backend: Backend, seed: int) -> None:
    events = [*inputs(), *answers(), *reports(5), *reports(5)]
    shuffled = random.Random(seed).sample(events, len(events))  # noqa: S311
    write(backend.target, shuffled, max_rows=seed * 3)
    once = InMemory()
    write(once.target, events)
    assert content(backend) == content(once)


def reports(count: int) -> list[Event]:
    """Return reports of two nodes, of which two pairs fall on the same moment."""
    return [
        told(
            NodeHealth(f"n{number % 2}", "c1", 30.0, 8, number, ()),
            f"{source}{number}",
            source=f"agent/{source}",
            time_ms=AT_MS + number * 30_000,
        )
        for number in range(count)
        for source in ("a", "b")
    ]


def test_of_many_reports_of_a_node_a_batch_writes_the_last(backend: Backend) -> None:
    writer = write(backend.target, reports(1000))
    assert writer.written["events_raw"] == 2000
    assert writer.written["node_facts"] == 2
    assert {row["node"]: row["gpus_allocatable"] for row in backend.rows("node_facts")} == {"n0": 998, "n1": 999}


def test_a_record_made_again_later_replaces_the_first(backend: Backend) -> None:
    write(backend.target, [verdict(emitted_ms=AT_MS + 1)])
    write(backend.target, [verdict(emitted_ms=AT_MS)])
    assert [row["emitted"] for row in backend.rows("attributions")] == [AT_MS + 1]


def test_nothing_is_written_before_there_is_enough_and_the_rest_at_the_end(backend: Backend) -> None:
    writer = StoreWriter(backend.target, max_rows=3)
    for event in reports(1):
        writer.add(event, AT_MS)
    assert backend.rows("events_raw") == []
    writer.add(reports(2)[-1], AT_MS)
    assert len(backend.rows("events_raw")) == 3
    writer.add(verdict(), AT_MS)
    writer.close()
    assert len(backend.rows("attributions")) == 1


def test_bytes_are_limited_too(backend: Backend) -> None:
    writer = StoreWriter(backend.target, max_bytes=100_000)
    event = reports(1)[0]
    writer.add(event, AT_MS, encode(event).ljust(99_000))
    assert backend.rows("events_raw") == []
    writer.add(event, AT_MS, encode(event))
    assert len(backend.rows("events_raw")) == 1


def test_one_bad_row_becomes_a_dead_letter_and_the_rest_goes_in(backend: Backend) -> None:
    good = [told(JobEnded(f"j{number}", 1, "failed", exit_code=number), str(number)) for number in range(20)]
    bad = told(JobEnded("bad", 1, "failed", exit_code=IMPOSSIBLE), "bad")
    writer = write(backend.target, [*good[:7], bad, *good[7:]])
    assert {row["job_id"] for row in backend.rows("job_facts")} == {f"j{number}" for number in range(20)}
    (letter,) = backend.rows("dead_letters")
    assert (letter["topic"], letter["reason"]) == ("store/job_facts", "bad_value")
    assert "job_facts takes no such row" in str(letter["error"])
    assert writer.refused == 1
    write(backend.target, [bad])
    assert len(backend.rows("dead_letters")) == 1


def test_an_event_that_no_row_can_hold_becomes_a_dead_letter(backend: Backend) -> None:
    endless = JobTime("j1", 1, 1, "c1", "queued", moment_of(0), moment_of(AT_MS), 0)
    write(backend.target, [told(endless, "t", source="faultlens"), verdict()])
    assert backend.rows("gpu_time") == []
    assert len(backend.rows("attributions")) == 1
    (letter,) = backend.rows("dead_letters")
    assert letter["topic"] == "store/faultlens.job.time.v1"


def test_when_many_rows_are_refused_the_program_is_wrong_and_the_writer_stops(backend: Backend) -> None:
    bad = [
        told(JobEnded("j1", number, "failed", exit_code=IMPOSSIBLE), str(number))
        for number in range(1, MAX_REFUSED_AT_ONCE + 3)
    ]
    with pytest.raises(WorldError, match=r"refuses too many rows, last: job_facts .*faultlens migrate"):
        write(backend.target, bad)


class Failing:
    """A store that fails at one insert and works from then on."""

    def __init__(self, target: Target, at_insert: int) -> None:
        self._target = target
        self._left = at_insert

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[object]], token: str = "") -> int:
        self._left -= 1
        if self._left == 0:
            raise WorldError("no route to host")
        return self._target.insert(table, columns, rows, token)


@pytest.mark.parametrize("at_insert", [1, 5, 10])
def test_what_could_not_be_written_is_written_by_the_next_flush(backend: Backend, at_insert: int) -> None:
    events = inputs() + answers()
    writer = StoreWriter(Failing(backend.target, at_insert))
    for event in events:
        writer.add(event, event.time_ms + 100)
    with pytest.raises(WorldError, match="no route"):
        writer.flush()
    writer.flush()
    assert content(backend) == expected(events)
    assert writer.written == {name: len(rows) for name, rows in expected(events).items()}


def test_what_comes_after_a_failed_flush_is_written_with_what_waits(backend: Backend) -> None:
    events = inputs() + answers()
    writer = StoreWriter(Failing(backend.target, 3))
    for event in events[:9]:
        writer.add(event, event.time_ms + 100)
    with pytest.raises(WorldError, match="no route"):
        writer.flush()
    for event in events[9:]:
        writer.add(event, event.time_ms + 100)
    writer.flush()
    assert content(backend) == expected(events)


class Forgetful:
    """A store that carries out its first insert and then hangs up instead of saying so."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._answers = False

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[object]], token: str = "") -> int:
        done = self._target.insert(table, columns, rows, token)
        if not self._answers:
            self._answers = True
            raise StoreBusyError("the connection was closed")
        return done


def test_an_insert_whose_answer_was_lost_is_in_the_table_once(backend: Backend) -> None:
    writer = StoreWriter(Forgetful(backend.target))
    for event in reports(3):
        writer.add(event, AT_MS)
    with pytest.raises(StoreBusyError):
        writer.flush()
    writer.flush()
    assert backend.count("events_raw") == 6


def test_a_token_stands_for_its_rows_and_a_known_one_drops_whatever_comes_with_it(backend: Backend) -> None:
    """The trap for which a token is made of nothing but the rows."""
    table = TABLES[Letter]
    one, other = (Letter("t", 0, offset, "e", AT_MS, "bad_value", "", "", {}, "") for offset in (1, 2))
    assert backend.target.insert(table.name, table.columns, [one], "same") == 1
    assert backend.target.insert(table.name, table.columns, [other], "same") == 1
    assert [row["offset"] for row in backend.rows(table.name)] == [1]
    backend.target.insert(table.name, table.columns, [other], token_of(table.name, [other]))
    assert [row["offset"] for row in backend.rows(table.name)] == [1, 2]
    assert len({token_of(table.name, rows) for rows in ([one], [other], [one, other], [other, one])}) == 4


def test_what_waits_when_the_block_fails_is_not_written_on_the_way_out(backend: Backend) -> None:
    writer = StoreWriter(backend.target)
    writer.add(verdict(), AT_MS)
    with pytest.raises(ZeroDivisionError), writer:
        _ = 1 / 0
    assert backend.rows("attributions") == []
