"""Runs an actuator: commands from Kafka or a file, results to Kafka or a file, until it is told to stop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from actuators import Actuator, Worker
from actuators.crew import Crew
from actuators.ledger import Ledger
from actuators.worker import Duty
from faultlens.cli_outlet import outlet
from faultlens.clock import DAY_MS, SECOND_MS, monotonic_s, wall_ms
from faultlens.codec import Decoder
from faultlens.errors import WorldError
from faultlens.events import RemediationCommand
from faultlens.kafka import load_connection
from faultlens.logs import LogFormat, configure, forward_libraries
from faultlens.settings import data_directory

_POLL_S: Final = 1.0
# What is being done looks within some seconds whether it is to stop; who manages services waits longer than this.
_STOPS_S: Final = 10.0
log = structlog.get_logger("faultlens")


@dataclass(frozen=True)
class Place:
    """Where commands come from and results go to, and whose business they are."""

    name: str
    cluster: str
    commands: Path | None
    brokers: str | None
    out: Path | None
    ledger: Path | None
    nodes: frozenset[str] | None = None
    sole: bool = False

    @property
    def file(self) -> Path:
        """The ledger's file."""
        return self.ledger or data_directory() / "faultlens" / f"act-{self.cluster}-{self.name}.db"


def serve(actuator: Actuator, place: Place, log_format: LogFormat) -> None:
    """Carry commands out until told to stop, or until the file of them is done."""
    with closing(Ledger(place.file)) as kept:
        serve_by(kept, actuator, place, log_format)


def serve_by(ledger: Ledger, actuator: Actuator, place: Place, log_format: LogFormat) -> None:
    """As `serve`, by a ledger that is open: an actuator that keeps notes has them there."""
    configure(log_format)
    forward_libraries()
    spool = place.file.with_suffix(".spool")
    with outlet(place.out, None if place.out else place.brokers, spool) as results:
        duty = Duty(place.cluster, place.nodes, place.sole)
        worker = Worker(actuator, duty, ledger, results.put, wall_ms, steady_ms=_steady_ms)
        with _crew(worker, place.name) as crew:
            for command in worker.unfinished():
                crew.begin(command)
            if place.commands is None:
                _follow(place, worker, crew)
            for command in () if place.commands is None else _of_file(place.commands):
                if worker.accept(command):
                    crew.begin(command)
            crew.finish()


def _steady_ms() -> int:
    return round(monotonic_s() * SECOND_MS)


@contextmanager
def _crew(worker: Worker, name: str) -> Iterator[Crew]:
    """Give a worker's hands while the block runs; what is left then is gone on with at the next start."""
    crew = Crew(worker, name=name)
    try:
        yield crew
    finally:
        left = crew.stop(_STOPS_S)
        if left:
            log.warning("commands are left, and gone on with at the next start", commands=left)


def _follow(place: Place, worker: Worker, crew: Crew) -> None:
    from actuators.kafka import KafkaCommands  # noqa: PLC0415 - needs the Kafka client

    group = f"faultlens-act-{place.cluster}-{place.name}"
    with closing(KafkaCommands(load_connection(place.brokers), group)) as source:
        log.info("carries commands out", actuator=worker.actuator.name, cluster=place.cluster)
        tidied_ms = _steady_ms()
        while True:
            crew.check()
            if _steady_ms() - tidied_ms > DAY_MS:
                worker.tidy()
                tidied_ms = _steady_ms()
            accepted = [command for command in source.poll(_POLL_S) if worker.accept(command)]
            source.written_down()
            for command in accepted:
                log.info("command", action=command.action, node=command.node, id=command.command_id)
                crew.begin(command)


def _of_file(path: Path) -> Iterator[RemediationCommand]:
    decode = Decoder().decode
    try:
        with path.open("rb") as file:
            for line in file:
                data = decode(line).data if line.strip() else None
                if isinstance(data, RemediationCommand):
                    yield data
    except OSError as error:
        raise WorldError(f"{path} cannot be read: {error.strerror or error}") from None
