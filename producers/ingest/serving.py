"""The HTTP server: one POST, bounded in every way, answered only when Kafka has what it brought."""

from __future__ import annotations

import json
import ssl
from collections import Counter
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import BoundedSemaphore, Lock, Thread
from typing import Any, Final, Protocol, cast

import structlog

from faultlens.codec import Event
from faultlens.errors import WorldError
from producers.ingest.receiving import BODY_BYTES, Received, RequestError, received
from producers.ingest.tokens import Bucket, Grant, Tokens, grant_of

PATH: Final = "/v1/events"
# A request holds a thread until Kafka has it; more at once are asked to come again.
AT_ONCE: Final = 256
HEADER_S: Final = 10.0
AGAIN_S: Final = 5
_log: Final = structlog.get_logger("faultlens.ingest")


class Publisher(Protocol):
    """Where events go."""

    def publish(self, events: Sequence[Event]) -> bool:
        """Return whether all of them have surely arrived."""


class Answer(Exception):  # noqa: N818 - it ends a request, whether that went well or not
    """An answer to a request: status, body, and after how many seconds to come again."""

    def __init__(self, status: int, body: dict[str, Any], again_s: float | None = None) -> None:
        super().__init__(status)
        self.status, self.body, self.again_s = status, body, again_s


class Ingest:
    """Decides on requests. `counts`: by what became of events and requests."""

    def __init__(self, tokens: Tokens, publisher: Publisher, *, monotonic_s: Callable[[], float]) -> None:
        self._tokens = tokens
        self._publisher = publisher
        self._monotonic_s = monotonic_s
        self._buckets: dict[str, Bucket] = {}
        self._lock = Lock()
        self._places = BoundedSemaphore(AT_ONCE)
        self.counts: Counter[str] = Counter()

    def granted(self, headers: Any) -> Grant:
        """Return what the request's token may; Answer: nobody knows it."""
        grant = grant_of(self._tokens, headers)
        if grant is None:
            raise Answer(401, {"error": "give a token that is known here: Authorization: Bearer …"})
        return grant

    def take(self, grant: Grant, body: bytes, content_type: str) -> Answer:
        """Return the answer to a request, once Kafka has what was good of it."""
        try:
            brought = received(body, content_type, grant)
        except RequestError as error:
            return Answer(error.status, {"error": str(error)})
        again_s = self._wait(grant, len(brought.events))
        if again_s > 0:
            return self._counted(Answer(429, {"error": "too many events for this token"}, again_s), 0)
        if not self._places.acquire(blocking=False):
            return self._counted(Answer(503, {"error": "too many requests at once"}, AGAIN_S), 0)
        try:
            arrived = not brought.events or self._publisher.publish(brought.events)
        finally:
            self._places.release()
        if not arrived:
            return self._counted(Answer(503, {"error": "Kafka did not take it: send it again"}, AGAIN_S), 0)
        return self._counted(_told(brought), len(brought.events))

    def _wait(self, grant: Grant, count: int) -> float:
        now_s = self._monotonic_s()
        with self._lock:
            bucket = self._buckets.setdefault(grant.sha256, Bucket(grant.events_a_second, now_s))
            return bucket.takes(count, now_s)

    def _counted(self, answer: Answer, events: int) -> Answer:
        with self._lock:
            self.counts[f"requests {answer.status}"] += 1
            self.counts["events"] += events
            self.counts["refused"] += len(answer.body.get("refused", ()))
        return answer


def _told(brought: Received) -> Answer:
    """Return the answer to what was read: what was refused would be refused again, and is not to be sent again."""
    body: dict[str, Any] = {"accepted": len(brought.events), "silent": brought.silent}
    if not brought.refused:
        return Answer(202, body)
    body["refused"] = [refused._asdict() for refused in brought.refused]
    only_forbidden = not brought.events and all(refused.reason == "forbidden" for refused in brought.refused)
    return Answer(403 if only_forbidden else 422, body)


class Server:
    """Listens until it is closed. `certificate` and `key`: over TLS."""

    def __init__(self, host: str, port: int, ingest: Ingest, tls: ssl.SSLContext | None = None) -> None:
        try:
            self._server = _Server((host, port), _Handler)
        except OSError as error:
            raise WorldError(f"cannot listen at {host}:{port}: {error.strerror or error}") from None
        self._server.ingest = ingest
        if tls is not None:
            # The handshake is left to the request's own thread, so that one that never ends holds up nobody.
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        Thread(target=self._server.serve_forever, args=(0.1,), name="ingest", daemon=True).start()

    @property
    def port(self) -> int:
        """The port, which the system chose if it was asked for 0."""
        return self._server.server_port

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    ingest: Ingest


class _Handler(BaseHTTPRequestHandler):
    timeout = HEADER_S
    protocol_version = "HTTP/1.1"
    server_version = "faultlens"
    sys_version = ""

    def do_POST(self) -> None:
        """Take events."""
        ingest = cast("_Server", self.server).ingest
        try:
            grant = ingest.granted(self.headers)
            answer = ingest.take(grant, self._body(), self.headers.get("Content-Type", ""))
        except Answer as refused:
            answer = refused
            # What was not read would be taken for the next request.
            self.close_connection = True
        if answer.status >= 400:
            _log.info("refused", status=answer.status, why=str(answer.body)[:300])
        self._answer(answer)

    def do_GET(self) -> None:
        """Say that it is alive."""
        if self.path == "/healthz":
            self._answer(Answer(200, {"status": "ok"}))
        else:
            self._answer(Answer(404, {"error": f"events are taken at {PATH}, by POST"}))

    def _body(self) -> bytes:
        if self.path.partition("?")[0] != PATH:
            raise Answer(404, {"error": f"events are taken at {PATH}"})
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            raise Answer(411, {"error": "say how long it is: Content-Length"})
        if int(length) > BODY_BYTES:
            raise Answer(413, {"error": f"{length} bytes, at most {BODY_BYTES} are taken: send it in parts"})
        return self.rfile.read(int(length))

    def _answer(self, answer: Answer) -> None:
        body = json.dumps(answer.body).encode()
        self.send_response(answer.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if answer.again_s is not None:
            self.send_header("Retry-After", str(max(1, round(answer.again_s))))
        if answer.status == 401:
            self.send_header("WWW-Authenticate", "Bearer")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing of each request: what is refused is told by itself."""
