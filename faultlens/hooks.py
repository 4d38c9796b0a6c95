"""HTTP calls to hooks: what is sent is not for whoever a redirect leads to."""

from __future__ import annotations

from ssl import SSLContext
from typing import Any
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener


class _Stays(HTTPRedirectHandler):
    """A hook that moved is told, not followed."""

    def redirect_request(self, *_: object, **__: object) -> None:
        return None


def open_hook(request: Request, *, timeout: float, tls: SSLContext | None = None) -> Any:
    """Return the open answer to a call; errors are those of `urllib.request.urlopen`, and a redirect is one.

    `tls`: whom to trust; by default whom the system trusts.
    """
    return build_opener(_Stays, HTTPSHandler(context=tls)).open(request, timeout=timeout)
