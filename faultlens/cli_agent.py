"""`faultlens agent`: watch over this node."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event as Flag
from threading import Lock
from types import FrameType
from typing import Annotated, BinaryIO, Final

import structlog
import typer

from faultlens.clock import wall_ms
from faultlens.codec import Event, encode
from faultlens.errors import WorldError
from faultlens.kafka import load_connection
from faultlens.version import program_version
from producers.agent.configuration import Configuration, load_configuration
from producers.agent.loop import Agent, Sink
from producers.agent.reporting import told
from producers.delivery import Outbox, Spool
from slo.wording import printable

CONFIGURATION: Final = Path("/etc/faultlens/agent.yaml")
STANDARD_OUTPUT: Final = Path("-")
CLOSE_S: Final = 10.0


def agent(
    *,
    config: Annotated[Path, typer.Option(metavar="FILE", help="What this node is and has.")] = CONFIGURATION,
    once: Annotated[bool, typer.Option("--once", help="Look once, say what was found, and end.")] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write events there instead of to Kafka; - is standard output.")
    ] = None,
    brokers: Annotated[
        str | None, typer.Option(metavar="LIST", help="Kafka's host:port list (FAULTLENS_BROKERS).")
    ] = None,
) -> None:
    """Report this node's health at every interval, and the faults that the kernel tells of at once.

    Whatever hangs, breaks or is missing is reported as such, and never as healthy. While Kafka is away events wait on
    disk.
    """
    configuration = load_configuration(config)
    with _sink(configuration, out, brokers) as sink:
        watching = Agent(configuration, sink, version=program_version(), now_ms=wall_ms)
        if once:
            typer.echo(printable(told(watching.once()), limit=2_000), err=True)
        else:
            watching.run(_told_to_stop())


def _told_to_stop() -> Flag:
    """Return what is set when somebody asks the process to end."""
    stop = Flag()

    def ask(number: int, frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, ask)
    return stop


@contextmanager
def _sink(configuration: Configuration, out: Path | None, brokers: str | None) -> Iterator[Sink]:
    if out == STANDARD_OUTPUT:
        yield _Lines(sys.stdout.buffer)
    elif out is not None:
        try:
            with out.open("ab") as file:
                yield _Lines(file)
        except OSError as error:
            raise WorldError(f"{out} cannot be written: {error.strerror or error}") from None
    else:
        yield from _delivered(configuration, brokers)


def _delivered(configuration: Configuration, brokers: str | None) -> Iterator[Sink]:
    from producers.delivery.kafka import KafkaBroker  # noqa: PLC0415 - needs the Kafka client

    connection = load_connection(brokers)
    outbox = Outbox(Spool(configuration.state / "spool"), KafkaBroker(connection))
    try:
        yield outbox
    finally:
        if not outbox.close(CLOSE_S):
            structlog.get_logger("faultlens.agent").warning("events wait on disk", events=len(outbox.spool))


class _Lines:
    """A file of events, one a line."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._lock = Lock()

    def put(self, event: Event) -> None:
        with self._lock:
            self._file.write(encode(event) + b"\n")
            self._file.flush()

    def trouble(self) -> str | None:
        return None
