"""The status page over HTTP: who may ask, what is taken, and one request at a time to an embedded store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from threading import BoundedSemaphore, Lock
from typing import Final, cast
from urllib.parse import parse_qs, urlsplit

from faultlens.errors import UsageError, WorldError
from faultlens.local_labelling import word_of
from faultlens.local_page_worker import Dispute
from slo.pages import Asked, Manners, Page, message_page, style

BODY_LIMIT: Final = 16 * 1024
# Requests that wait their turn; what comes on top is told to come back.
WAITING_LIMIT: Final = 16
NAME_LIMIT: Final = 100
# Nothing is loaded from elsewhere, no script runs, nobody frames it, and a form goes nowhere but here.
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src data:; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}

Ask = Callable[[Asked | Dispute], Page]


@dataclass(frozen=True)
class Doors:
    """Who may ask: `user_header` is set by a proxy that has logged people in, and then needed; `hosts` are names by
    which the page may be called, besides its own address."""

    user_header: str = ""
    hosts: frozenset[str] = frozenset()
    manners: Manners = field(default_factory=Manners)


class PageServer(ThreadingHTTPServer):
    """Answers requests until it is shut down; `ask` answers one at a time."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], ask: Ask, doors: Doors) -> None:
        try:
            super().__init__(address, _Handler)
        except OSError as error:
            raise WorldError(f"cannot listen at {address[0]}:{address[1]}: {error.strerror or error}") from None
        self.doors = doors
        self.host = address[0]
        self._ask = ask
        self._turn = Lock()
        self._waiting = BoundedSemaphore(WAITING_LIMIT)

    def answer(self, what: Asked | Dispute) -> Page:
        """Return the answer in its turn; of too many that wait, none."""
        if not self._waiting.acquire(blocking=False):
            return message_page(503, "Too many ask at once", "Come back in a moment.")
        try:
            with self._turn:
                return self._ask(what)
        finally:
            self._waiting.release()


def is_loopback(host: str) -> bool:
    """Whether an address is this machine's own."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class _Handler(BaseHTTPRequestHandler):
    timeout = 30.0
    server_version = "faultlens"
    sys_version = ""

    @property
    def _pages(self) -> PageServer:
        return cast("PageServer", self.server)

    def do_GET(self) -> None:
        """Answer a question."""
        url = urlsplit(self.path)
        if url.path == "/healthz":
            self._send(200, b"ok\n", "text/plain; charset=utf-8")
        elif url.path == "/style.css":
            self._send(200, style().encode(), "text/css; charset=utf-8")
        elif (refused := self._refused()) is not None:
            self._show(refused)
        else:
            params = {name: values[-1] for name, values in parse_qs(url.query, max_num_fields=20).items()}
            asked = Asked(url.path, params, self._user(), self._pages.doors.manners)
            self._show(self._pages.answer(asked))

    def do_POST(self) -> None:
        """Take a dispute."""
        url = urlsplit(self.path)
        if (refused := self._refused() or self._foreign()) is not None:
            self._show(refused)
        elif url.path != "/label" or not self._pages.doors.manners.disputes:
            self._show(message_page(404, "No such page", "Nothing is taken here."))
        else:
            try:
                self._show(self._pages.answer(self._dispute()))
            except UsageError as error:
                self._show(message_page(400, "That cannot be said", str(error)))

    def _refused(self) -> Page | None:
        """Return why nobody who is asked for like this answers: another name (DNS rebinding), or no user."""
        host = (self.headers.get("Host") or "").rpartition("@")[2]
        name = (host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host).strip("[]")
        own, allowed = self._pages.host, self._pages.doors.hosts
        known = name in {own, *allowed} or (is_loopback(own) and is_loopback(name))
        if not known and (is_loopback(own) or allowed):
            return message_page(421, "Not this name", "Call it by its own name, or allow this one with --host.")
        if self._pages.doors.user_header and not self._user():
            return message_page(401, "Log in first", "The proxy in front of this page named nobody.")
        return None

    def _foreign(self) -> Page | None:
        """Return why a form that another site sent is not taken."""
        origin = urlsplit(self.headers.get("Origin") or "").netloc
        site = self.headers.get("Sec-Fetch-Site", "same-origin")
        if origin and origin == self.headers.get("Host") and site == "same-origin":
            return None
        return message_page(403, "Not from here", "A dispute is taken from this site's own form only.")

    def _user(self) -> str:
        header = self._pages.doors.user_header
        return (self.headers.get(header) or "").strip()[:NAME_LIMIT] if header else ""

    def _dispute(self) -> Dispute:
        size = self.headers.get("Content-Length", "")
        if not size.isdigit() or int(size) > BODY_LIMIT:
            raise UsageError(f"a dispute has at most {BODY_LIMIT:,} bytes")
        form = parse_qs(self.rfile.read(int(size)).decode("utf-8", "replace"), max_num_fields=20)
        said = {name: values[-1].strip() for name, values in form.items()}
        by = self._user() or said.get("by", "")[:NAME_LIMIT]
        if not by or not said.get("id") or not said.get("attempt", "").isdigit():
            raise UsageError("who says so, of which job and attempt?")
        word = word_of(said.get("class"), said.get("code"), by=by, why=said.get("why", ""))
        return Dispute(said["id"], int(said["attempt"]), word)

    def _show(self, page: Page) -> None:
        if page.location:
            self._send(page.status, b"", "text/plain; charset=utf-8", Location=page.location)
        elif page.status == 503:
            self._send(page.status, page.html.encode(), "text/html; charset=utf-8", **{"Retry-After": "5"})
        else:
            self._send(page.status, page.html.encode(), "text/html; charset=utf-8")

    def _send(self, status: int, body: bytes, content_type: str, **more: str) -> None:
        self.send_response(status)
        for name, value in {**HEADERS, "Content-Type": content_type, **more}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing: names of jobs and people are nobody's business but the reader's."""
