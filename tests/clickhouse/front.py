"""ClickHouse's HTTP interface in front of an embedded engine: what the server's side of the store is tried on."""

from __future__ import annotations

import base64
import ssl
import tempfile
import threading
from email import message_from_bytes
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import parse_qsl, urlsplit

import pytest

chdb = pytest.importorskip("chdb", reason="chDB is not installed (extra `store`)")
lz4_frame = pytest.importorskip("lz4.frame", reason="lz4 comes with the store's driver")

_PARAMETER: Final = "param_"


def _common_name(connection: object) -> str:
    """Return the name in the client's certificate, empty if it showed none."""
    shown = connection.getpeercert() if isinstance(connection, ssl.SSLSocket) else None
    fields = cast("Any", shown or {}).get("subject", ())
    return next((value for part in fields for name, value in part if name == "commonName"), "")


def _form(content_type: str, body: bytes, url: dict[str, str]) -> bytes:
    """Return the statement of a form, and put its parameters to those of the URL."""
    form = message_from_bytes(b"Content-Type: " + content_type.encode() + b"\r\n\r\n" + body)
    fields = {}
    for part in cast("list[Message]", form.get_payload()):
        content = cast("bytes", part.get_payload(decode=True))
        fields[str(part.get_param("name", header="content-disposition"))] = content.decode()
    statement = fields.pop("query")
    url |= fields
    return statement.encode()


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
        if self.headers.get_content_maintype() == "multipart":  # parameters too large for an address
            body = _form(self.headers["Content-Type"], body, url)
        server = cast("Server", self.server)
        server.requests += 1
        server.certificate = _common_name(self.connection)
        if server.hangs_up:
            self.close_connection = True
            return
        if server.garbage is not None:
            self._answer(server.garbage, b"<html><body>Bad gateway</body></html>", is_ours=False)
            return
        if server.answers is not None:
            self._answer(500, f"Code: {server.answers}. DB::Exception: as the test says".encode(), str(server.answers))
            return
        if server.expected is not None and self.headers.get("Authorization") != server.expected:
            self._answer(
                403, b"Code: 516. DB::Exception: default: Authentication failed. (AUTHENTICATION_FAILED)", "516"
            )
            return
        try:
            done = server.carried_out(url, body)
            if server.loses_answers and body.startswith(b"INSERT"):
                self.close_connection = True
                return
            self._answer(200, done)
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

    def _answer(self, status: int, body: bytes, code: str = "", *, is_ours: bool = True) -> None:
        self.send_response(status)
        if code:
            self.send_header("X-ClickHouse-Exception-Code", code)
        if is_ours:
            self.send_header("X-ClickHouse-Query-Id", "1")
            self.send_header("X-ClickHouse-Format", "TabSeparated")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


class Server(ThreadingHTTPServer):
    """One embedded engine, one statement at a time.

    `hangs_up`: it says nothing at all; `answers`: it answers with this error only; `garbage`: somebody else's page with
    this status; `loses_answers`: it carries inserts out and does not say so.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, path: Path, *, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", port), Interface)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_side=True)
        self.expected: str | None = None
        self.hangs_up = False
        self.loses_answers = False
        self.answers: int | None = None
        self.garbage: int | None = None
        self.requests = 0
        self.certificate = ""
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
                    token = url.get("insert_deduplication_token", "")
                    settings = f"SETTINGS insert_deduplication_token = '{token}'" if token else ""
                    return self._run(f"{statement.decode()} FROM INFILE '{file.name}' {settings} FORMAT Native", {})
            return self._run((url.get("query", "").encode() + body).decode(), parameters)

    def _run(self, statement: str, parameters: dict[str, str]) -> bytes:
        result = self._engine.query(statement, "TabSeparated", params=parameters)
        return bytes(result.bytes() or b"")

    def expect(self, user: str, password: str) -> None:
        """Let nobody in but this user."""
        self.expected = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a client that went away or does not trust us."""

    def begin(self) -> None:
        """Serve in a thread of its own."""
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def end(self) -> None:
        """Stop serving; let go of port and engine."""
        self.shutdown()
        self._thread.join()
        self.server_close()
        self._engine.close()
