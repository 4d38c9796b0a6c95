"""The store on a server with TLS and users: who is let in, who is trusted, and what is said to those who are not."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from faultlens.errors import ConfigurationError, WorldError
from faultlens.store import open_store
from tests.clickhouse.front import Server
from tests.kafka.certificates import Certificates, make_certificates

pytestmark = pytest.mark.store

PASSWORD: Final = "hunter2"  # noqa: S105


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("tls") / "store")


@pytest.fixture(scope="module")
def server(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server)
    context.load_verify_locations(certificates.ca)
    context.verify_mode = ssl.CERT_OPTIONAL
    server = Server(tmp_path_factory.mktemp("server") / "data", tls=context)
    server.expect("sink", PASSWORD)
    server.begin()
    yield server
    server.end()


@pytest.fixture(autouse=True)
def _password(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(f"{PASSWORD}\n", "utf-8")
    monkeypatch.setenv("FAULTLENS_STORE_PASSWORD_FILE", str(file))


def test_a_password_from_a_file_and_an_authority_from_the_settings_let_us_in(
    server: Server, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAULTLENS_STORE_CA", str(certificates.ca))
    with open_store(f"clickhouses://sink@localhost:{server.server_port}") as store:
        assert store.query("SELECT 1 AS one") == [{"one": 1}]
    assert PASSWORD not in str(store)


def test_a_certificate_of_our_own_is_shown_with_the_password(
    server: Server, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAULTLENS_STORE_CERTIFICATE", str(certificates.client))
    monkeypatch.setenv("FAULTLENS_STORE_KEY", str(certificates.client_key))
    with open_store(f"clickhouses://sink@localhost:{server.server_port}?ca_cert={certificates.ca}") as store:
        assert store.query("SELECT 1 AS one") == [{"one": 1}]
    assert server.certificate == "client"


def test_a_server_of_an_unknown_authority_is_not_told_our_password(server: Server) -> None:
    before = server.requests
    with pytest.raises(WorldError, match=r"cannot be reached: .*certificate verify failed") as refused:
        open_store(f"clickhouses://sink@localhost:{server.server_port}")
    assert type(refused.value) is WorldError, "a sink would wait for it"
    assert server.requests == before


def test_a_wrong_user_is_refused_and_waiting_is_no_use(server: Server, certificates: Certificates) -> None:
    with pytest.raises(WorldError, match=r"516") as refused:
        open_store(f"clickhouses://nobody@localhost:{server.server_port}?ca_cert={certificates.ca}")
    assert type(refused.value) is WorldError


def test_certificates_for_an_address_without_tls_are_a_mistake(certificates: Certificates, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="not encrypted: write clickhouses://"):
        open_store(f"clickhouse://sink@localhost:1?ca_cert={certificates.ca}")
    with pytest.raises(ConfigurationError, match=r"FAULTLENS_STORE_CA.*is not a file"):
        open_store(f"clickhouses://sink@localhost:1?ca_cert={tmp_path / 'none.pem'}")
