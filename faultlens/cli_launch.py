"""`faultlens launch`: run a command as a rank of a job, tell what becomes of it, and try again where that helps."""

from __future__ import annotations

import os
import resource
import signal
import socket
import sys
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, Protocol

import typer

from faultlens.cli_options import Brokers, Out
from faultlens.cli_outlet import CLOSE_S, outlet
from faultlens.clock import wall_ms
from faultlens.codec import Event
from faultlens.events import JobAttributed
from faultlens.kafka import load_connection
from faultlens.local_judge import LocalJudge
from faultlens.settings import data_directory, load_settings
from producers.delivery.leftovers import is_running, left_behind, spool_of
from producers.launcher.identity import Identity, identity_of
from producers.launcher.launching import STALL_AFTER_S, Judge, Launcher, Options, Sink
from producers.launcher.requeueing import queue_of
from producers.launcher.telling import Ending
from producers.launcher.watching import STEP_FIRST, pattern_of
from slo.wording import printable

ClusterOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        show_default=False,
        help="What the cluster is called in events (FAULTLENS_CLUSTER); else as Slurm calls it, else local.",
    ),
]
StepsOption = Annotated[
    str | None, typer.Option(metavar="REGEX", help=r"Lines of its output that tell a step, as in 'step (?P<step>\d+)'.")
]
SavesOption = Annotated[
    str | None,
    typer.Option(
        metavar="REGEX", help="Lines that tell of a saved checkpoint: its step, perhaps its path and seconds."
    ),
]
FileOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Look for them in what is added to this file; alone: lines that begin with the step."
    ),
]
StateOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="A folder that all nodes see: the last checkpoint waits there for a requeued job."
    ),
]
_NOT_FOUND: Final = 127
_NOT_EXECUTABLE: Final = 126
# Where a folder needs no disk.
_IN_MEMORY: Final = "/dev/shm"  # noqa: S108 - what is made there has a name of its own
_SPOOL_BEGINS_BYTES: Final = 256 << 10


class RetryOn(StrEnum):
    """What makes a launcher run a command again."""

    VERDICT = "verdict"
    FAILURE = "failure"


RetryOnOption = Annotated[
    RetryOn, typer.Option(help="What a retry needs: a verdict that it can help, or any failure, whoever is to blame.")
]


def launch(  # noqa: PLR0913 - one parameter for each option of the command
    command: Annotated[
        list[str], typer.Argument(metavar="CMD", help="What to run, with its own options.", show_default=False)
    ],
    *,
    cluster: ClusterOption = None,
    retries: Annotated[int, typer.Option(min=0, max=1_000, help="Run it again so often, where that can help.")] = 0,
    retry_on: RetryOnOption = RetryOn.VERDICT,
    job_events: Annotated[
        bool,
        typer.Option(
            "--job-events/--no-job-events", help="Tell of the job, or (where a bridge does) only of this rank."
        ),
    ] = True,
    progress_pattern: StepsOption = None,
    checkpoint_pattern: SavesOption = None,
    progress_file: FileOption = None,
    job_state: StateOption = None,
    stall_after_s: Annotated[
        float, typer.Option(min=10, max=86_400, help="Without progress for so long it is told to be stalled.")
    ] = STALL_AFTER_S,
    out: Out = None,
    brokers: Brokers = None,
    verdict_wait_s: Annotated[
        float, typer.Option(min=0, max=3_600, help="Seconds to wait for the verdict on Kafka before deciding alone.")
    ] = 30.0,
) -> None:
    """Run a command and end as it does; its output passes through.

    Alone, or as each rank under srun, mpirun or torchrun. It tells of the job's start, life and end with the last lines
    of its output (without secrets), and whether it is worth running again is decided by whose fault it was.
    """
    settings = load_settings()
    who = _who(cluster or settings.cluster)
    options = Options(
        retries=retries,
        retry_anyway=retry_on is RetryOn.FAILURE,
        job_events=job_events,
        stall_after_s=stall_after_s,
        progress_file=progress_file,
        job_state=job_state or settings.job_state,
        **_patterns(progress_pattern, checkpoint_pattern, is_file=progress_file is not None),
    )
    with _surroundings(who, out, brokers, verdict_wait_s) as (sink, judge):
        ending = _run(who, command, options, sink, judge)
    _end_as(ending.exit_code, ending.signal)


def _who(cluster: str | None) -> Identity:
    fresh_id = f"launch-{uuid.uuid4().hex[:12]}"
    return identity_of(os.environ, node=socket.gethostname(), cluster=cluster, fresh_id=fresh_id)


def _patterns(steps: str | None, saves: str | None, *, is_file: bool) -> dict[str, Any]:
    """Return what is looked for. UsageError: a pattern that is none, or names no step."""
    steps = steps or (STEP_FIRST if is_file else None)
    asked = {"steps": (steps, "--progress-pattern"), "saves": (saves, "--checkpoint-pattern")}
    return {name: pattern_of(text, option) for name, (text, option) in asked.items() if text is not None}


