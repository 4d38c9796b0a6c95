"""`faultlens launch`: run a command as a rank of a job, tell what becomes of it, and try again where that helps."""

from __future__ import annotations

import os
import resource
import signal
import socket
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO, Final

import typer

from faultlens.clock import wall_ms
from faultlens.codec import Event, encode
from faultlens.errors import UsageError, WorldError
from faultlens.events import JobAttributed
from faultlens.kafka import load_connection
from faultlens.local_judge import LocalJudge
from faultlens.settings import data_directory, load_settings
from producers.delivery import Outbox, Spool
from producers.launcher.identity import Identity, identity_of
from producers.launcher.launching import Judge, Launcher, Options, Sink
from slo.wording import printable

CLOSE_S: Final = 10.0
_NOT_FOUND: Final = 127
_NOT_EXECUTABLE: Final = 126


def launch(
    command: Annotated[list[str], typer.Argument(metavar="-- CMD…", help="What to run.", show_default=False)],
    *,
    cluster: Annotated[str, typer.Option(metavar="NAME", help="The cluster's name in events.")] = "local",
    retries: Annotated[int, typer.Option(min=0, max=1_000, help="Run it again so often, where that can help.")] = 0,
    job_events: Annotated[
        bool,
        typer.Option(
            "--job-events/--no-job-events", help="Tell of the job, or (where a bridge does) only of this rank."
        ),
    ] = True,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write events there instead of to Kafka; appended.")
    ] = None,
    brokers: Annotated[
        str | None, typer.Option(metavar="LIST", help="Kafka's host:port list (FAULTLENS_BROKERS).")
    ] = None,
    verdict_wait_s: Annotated[
        float, typer.Option(min=0, max=3_600, help="Seconds to wait for the verdict on Kafka before deciding alone.")
    ] = 30.0,
) -> None:
    """Run a command and end as it does; its output passes through.

    Alone, or as each rank under srun, mpirun or torchrun. It tells of the job's start, life and end with the last lines
    of its output (without secrets), and whether it is worth running again is decided by whose fault it was.
    """
    who = identity_of(
        os.environ, node=socket.gethostname(), cluster=cluster, fresh_id=f"launch-{uuid.uuid4().hex[:12]}"
    )
    with _surroundings(who, out, brokers, verdict_wait_s) as (sink, judge):
        launcher = Launcher(
            who,
            command,
            os.environ,
            options=Options(retries=retries, job_events=job_events),
            sink=sink,
            judge=judge,
            now_ms=wall_ms,
            say=lambda line: typer.echo(printable(f"faultlens: {line}", limit=2_000), err=True),
        )
        try:
            ending = launcher.run()
        except OSError as error:
            raise _NotStarted(command, error) from None
    _end_as(ending.exit_code, ending.signal)


class _NotStarted(typer.Exit):
    """The command does not exist or cannot be executed: shells say 127 and 126."""

    def __init__(self, command: Sequence[str], error: OSError) -> None:
        super().__init__(_NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE)
        typer.echo(printable(f"faultlens: {command[0]}: {error.strerror}"), err=True)


def _end_as(exit_code: int | None, number: int | None) -> None:
    """End this process as the command ended: by the same signal, if it was one."""
    sys.stdout.flush()
    if number is not None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # it is the command that may have left a core, not we
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    raise typer.Exit(exit_code or 0)


@contextmanager
def _surroundings(who: Identity, out: Path | None, brokers: str | None, wait_s: float) -> Iterator[tuple[Sink, Judge]]:
    """Yield where events go and who judges: Kafka where brokers are named, else a file or nowhere, and this process."""
    if out is not None and brokers is not None:
        raise UsageError("give --out or --brokers, not both")
    alone = LocalJudge()
    if out is not None:
        try:
            with out.open("ab") as file:
                yield _Lines(file), alone
        except OSError as error:
            raise WorldError(f"{out} cannot be written: {error.strerror or error}") from None
    elif brokers or load_settings().brokers:
        yield from _on_kafka(who, brokers, wait_s, alone)
    else:
        yield _Nowhere(), alone


def _on_kafka(who: Identity, brokers: str | None, wait_s: float, alone: Judge) -> Iterator[tuple[Sink, Judge]]:
    from producers.delivery.kafka import KafkaBroker  # noqa: PLC0415 - needs the Kafka client
    from producers.launcher.verdicts import KafkaVerdicts  # noqa: PLC0415 - ditto

    connection = load_connection(brokers)
    place = data_directory() / "faultlens" / "launch" / f"{who.job_id.replace('/', '_')}-{who.rank}"
    outbox = Outbox(Spool(place), KafkaBroker(connection))
    verdicts = KafkaVerdicts(connection, wait_s=wait_s)
    try:
        yield outbox, _FirstOf(verdicts, alone)
    finally:
        verdicts.close()
        if outbox.close(CLOSE_S):
            place.unlink(missing_ok=True)


class _FirstOf:
    """Asks one judge, and another where the first says nothing."""

    def __init__(self, *judges: Judge) -> None:
        self._judges = judges

    def tell(self, event: Event) -> None:
        for judge in self._judges:
            judge.tell(event)

    def verdict(self, job_id: str, attempt: int) -> JobAttributed | None:
        said = (judge.verdict(job_id, attempt) for judge in self._judges)
        return next((verdict for verdict in said if verdict is not None), None)


class _Lines:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def put(self, event: Event) -> None:
        self._file.write(encode(event) + b"\n")
        self._file.flush()


class _Nowhere:
    def put(self, event: Event) -> None:
        return
