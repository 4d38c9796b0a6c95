"""`faultlens replay`: recorded events through the whole pipeline, in one process."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import perf_counter
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, TaskProgressColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from faultlens.cli_options import ObjectivesOption, PolicyOption
from faultlens.clock import parse_moment
from faultlens.errors import UsageError
from faultlens.local import Places, Progress
from faultlens.local import replay as run
from faultlens.local_report import Run, as_json, as_text
from faultlens.local_roles import load_roles
from faultlens.local_state import state_path
from faultlens.recordings import STDIN, Recording
from faultlens.settings import load_settings
from faultlens.store import open_store, parse_dsn
from sinks.hours import AddingUp
from sinks.migrate import load_migrations, migrate
from sinks.writer import StoreWriter

NO_STORE: Final = "none"


def replay(  # noqa: PLR0913 - one parameter for each option of the command
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE", help="Events, one a line; plain, gzip or zstd. - is standard input."),
    ] = None,
    *,
    until: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Advance the clock to this time after the last event."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write each output topic there as JSON lines; overwritten.")
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(metavar="DSN", help="Where answers are kept (FAULTLENS_STORE); none: nowhere, nor the state."),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Start anew instead of going on from where the last replay ended.")
    ] = False,
    catalogue: Annotated[
        list[Path] | None, typer.Option(metavar="DIR", help="A site's own fault catalogue; may be repeated.")
    ] = None,
    signatures: Annotated[
        list[Path] | None, typer.Option(metavar="DIR", help="A site's own log signatures; may be repeated.")
    ] = None,
    objectives: ObjectivesOption = None,
    policy: PolicyOption = None,
    as_json_: Annotated[bool, typer.Option("--json", help="Machine-readable summary.")] = False,
) -> None:
    """Say of every failed job in recorded events whose fault it was, and what that did to the objectives.

    Several files are merged by arrival. The next replay into the same store goes on where this one ended. Ends with 0
    whatever the events say.
    """
    until_ms = _moment(until)
    recordings = _recordings(files or [])
    for recording in recordings:
        recording.verify()
    dsn = store or load_settings().store
    roles = load_roles(catalogue or (), signatures or (), objectives, policy=policy)
    with ExitStack() as stack:
        places = _places(stack, out, None if dsn == NO_STORE else dsn, fresh=fresh)
        progress = stack.enter_context(_progress(recordings))
        began = perf_counter()
        tally = run(recordings, roles, places, until_ms=until_ms, progress=progress)
        done = Run(tally, perf_counter() - began, out, None if dsn == NO_STORE else str(parse_dsn(dsn)))
    typer.echo(json.dumps(as_json(done), indent=2) if as_json_ else as_text(done))


def _moment(text: str | None) -> int | None:
    try:
        return None if text is None else parse_moment(text)
    except ValueError as error:
        raise UsageError(f"--until: {error}") from None


def _recordings(files: Sequence[str]) -> list[Recording]:
    if not files:
        raise UsageError("name at least one file of events, or - for standard input")
    if files.count(STDIN) > 1:
        raise UsageError("standard input (-) can be read only once")
    return [Recording(file) for file in files]


def _places(stack: ExitStack, out: Path | None, dsn: str | None, *, fresh: bool) -> Places:
    if dsn is None:
        return Places(out)
    target = stack.enter_context(open_store(dsn))
    # A state is worth nothing without the answers it goes on from: of a store that was emptied, nothing is read.
    is_new = len(migrate(target)) == len(load_migrations())
    whole = AddingUp(target)
    # Comes before the store is closed, and not after a failure: whoever writes next adds up what this one did not.
    stack.push(lambda kind, *_: None if kind else whole.settle())
    return Places(out, StoreWriter(whole), state_path(dsn), fresh or is_new)


@contextmanager
def _progress(recordings: Sequence[Recording]) -> Iterator[Progress]:
    """Show how much of the files was read, on a terminal only."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    sizes = [recording.size for recording in recordings]
    total = None if None in sizes else sum(size or 0 for size in sizes)
    columns = ("{task.description}", BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("Replaying", total=total)
        yield lambda: bar.update(task, completed=sum(recording.bytes_read for recording in recordings))