class _Outlet(Sink, Protocol):
    """Where events go, and when all of them have come there."""

    def settle(self, timeout_s: float) -> bool: ...


def _run(who: Identity, command: Sequence[str], options: Options, sink: _Outlet, judge: Judge) -> Ending:
    """Run the command; under a scheduler that can be asked it is the one to run it again."""
    queue = queue_of(os.environ, partial(sink.settle, CLOSE_S))
    outside: dict[str, Any] = {"sink": sink, "judge": judge, "queue": queue}
    try:
        return Launcher(who, command, os.environ, options=options, now_ms=wall_ms, say=_say, **outside).run()
    except OSError as error:
        raise _NotStarted(command, error) from None


def _say(line: str) -> None:
    """Say a line; where nothing can be written to, the command ends as it ended all the same."""
    with suppress(OSError):
        typer.echo(printable(f"faultlens: {line}", limit=2_000), err=True)


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
def _surroundings(
    who: Identity, out: Path | None, brokers: str | None, wait_s: float
) -> Iterator[tuple[_Outlet, Judge]]:
    """Yield where events go and who judges: Kafka where brokers are named, else a file or nowhere, and this process."""
    alone = LocalJudge()
    if out is None and not (brokers or load_settings().brokers):
        yield _Nowhere(), alone
        return
    waiting = _spool_of(who) if out is None else nullcontext(out)
    with waiting as spool:
        if spool is None:
            yield _Nowhere(), alone
        else:
            yield from _told_to(out, brokers, spool, wait_s, alone)


def _told_to(
    out: Path | None, brokers: str | None, spool: Path, wait_s: float, alone: Judge
) -> Iterator[tuple[_Outlet, Judge]]:
    with outlet(out, brokers, spool, lasting=False, left=_left_beside(spool)) as events:
        if out is not None:
            yield events, alone
        else:
            yield from _judged_by_all(events, brokers, wait_s, alone)


@contextmanager
def _spool_of(who: Identity) -> Iterator[Path | None]:
    """Yield where this rank's events wait: in the user's data, or where that takes nothing, since a job must run, in a
    temporary folder, which stays if something is left in it. None: no disk takes anything."""
    place = data_directory() / "faultlens" / "launch"
    if _takes(place):
        yield spool_of(place, f"{who.job_id}-{who.rank}", socket.gethostname(), os.getpid())
        return
    temporary = _temporary()
    if temporary is None:
        _say(f"{data_directory()} takes nothing, nor does any temporary folder: nothing is told of this job")
        yield None
        return
    _say(f"{data_directory()} takes nothing: events wait in {temporary}, where no later job finds them")
    yield temporary / "spool"
    with suppress(OSError):
        temporary.rmdir()


def _temporary() -> Path | None:
    """Return a new temporary folder that takes something, in memory if need be; None: there is none."""
    for above in (None, _IN_MEMORY):
        with suppress(OSError):
            place = Path(tempfile.mkdtemp(prefix="faultlens-launch-", dir=above))
            if _takes(place):
                return place
            place.rmdir()
    return None


def _takes(place: Path) -> bool:
    """Return whether a folder takes what a spool begins with."""
    try:
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(bytes(_SPOOL_BEGINS_BYTES))
    except OSError:
        return False
    return True


def _left_beside(spool: Path) -> list[Path]:
    """Return what earlier jobs of this host left of their events, where it can be seen."""
    try:
        return left_behind(spool.parent, socket.gethostname(), is_running)
    except OSError:
        return []


def _judged_by_all(
    events: _Outlet, brokers: str | None, wait_s: float, alone: Judge
) -> Iterator[tuple[_Outlet, Judge]]:
    from producers.launcher.verdicts import KafkaVerdicts  # noqa: PLC0415 - needs the Kafka client

    verdicts = KafkaVerdicts(load_connection(brokers), wait_s=wait_s, since_ms=wall_ms())
    try:
        yield events, _FirstOf(verdicts, alone)
    finally:
        verdicts.close()


class _FirstOf:
    """Asks one judge, and another where the first says nothing."""

    def __init__(self, *judges: Judge) -> None:
        self._judges = judges

    def tell(self, event: Event) -> None:
        for judge in self._judges:
            judge.tell(event)

    def verdict(self, job_id: str, attempt: int, *, decides: bool) -> JobAttributed | None:
        said = (judge.verdict(job_id, attempt, decides=decides) for judge in self._judges)
        return next((verdict for verdict in said if verdict is not None), None)


class _Nowhere:
    def put(self, event: Event) -> None:
        return

    def settle(self, timeout_s: float) -> bool:
        return True
