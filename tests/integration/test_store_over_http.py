"""The server's side of the store: the real driver over real HTTP, with an embedded engine behind the interface."""

import tempfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import parse_qsl, urlsplit

import pytest

from faultlens.clock import moment_of
from faultlens.codec import Event, event_of
from faultlens.errors import WorldError
from faultlens.events import JobEnded, JobStarted
from faultlens.store import RejectedRowsError, Store, open_store
from sinks.migrate import load_migrations, migrate
from sinks.writer import StoreWriter

chdb = pytest.importorskip("chdb", reason="chDB is not installed (extra `store`)")
lz4_frame = pytest.importorskip("lz4.frame", reason="lz4 comes with the store's driver")
pytestmark = pytest.mark.store

AT_MS = 1_795_000_000_000
PASSWORD: Final = "hunter2"  # noqa: S105
_PARAMETER: Final = "param_"


class Interface(BaseHTTPRequestHandler):
    """ClickHouse's HTTP interface, as far as the driver uses it: https://clickhouse.com/docs/interfaces/http."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Carry out the statement in the body, or in the URL with its data in the body."""
        url = dict(parse_qsl(urlsplit(self.path).query, keep_blank_values=True))
        body = (
            self.rfile.read(int(self.headers["Content-Length"])) if "Content-Length" in self.headers else self._chunks()
        )
        if self.headers.get("Content-Encoding") == "lz4":
            body = lz4_frame.decompress(body)
        server = cast("Server", self.server)
        if server.hangs_up:
            self.close_connection = True
            return
        if self.headers.get("Authorization") != server.expected:
            self._answer(
                403, b"Code: 516. DB::Exception: default: Authentication failed. (AUTHENTICATION_FAILED)", "516"
            )
            return
        try:
            self._answer(200, server.carried_out(url, body))
        except RuntimeError as error:
            message = str(error)
            code = message.partition("Code: ")[2].partition(".")[0]
            self._answer(500, message.encode(), code)

    do_GET = do_POST  # noqa: N815  the base class's name

    def _chunks(self) -> bytes:
        body = b""
        while self.headers.get("Transfer-Encoding") == "chunked":
            size = int(self.rfile.readline(), 16)
            body += self.rfile.read(size)
            self.rfile.readline()
            if size == 0:
                break
        return body

    def _answer(self, status: int, body: bytes, code: str = "") -> None:
        self.send_response(status)
        if code:
            self.send_header("X-ClickHouse-Exception-Code", code)
        self.send_header("X-ClickHouse-Format", "TabSeparated")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


class Server(ThreadingHTTPServer):
    """One embedded engine, one statement at a time."""

    daemon_threads = True

    def __init__(self, path: Path) -> None:
        super().__init__(("127.0.0.1", 0), Interface)
        self.expected = ""
        self.hangs_up = False
        self.settings: dict[str, str] = {}
        self._engine = chdb.connect(str(path))
        self._lock = threading.Lock()

    def carried_out(self, url: dict[str, str], body: bytes) -> bytes:
        """Return what the engine answers; RuntimeError is its word on what is wrong."""
        parameters = {
            name.removeprefix(_PARAMETER): value for name, value in url.items() if name.startswith(_PARAMETER)
        }
        self.settings = url
        with self._lock:
            if body.startswith(b"INSERT INTO") and b"FORMAT Native\n" in body:
                statement, _, data = body.partition(b"FORMAT Native\n")
                with tempfile.NamedTemporaryFile(suffix=".native") as file:
                    file.write(data)
                    file.flush()
                    return self._run(f"{statement.decode()} FROM INFILE '{file.name}' FORMAT Native", {})
            return self._run((url.get("query", "").encode() + body).decode(), parameters)

    def _run(self, statement: str, parameters: dict[str, str]) -> bytes:
        result = self._engine.query(statement, "TabSeparated", params=parameters)
        return bytes(result.bytes() or b"")

    def server_close(self) -> None:
        """Let go of port and engine."""
        super().server_close()
        self._engine.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("server") / "data")
    server.expected = "Basic bWU6aHVudGVyMg=="  # me:hunter2
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


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
