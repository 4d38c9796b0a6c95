"""How a store is named, and what is said of a name that is none."""

from pathlib import Path

import pytest

from faultlens.errors import ConfigurationError
from faultlens.store import Embedded, Server, parse_dsn


@pytest.mark.parametrize(
    ("dsn", "path"),
    [
        ("chdb:///var/lib/faultlens", Path("/var/lib/faultlens")),
        ("/var/lib/faultlens", Path("/var/lib/faultlens")),
        ("chdb://answers/here", Path.cwd() / "answers" / "here"),
        ("answers", Path.cwd() / "answers"),
        ("chdb://~/answers", Path.home() / "answers"),
        ("chdb:///odd?name#here", Path("/odd?name#here")),
    ],
)
def test_a_path_is_an_embedded_store(dsn: str, path: Path) -> None:
    assert parse_dsn(dsn) == Embedded(path)
    assert parse_dsn(str(parse_dsn(dsn))) == Embedded(path)


def test_a_server_has_the_usual_ports_user_and_database() -> None:
    assert parse_dsn("clickhouse://db") == Server("db", 8123, "default", "default", secure=False)
    assert parse_dsn("clickhouses://me%40here@db:9443/fleet?connect_timeout=5&verify=false") == Server(
        "db", 9443, "me@here", "fleet", secure=True, options={"connect_timeout": 5, "verify": "false"}
    )


def test_a_server_is_shown_without_its_options() -> None:
    assert str(parse_dsn("clickhouses://me@db/fleet?ca_cert=/etc/ca.pem")) == "clickhouses://me@db:8443/fleet"


@pytest.mark.parametrize(
    ("dsn", "said"),
    [
        ("", "path is empty"),
        ("chdb://", "path is empty"),
        ("postgres://db", r"not a store: postgres://… \(expected chdb:///absolute/path"),
        ("clickhouse:///fleet", "names no host"),
        ("clickhouse://db:many/fleet", "not a URL"),
        ("clickhouse://db/fleet?verfy=false", "unknown option of the store's address: verfy"),
        ("clickhouse://db/fleet?connect_timeout=soon", "connect_timeout of the store's address is not a number"),
    ],
)
def test_what_is_no_store_is_refused_with_what_to_write_instead(dsn: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        parse_dsn(dsn)


def test_a_password_in_the_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigurationError, match="FAULTLENS_STORE_PASSWORD") as refused:
        parse_dsn("clickhouse://me:hunter2@db/fleet")
    assert "hunter2" not in str(refused.value)
