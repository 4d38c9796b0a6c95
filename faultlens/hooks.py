"""HTTP calls to hooks: what is sent is not for whoever a redirect leads to, and nobody is waited for without end."""

from __future__ import annotations

import socket
from contextlib import suppress
from http.client import HTTPConnection, HTTPSConnection
from ssl import SSLContext
from threading import Timer
from typing import Any, Final
from urllib.request import HTTPHandler, HTTPRedirectHandler, HTTPSHandler, Request, build_opener

# So many times the wait for a single word a whole answer may take.
_WORDS: Final = 2.0


class _Stays(HTTPRedirectHandler):
    """A hook that moved is told, not followed."""

    def redirect_request(self, *_: object, **__: object) -> None:
        return None


class _Plain(HTTPConnection):
    """A connection that ends after a time, whatever still trickles in."""

    def connect(self) -> None:
        super().connect()
        _end_after(self.sock, self.timeout)


class _Secure(HTTPSConnection):
    """As above."""

    def connect(self) -> None:
        super().connect()
        _end_after(self.sock, self.timeout)


class _Calls(HTTPHandler):
    def http_open(self, request: Request) -> Any:
        return self.do_open(_Plain, request)


class _SecureCalls(HTTPSHandler):
    def __init__(self, tls: SSLContext | None) -> None:
        super().__init__(context=tls)
        self._tls = tls

    def https_open(self, request: Request) -> Any:
        return self.do_open(_Secure, request, context=self._tls)


def _end_after(connected: socket.socket, timeout_s: float | None) -> None:
    def end() -> None:
        with suppress(OSError):  # it is over already
            connected.shutdown(socket.SHUT_RDWR)

    if timeout_s is not None:
        ends = Timer(_WORDS * timeout_s, end)
        ends.daemon = True
        ends.start()


def open_hook(request: Request, *, timeout: float, tls: SSLContext | None = None) -> Any:
    """Return the open answer to a call; errors are those of `urllib.request.urlopen`, and a redirect is one.

    `timeout`: seconds to wait for a word; twice that long the whole answer may take, then it ends as far as it came.
    `tls`: whom to trust; by default whom the system trusts.
    """
    return build_opener(_Stays, _Calls, _SecureCalls(tls)).open(request, timeout=timeout)
