"""How Faust's client shows who we are: nothing, TLS, a password, or a token of an OpenID provider."""

from __future__ import annotations

import asyncio
import json
import ssl
from base64 import b64decode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs

import pytest
from pydantic import SecretStr

pytest.importorskip("faust", reason="Faust is not installed (extra `stream`)")

from faultlens.kafka import Connection, Identity
from streams.app import credentials
from streams.shell.tokens import ClientTokens
from tests.kafka.certificates import make_certificates

SECRET = SecretStr("hunter2")


class _Provider(BaseHTTPRequestHandler):
    """Gives a new token to whoever shows the secret, and remembers what was asked."""

    asked: list[dict[str, Any]]

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        client = b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()
        self.asked.append({"client": client, **form})
        body = json.dumps({"access_token": f"token-{len(self.asked)}", "expires_in": self.server.expires_in}).encode()  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def provider() -> Iterator[HTTPServer]:
    _Provider.asked = []
    server = HTTPServer(("127.0.0.1", 0), _Provider)
    server.expires_in = 300  # type: ignore[attr-defined]
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def tokens(provider: HTTPServer) -> ClientTokens:
    url = f"http://127.0.0.1:{provider.server_port}/token"
    return ClientTokens(Identity("OAUTHBEARER", "worker", SECRET, url, "kafka"), None)


async def _twice(asked: ClientTokens) -> list[str]:
    return [await asked.token(), await asked.token()]


def test_a_token_is_asked_for_once_while_it_is_good(provider: HTTPServer) -> None:
    assert asyncio.run(_twice(tokens(provider))) == ["token-1", "token-1"]
    assert _Provider.asked == [
        {"client": "worker:hunter2", "grant_type": ["client_credentials"], "scope": ["kafka"]},
    ]


def test_a_token_that_is_over_is_asked_for_anew(provider: HTTPServer) -> None:
    provider.expires_in = 0  # type: ignore[attr-defined]
    assert asyncio.run(_twice(tokens(provider))) == ["token-1", "token-2"]


def test_without_security_nobody_is_shown() -> None:
    assert credentials(Connection("a:1")) is None


def test_each_way_to_log_in_has_its_credentials(tmp_path: Path) -> None:
    tls = make_certificates(tmp_path / "tls")
    alone = credentials(Connection("a:1", "ssl", None, tls.ca, tls.client, tls.client_key))
    assert (alone.protocol.value, alone.context.verify_mode) == ("SSL", ssl.CERT_REQUIRED)
    scram = credentials(Connection("a:1", "sasl_ssl", Identity("SCRAM-SHA-512", "w", SECRET), tls.ca))
    assert (scram.protocol.value, scram.mechanism.value, scram.username) == ("SASL_SSL", "SCRAM-SHA-512", "w")
    bearer = credentials(Connection("a:1", "sasl_ssl", Identity("OAUTHBEARER", "w", SECRET, "https://idp/t"), tls.ca))
    assert (bearer.protocol.value, bearer.mechanism.value) == ("SASL_SSL", "OAUTHBEARER")
    assert "hunter2" not in f"{scram!r} {bearer!r}"
