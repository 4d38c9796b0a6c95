"""`faultlens ingest`: take events over HTTP, for those who cannot or should not reach Kafka."""

from __future__ import annotations

import ssl
from pathlib import Path
from time import monotonic
from typing import Annotated

import structlog
import typer

from faultlens.cli_options import Brokers
from faultlens.errors import ConfigurationError, UsageError
from faultlens.exposition import parse_address
from faultlens.kafka import load_connection
from faultlens.logs import configure, forward_libraries
from faultlens.stopping import told_to_stop
from producers.ingest.serving import Ingest, Server
from producers.ingest.tokens import load_tokens

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def ingest(
    *,
    tokens: Annotated[Path, typer.Option(metavar="FILE", help="Who may speak for whom.")],
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where to listen.")] = "127.0.0.1:8095",
    certificate: Annotated[Path | None, typer.Option(metavar="FILE", help="Speak TLS with this certificate.")] = None,
    key: Annotated[Path | None, typer.Option(metavar="FILE", help="The certificate's key.")] = None,
    behind_tls: Annotated[
        bool,
        typer.Option("--behind-tls", help="Something in front speaks TLS, so that tokens are not read on the way."),
    ] = False,
    brokers: Brokers = None,
) -> None:
    """Take CloudEvents, and NVSentinel's, by POST /v1/events, and hand them to Kafka before answering.

    Nothing is kept: while Kafka is away the answer is 503, and the sender sends it again. A token may only speak for
    the nodes, jobs and clusters that the file names.
    """
    from producers.ingest.publishing import KafkaPublisher  # noqa: PLC0415 - needs the Kafka client

    host, port = parse_address(listen)
    known = load_tokens(tokens)
    context = _tls(certificate, key)
    if context is None and host not in _LOOPBACK and not behind_tls:
        raise UsageError(
            f"tokens would be readable on the way to {host}: give --certificate and --key, or --behind-tls"
        )
    configure()
    forward_libraries()
    publisher = KafkaPublisher(load_connection(brokers))
    taking = Ingest(known, publisher, monotonic_s=monotonic)
    server = Server(host, port, taking, context)
    log = structlog.get_logger("faultlens.ingest")
    log.info("listening", host=host, port=server.port, speakers=len(known.tokens))
    told_to_stop().wait()
    server.close()
    publisher.close()
    log.info("stopped", **{name.replace(" ", "_"): count for name, count in sorted(taking.counts.items())})


def _tls(certificate: Path | None, key: Path | None) -> ssl.SSLContext | None:
    if (certificate is None) != (key is None):
        raise UsageError("--certificate and --key belong together")
    if certificate is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificate, key)
    except OSError as error:
        raise ConfigurationError(
            f"{certificate} and {key} are no certificate and key in PEM that belong together: {error}"
        ) from None
    return context
