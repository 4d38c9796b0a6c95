"""An OpenID provider on loopback that gives unsigned tokens, which a broker without a key set takes for good."""

from __future__ import annotations

import json
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs

from faultlens.clock import wall_ms


class _Answers(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        provider: Provider = self.server.provider  # type: ignore[attr-defined]
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        client = b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()
        provider.asked.append({"client": client, **form})
        body = json.dumps({"access_token": provider.give(client), "expires_in": provider.expires_in}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class Provider:
    """Gives a new token to whoever asks, and remembers what was asked and given."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/token"
        self.expires_in = 300
        self.asked: list[dict[str, Any]] = []
        self.given: list[str] = []

    def give(self, client: str) -> str:
        """Return a token (an unsigned JWT) for the client, `name:secret`."""
        now_s, name = wall_ms() // 1000, client.partition(":")[0]
        claims = {"sub": name, "iat": now_s, "exp": now_s + 300, "jti": str(len(self.given))}
        self.given.append(f"{_encoded({'alg': 'none'})}.{_encoded(claims)}.")
        return self.given[-1]


def _encoded(part: dict[str, Any]) -> str:
    return urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")


@contextmanager
def token_provider() -> Iterator[Provider]:
    """Yield a provider that answers on loopback."""
    server = HTTPServer(("127.0.0.1", 0), _Answers)
    provider = server.provider = Provider(server.server_port)  # type: ignore[attr-defined]
    thread = Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
