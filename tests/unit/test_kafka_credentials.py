"""How Faust's client shows who we are: nothing, TLS, a password, or a token of an OpenID provider."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

pytest.importorskip("faust", reason="Faust is not installed (extra `stream`)")

from faultlens.kafka import Connection, Identity
from streams.app import credentials
from streams.shell.tokens import ClientTokens
from tests.kafka.certificates import make_certificates
from tests.kafka.tokens import Provider, token_provider

SECRET = SecretStr("hunter2")


@pytest.fixture
def provider() -> Iterator[Provider]:
    with token_provider() as started:
        yield started


def tokens(provider: Provider) -> ClientTokens:
    return ClientTokens(Identity("OAUTHBEARER", "worker", SECRET, provider.url, "kafka"), None)


async def _twice(asked: ClientTokens) -> list[str]:
    return [await asked.token(), await asked.token()]


def test_a_token_is_asked_for_once_while_it_is_good(provider: Provider) -> None:
    assert asyncio.run(_twice(tokens(provider))) == 2 * provider.given
    assert provider.asked == [
        {"client": "worker:hunter2", "grant_type": ["client_credentials"], "scope": ["kafka"]},
    ]


def test_a_token_that_is_over_is_asked_for_anew(provider: Provider) -> None:
    provider.expires_in = 0
    assert asyncio.run(_twice(tokens(provider))) == provider.given
    assert len(set(provider.given)) == 2


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
