"""Where a producer's events go: Kafka through a spool on disk, a file, or standard output."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import BinaryIO, Final, Protocol

import structlog

from faultlens.codec import Event, encode
from faultlens.errors import UsageError, WorldError
from faultlens.kafka import load_connection
from faultlens.logs import configure, forward_libraries
from producers.delivery import Outbox, Spool
from producers.delivery.outbox import Broker

STANDARD_OUTPUT: Final = Path("-")
CLOSE_S: Final = 10.0
# A service that is stopped while the brokers say nothing leaves what waits on disk to its next start.
QUIET_S: Final = 2.0
# What others left had as long as this run took, and does not hold up its end.
OTHERS_CLOSE_S: Final = 0.05


class Outlet(Protocol):
    """Takes events from any thread, and says what is wrong with their delivery."""

    def put(self, event: Event) -> None: ...
    def settle(self, timeout_s: float) -> bool: ...
    def trouble(self) -> str | None: ...


class Lines:
    """A file of events, one a line. `direct`: what is written to it is in the file at once, and can be taken back."""

    def __init__(self, file: BinaryIO, *, direct: bool = False) -> None:
        self._file = file
        self._direct = direct
        self._lock = Lock()

    def put(self, event: Event) -> None:
        """Write the event. WorldError: it cannot be written."""
        try:
            with self._lock:
                self._write(encode(event) + b"\n")
        except OSError as error:
            raise WorldError(f"{self._file.name} cannot be written: {error.strerror or error}") from None

    def _write(self, line: bytes) -> None:
        """Write the whole line, or nothing of it: half a line would spoil the next one."""
        written = 0
        try:
            while written < len(line):
                written += self._file.write(line[written:])
            self._file.flush()
        except OSError:
            if written and self._direct:
                with suppress(OSError):  # a pipe takes nothing back
                    self._file.truncate(self._file.seek(0, os.SEEK_END) - written)
            raise

    def settle(self, timeout_s: float) -> bool:
        """Return that all is written: it is when it is put."""
        return True

    def trouble(self) -> str | None:
        """Return nothing: what cannot be written raises."""
        return None


@contextmanager
def outlet(
    out: Path | None,
    brokers: str | None,
    spool: Path,
    *,
    lasting: bool = True,
    must_arrive: bool = False,
    left: Sequence[Path] = (),
) -> Iterator[Outlet]:
    """Yield where events go: to `out` (`-` is standard output), else to Kafka by way of the file `spool`.

    A spool that is not `lasting` is this run's own, and is not left behind once all of it is delivered. What is left at
    the end waits on disk for the next run; where it `must_arrive`, as for who looks once, that is a WorldError. What is
    in the spools that other runs `left` is delivered beside it.
    """
    one_place(out, brokers)
    if not structlog.is_configured():  # else what is logged would lie among the events on standard output
        configure()
        forward_libraries()
    if out is not None:
        with lines(out) as events:
            yield events
    else:
        yield from _delivered(brokers, spool, lasting=lasting, must_arrive=must_arrive, left=left)


def one_place(out: Path | None, brokers: str | None) -> None:
    """UsageError: events cannot go to a file and to brokers."""
    if out is not None and brokers is not None:
        raise UsageError("give --out or --brokers, not both")


@contextmanager
def lines(out: Path) -> Iterator[Lines]:
    """Yield what appends events to a file; `-` is standard output. WorldError: it cannot be written."""
    if out == STANDARD_OUTPUT:
        yield Lines(sys.stdout.buffer)
        return
    try:
        file = out.open("ab", buffering=0)
    except OSError as error:
        raise WorldError(f"{out} cannot be written: {error.strerror or error}") from None
    with file:
        yield Lines(file, direct=True)


def _delivered(
    brokers: str | None, spool: Path, *, lasting: bool, must_arrive: bool, left: Sequence[Path]
) -> Iterator[Outlet]:
    from producers.delivery.kafka import KafkaBroker  # noqa: PLC0415 - needs the Kafka client

    connection = load_connection(brokers)
    broker = KafkaBroker(connection)
    outbox = Outbox(Spool(spool), broker)
    others = list(_taken_over(left, broker))
    waiting = 0
    try:
        yield outbox
    finally:
        if not outbox.close(CLOSE_S, quiet_s=QUIET_S if lasting and not must_arrive else None):
            waiting = len(outbox.spool)
            structlog.get_logger("faultlens").warning("events wait on disk", events=waiting, spool=str(spool))
        elif not lasting:
            spool.unlink(missing_ok=True)
        for path, other in others:
            if other.close(OTHERS_CLOSE_S):
                path.unlink(missing_ok=True)
    if waiting and must_arrive:
        why = broker.complaints.behind()
        raise WorldError(
            f"the brokers at {connection.brokers} did not take {waiting} events, which wait in {spool}: {why}"
        )


def _taken_over(left: Sequence[Path], broker: Broker) -> Iterator[tuple[Path, Outbox]]:
    """Yield an outbox for each spool that can be opened."""
    for path in left:
        with suppress(WorldError):
            yield path, Outbox(Spool(path), broker)
