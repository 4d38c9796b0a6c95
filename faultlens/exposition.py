"""A process's metrics, and whether it is alive and ready, over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Final, cast

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from faultlens.errors import ConfigurationError, WorldError
from faultlens.meters import Position
from faultlens.metrics import Family

LOOPBACK: Final = "127.0.0.1"
# The loop goes round ten times a second; what it waits for longer than this, it waits for in vain.
STUCK_S: Final = 60.0


@dataclass(frozen=True)
class Health:
    """Two questions, answered with what is wrong, or nothing if all is well."""

    alive: Callable[[], str]
    ready: Callable[[], str]


def health_of(position: Position, monotonic_s: Callable[[], float], *, not_ready: str) -> Health:
    """Return the health of a process whose loop notes each turn in its position."""

    def alive() -> str:
        turned_s = position.turned_s
        still_s = 0.0 if turned_s is None else monotonic_s() - turned_s
        return f"the loop stands still for {still_s:.0f} s" if still_s > STUCK_S else ""

    return Health(alive, lambda: "" if position.ready else not_ready)


class Exposition:
    """Answers `/metrics`, `/healthz` and `/readyz` in a thread of its own until it is closed."""

    def __init__(self, address: str, families: Iterable[Family], health: Health) -> None:
        registry = CollectorRegistry()
        for collector in (*families, ProcessCollector(registry=None), PlatformCollector(registry=None)):
            registry.register(cast("Any", collector))
        GCCollector(registry=registry)
        self._server = _listen(address, registry, health)
        Thread(target=self._server.serve_forever, name="metrics", daemon=True).start()

    @property
    def port(self) -> int:
        """The port, which the system chose if the address had 0."""
        return self._server.server_port

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of `HOST:PORT`, `:PORT` or `PORT`, by default on loopback; ConfigurationError otherwise."""
    host, _, port = text.rpartition(":")
    if not port.isdigit() or int(port) > 65_535:
        raise ConfigurationError(f"an address to listen on: {text!r} is not HOST:PORT, such as {LOOPBACK}:9464")
    return host.strip("[]") or LOOPBACK, int(port)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    registry: CollectorRegistry
    health: Health


def _listen(address: str, registry: CollectorRegistry, health: Health) -> _Server:
    try:
        server = _Server(parse_address(address), _Handler)
    except OSError as error:
        raise WorldError(f"metrics cannot be shown at {address}: {error.strerror or error}") from None
    server.registry, server.health = registry, health
    return server


class _Handler(BaseHTTPRequestHandler):
    timeout = 10.0
    server_version = "faultlens"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer one of the three."""
        server = cast("_Server", self.server)
        match self.path.partition("?")[0]:
            case "/metrics":
                self._answer(200, generate_latest(server.registry), CONTENT_TYPE_LATEST)
            case "/healthz":
                self._judge(server.health.alive())
            case "/readyz":
                self._judge(server.health.ready())
            case _:
                self._answer(404, b"/metrics, /healthz or /readyz\n")

    def _judge(self, wrong: str) -> None:
        self._answer(503 if wrong else 200, f"{wrong or 'ok'}\n".encode())

    def _answer(self, status: int, body: bytes, content_type: str = "text/plain; charset=utf-8") -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing: who asks every 15 s is not news."""
