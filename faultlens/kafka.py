"""How Kafka is reached and used: addresses, security, and the client settings that correctness rests on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import SecretStr

from faultlens.errors import ConfigurationError, UsageError
from faultlens.kafka_logs import KAFKA_LOG
from faultlens.settings import PREFIX, Settings, load_settings, secret

Security = Literal["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"]
# What Kafka's own clients use. librdkafka's default differs: with it records that belong together miss each other.
PARTITIONER: Final = "murmur2_random"
# How long an open transaction of a frozen worker may hold up those who read committed records.
TRANSACTION_TIMEOUT_MS: Final = 10_000
# A delivery that takes longer than this has failed.
DELIVERY_TIMEOUT_MS: Final = 120_000
# The contract's largest record, with room for its key and headers.
MAX_MESSAGE_BYTES: Final = 1_048_576
# The header by which a recording that is played says when a record had arrived: milliseconds since the epoch.
ARRIVED: Final = "recordedtime"
# The header of ticks after the last event of a recording: nobody reports any more, and nobody is missed for that.
AFTER: Final = "after"
# The header of the tick that ends a recording: what is known and was not written yet is written now.
ENDS: Final = "ends"


@dataclass(frozen=True)
class Identity:
    """Who we are to the brokers: user and password, or the client of an OpenID provider and its secret."""

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
    name: str
    secret: SecretStr
    token_url: str | None = None
    scope: str | None = None


@dataclass(frozen=True)
class Connection:
    """Brokers (`host:port`, comma-separated) and how to speak to them. Its secrets are masked wherever it is shown."""

    brokers: str
    security: Security = "plaintext"
    identity: Identity | None = None
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    key_password: SecretStr | None = None

    @property
    def uses_tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.security in ("ssl", "sasl_ssl")


def load_connection(brokers: str | None = None) -> Connection:
    """Return the connection that the environment describes; `brokers` replaces FAULTLENS_BROKERS.

    Raises UsageError where no broker is named, ConfigurationError where the settings contradict each other.
    """
    return connection_of(load_settings(), brokers)


def connection_of(settings: Settings, brokers: str | None = None) -> Connection:
    """Return the connection that the settings describe (see `load_connection`)."""
    addresses = brokers or settings.brokers
    if not addresses:
        raise UsageError(f"no broker is named: give --brokers HOST:PORT or set {PREFIX}BROKERS")
    _check_addresses(addresses)
    _check_files(settings)
    return Connection(
        brokers=addresses,
        security=settings.kafka_security,
        identity=_identity(settings),
        ca=settings.kafka_ca,
        certificate=settings.kafka_certificate,
        key=settings.kafka_key,
        key_password=settings.kafka_key_password,
    )


def _check_addresses(addresses: str) -> None:
    for address in addresses.split(","):
        host, _, port = address.strip().rpartition(":")
        if not host or not port.isdigit():
            raise ConfigurationError(f"{PREFIX}BROKERS: {address.strip()!r} is not host:port")


def _check_files(settings: Settings) -> None:
    if settings.kafka_key is not None and settings.kafka_certificate is None:
        raise ConfigurationError(f"{PREFIX}KAFKA_KEY is set, but not the {PREFIX}KAFKA_CERTIFICATE it belongs to")
    if settings.kafka_security not in ("ssl", "sasl_ssl"):
        for name in ("kafka_ca", "kafka_certificate"):
            if getattr(settings, name) is not None:
                raise ConfigurationError(
                    f"{PREFIX}{name.upper()} is set, but {PREFIX}KAFKA_SECURITY is {settings.kafka_security}, which "
                    f"does not encrypt: set it to ssl or sasl_ssl"
                )
    for name in ("kafka_ca", "kafka_certificate", "kafka_key"):
        path: Path | None = getattr(settings, name)
        if path is not None and not path.is_file():
            raise ConfigurationError(f"{PREFIX}{name.upper()}: {path} is not a file")


def _identity(settings: Settings) -> Identity | None:
    if not settings.kafka_security.startswith("sasl"):
        if settings.kafka_user is not None:
            raise ConfigurationError(
                f"{PREFIX}KAFKA_USER is set, but {PREFIX}KAFKA_SECURITY is {settings.kafka_security}, which logs "
                f"nobody in: set it to sasl_ssl"
            )
        return None
    password = secret(settings, "kafka_password")
    if settings.kafka_user is None or not password:
        raise ConfigurationError(
            f"{PREFIX}KAFKA_SECURITY is {settings.kafka_security}: set {PREFIX}KAFKA_USER and "
            f"{PREFIX}KAFKA_PASSWORD_FILE too"
        )
    if settings.kafka_mechanism == "OAUTHBEARER" and settings.kafka_token_url is None:
        raise ConfigurationError(f"{PREFIX}KAFKA_MECHANISM is OAUTHBEARER: set {PREFIX}KAFKA_TOKEN_URL too")
    return Identity(
        settings.kafka_mechanism,
        settings.kafka_user,
        SecretStr(password),
        settings.kafka_token_url,
        settings.kafka_token_scope,
    )


# --- librdkafka ----------------------------------------------------------------------------------------


def client_config(connection: Connection) -> dict[str, Any]:
    """Return librdkafka's settings of the connection. They hold its secrets: not for logs."""
    config: dict[str, Any] = {
        "bootstrap.servers": connection.brokers,
        "security.protocol": connection.security,
        "client.id": "faultlens",
        "log_level": 3,
        "logger": KAFKA_LOG,
    }
    for name, path in (
        ("ssl.ca.location", connection.ca),
        ("ssl.certificate.location", connection.certificate),
        ("ssl.key.location", connection.key),
    ):
        if path is not None:
            config[name] = str(path)
    if connection.key_password is not None:
        config["ssl.key.password"] = connection.key_password.get_secret_value()
    if connection.identity is not None:
        config |= _sasl(connection.identity, connection.ca)
    return config


def _sasl(identity: Identity, ca: Path | None) -> dict[str, str]:
    given = identity.secret.get_secret_value()
    if identity.mechanism != "OAUTHBEARER":
        return {"sasl.mechanism": identity.mechanism, "sasl.username": identity.name, "sasl.password": given}
    config = {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": identity.name,
        "sasl.oauthbearer.client.secret": given,
        "sasl.oauthbearer.token.endpoint.url": identity.token_url or "",
    }
    if identity.scope is not None:
        config["sasl.oauthbearer.scope"] = identity.scope
    if ca is not None:
        config["https.ca.location"] = str(ca)
    return config


def producer_config(connection: Connection, *, transactional_id: str | None = None) -> dict[str, Any]:
    """Return the settings of a producer: all replicas, nothing twice, and the partitioner all others use."""
    config = client_config(connection) | {
        "partitioner": PARTITIONER,
        "acks": "all",
        "enable.idempotence": True,
        "linger.ms": 5,
        "compression.type": "zstd",
        "message.max.bytes": MAX_MESSAGE_BYTES,
        "delivery.timeout.ms": DELIVERY_TIMEOUT_MS,
    }
    if transactional_id is not None:
        config["transactional.id"] = transactional_id
        config["transaction.timeout.ms"] = TRANSACTION_TIMEOUT_MS
        # A delivery may not outlive its transaction: there must be time to end that before the coordinator does.
        config["delivery.timeout.ms"] = TRANSACTION_TIMEOUT_MS * 4 // 5
    return config


def consumer_config(connection: Connection, group: str) -> dict[str, Any]:
    """Return the settings of a consumer: committed records only, from the beginning, offsets committed by hand."""
    return client_config(connection) | {
        "group.id": group,
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
    }
