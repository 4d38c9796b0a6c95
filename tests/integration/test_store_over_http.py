"""The server's side of the store: the real driver over real HTTP, with an embedded engine behind the interface."""

from collections.abc import Iterator
from typing import Any, Final

import pytest

from faultlens.clock import moment_of
from faultlens.codec import Event, event_of
from faultlens.errors import WorldError
from faultlens.events import JobEnded, JobStarted
from faultlens.store import RejectedRowsError, Store, StoreBusyError, open_store
from sinks.migrate import load_migrations, migrate
from sinks.writer import StoreWriter
from tests.clickhouse.front import Server

pytestmark = pytest.mark.store

AT_MS = 1_795_000_000_000
PASSWORD: Final = "hunter2"  # noqa: S105


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("server") / "data")
    server.expect("me", PASSWORD)
    server.begin()
    yield server
    server.end()


@pytest.fixture
def store(server: Server) -> Iterator[Store]:
    with open_store(f"clickhouse://me@127.0.0.1:{server.server_port}", password=PASSWORD) as store:
        migrate(store)
        yield store


def told(data: Any, id_: str) -> Event:
    return event_of(data, source="bridge/slurm", id_=id_, time_ms=AT_MS)


def test_a_server_is_migrated_with_the_same_files(store: Store) -> None:
    assert store.profile == "single"
    assert migrate(store) == []
    applied = store.query("SELECT name FROM schema_migrations FINAL ORDER BY number")
    assert [row["name"] for row in applied] == [migration.name for migration in load_migrations()]


def test_what_is_written_is_read_with_bound_values_and_times_in_utc(store: Store) -> None:
    with StoreWriter(store) as writer:
        writer.add(told(JobStarted("it's", 1), "s"), AT_MS)
        writer.add(told(JobEnded("it's", 1, "failed", exit_code=1, message="a\tb\\c'"), "e"), AT_MS)
    rows = store.query("SELECT started_at, outcome, message FROM attempts WHERE job_id = {job:String}", {"job": "it's"})
    assert rows == [{"started_at": moment_of(AT_MS), "outcome": "failed", "message": "a\tb\\c'"}]


def test_our_settings_reach_the_server(server: Server, store: Store) -> None:
    store.query("SELECT 1")
    assert server.settings["max_partitions_per_insert_block"] == "0"
    assert "session_id" not in server.settings


def test_a_bad_row_is_told_from_a_failing_server(store: Store) -> None:
    with pytest.raises(RejectedRowsError, match="meta takes no such row"):
        store.insert("meta", ("key", "value", "version"), [("a", "b", -1)])
    with pytest.raises(WorldError, match=r"no table nosuch: run `faultlens migrate`"):
        store.insert("nosuch", ("a",), [(1,)])
    with pytest.raises(WorldError, match=r"failed to query: .*UNKNOWN_TABLE"):
        store.query("SELECT * FROM nosuch")


def test_a_wrong_password_is_told_without_it(server: Server) -> None:
    with pytest.raises(WorldError, match=r"cannot be reached: .*516") as refused:
        open_store(f"clickhouse://me@127.0.0.1:{server.server_port}", password="hunter3")  # noqa: S106
    assert "hunter3" not in str(refused.value)


def test_a_server_that_hangs_up_fails_the_batch_and_no_row(server: Server, store: Store) -> None:
    writer = StoreWriter(store)
    writer.add(told(JobStarted("hung-up", 1), "h"), AT_MS)
    writer.flush()
    writer.add(told(JobStarted("hung-up", 2), "i"), AT_MS)
    server.hangs_up = True
    with pytest.raises(WorldError, match="failed to insert into events_raw"):
        writer.flush()
    server.hangs_up = False
    writer.flush()
    assert writer.refused == 0
    rows = store.query("SELECT attempt FROM attempts WHERE job_id = 'hung-up' ORDER BY attempt")
    assert [row["attempt"] for row in rows] == [1, 2]


# Their numbers are ClickHouse's: TOO_MANY_PARTS, MEMORY_LIMIT_EXCEEDED, READONLY, QUERY_IS_PROHIBITED, ACCESS_DENIED.
@pytest.mark.parametrize(
    ("code", "waits"), [(252, True), (241, True), (164, False), (392, False), (497, False)], ids=str
)
def test_what_passes_is_waited_for_and_what_lasts_is_not(
    server: Server, store: Store, code: int, *, waits: bool
) -> None:
    server.answers = code
    try:
        with pytest.raises(WorldError, match=f"Code: {code}") as failed:
            store.insert("meta", ("key", "value", "version"), [("a", "b", 1)])
    finally:
        server.answers = None
    assert isinstance(failed.value, StoreBusyError) is waits


@pytest.mark.parametrize("status", [200, 404, 500, 502])
def test_somebody_else_s_page_is_no_answer_and_the_batch_is_written_later(
    server: Server, store: Store, status: int
) -> None:
    writer = StoreWriter(store)
    writer.add(told(JobStarted(f"page-{status}", 1), f"page-{status}-1"), AT_MS)
    writer.flush()
    writer.add(told(JobStarted(f"page-{status}", 2), f"page-{status}-2"), AT_MS)
    server.garbage = status
    try:
        with pytest.raises(StoreBusyError):
            writer.flush()
    finally:
        server.garbage = None
    writer.flush()
    assert writer.refused == 0
    rows = store.query("SELECT attempt FROM attempts WHERE job_id = {job:String}", {"job": f"page-{status}"})
    assert sorted(row["attempt"] for row in rows) == [1, 2]
