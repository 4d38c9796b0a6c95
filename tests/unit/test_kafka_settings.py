"""How Kafka is reached: what the environment says becomes client settings, and secrets stay secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from faultlens.errors import ConfigurationError, UsageError
from faultlens.kafka import client_config, connection_of, consumer_config, producer_config
from faultlens.settings import Settings, load_settings


def settings(monkeypatch: pytest.MonkeyPatch, **variables: str) -> Settings:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"FAULTLENS_{name.upper()}", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(f"FAULTLENS_{name}", value)
    return load_settings()


def test_without_a_broker_it_says_how_to_name_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="set FAULTLENS_BROKERS"):
        connection_of(settings(monkeypatch))


def test_the_command_line_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert connection_of(settings(monkeypatch, BROKERS="a:1"), "b:2").brokers == "b:2"


@pytest.mark.parametrize("address", ["kafka", ":9092", "kafka:port", "a:1,b"])
def test_an_address_needs_host_and_port(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    with pytest.raises(ConfigurationError, match=r"FAULTLENS_BROKERS: '.*' is not host:port"):
        connection_of(settings(monkeypatch, BROKERS=address))


def test_a_password_from_a_file_reaches_the_client_and_is_never_shown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "password").write_text("hunter2\n")
    (tmp_path / "ca.pem").write_text("")
    given = settings(
        monkeypatch,
        BROKERS="a:1",
        KAFKA_SECURITY="sasl_ssl",
        KAFKA_USER="worker",
        KAFKA_PASSWORD_FILE=str(tmp_path / "password"),
        KAFKA_CA=str(tmp_path / "ca.pem"),
    )
    connection = connection_of(given)
    config = client_config(connection)
    assert config["sasl.password"] == "hunter2"
    assert config["sasl.mechanism"] == "SCRAM-SHA-512"
    assert config["ssl.ca.location"] == str(tmp_path / "ca.pem")
    assert "hunter2" not in f"{connection!r} {given!r} {given.model_dump_json()}"


def test_a_token_is_asked_for_where_the_settings_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {
        "BROKERS": "a:1",
        "KAFKA_SECURITY": "sasl_ssl",
        "KAFKA_MECHANISM": "OAUTHBEARER",
        "KAFKA_USER": "client",
        "KAFKA_PASSWORD": "hunter2",
        "KAFKA_TOKEN_URL": "https://idp/token",
        "KAFKA_TOKEN_SCOPE": "kafka",
    }
    config = client_config(connection_of(settings(monkeypatch, **variables)))
    assert config["sasl.oauthbearer.method"] == "oidc"
    assert config["sasl.oauthbearer.token.endpoint.url"] == "https://idp/token"
    assert config["sasl.oauthbearer.client.secret"] == "hunter2"
    assert "sasl.password" not in config


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"KAFKA_SECURITY": "sasl_ssl"}, "set FAULTLENS_KAFKA_USER"),
        ({"KAFKA_SECURITY": "sasl_ssl", "KAFKA_USER": "a"}, "FAULTLENS_KAFKA_PASSWORD_FILE too"),
        ({"KAFKA_USER": "a"}, "which logs nobody in"),
        ({"KAFKA_CA": "/etc/hostname"}, "does not encrypt"),
        ({"KAFKA_SECURITY": "ssl", "KAFKA_CA": "/no/such.pem"}, "KAFKA_CA: /no/such.pem is not a file"),
        ({"KAFKA_SECURITY": "ssl", "KAFKA_KEY": "/etc/hostname"}, "KAFKA_CERTIFICATE it belongs to"),
        (
            {
                "KAFKA_SECURITY": "sasl_ssl",
                "KAFKA_USER": "a",
                "KAFKA_PASSWORD": "b",
                "KAFKA_MECHANISM": "OAUTHBEARER",
            },
            "set FAULTLENS_KAFKA_TOKEN_URL too",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], said: str
) -> None:
    with pytest.raises(ConfigurationError, match=said):
        connection_of(settings(monkeypatch, BROKERS="a:1", **variables))


def test_producers_partition_as_kafkas_own_clients_do_and_write_nothing_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    config = producer_config(connection_of(settings(monkeypatch, BROKERS="a:1")), transactional_id="node-3")
    assert config["partitioner"] == "murmur2_random"
    assert (config["acks"], config["enable.idempotence"], config["transactional.id"]) == ("all", True, "node-3")
    assert config["delivery.timeout.ms"] <= config["transaction.timeout.ms"] == 10_000


def test_consumers_see_committed_records_only_and_commit_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    config = consumer_config(connection_of(settings(monkeypatch, BROKERS="a:1")), "sink")
    assert (config["isolation.level"], config["enable.auto.commit"]) == ("read_committed", False)
    assert (config["group.id"], config["auto.offset.reset"]) == ("sink", "earliest")
