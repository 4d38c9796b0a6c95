"""`faultlens simulate` and `faultlens score`: a fleet whose causes of failure are known, and how right verdicts are."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Annotated, BinaryIO, Final

import typer
import zstandard
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TimeRemainingColumn

from faultlens.clock import DAY_MS, parse_moment
from faultlens.errors import UsageError, WorldError
from faultlens.truth import Truth, truth_line
from producers.simulation.simulate import simulate as run
from producers.simulation.tables import load_happenings, load_mix
from producers.simulation.world import Shape, World

STDOUT: Final = "-"
EVENTS_FILE: Final = "events.jsonl.zst"
TRUTH_FILE: Final = "truth.jsonl"
DEFAULT_START: Final = "2026-11-30T00:00:00Z"
_LINES_AT_ONCE: Final = 1_000
Watch = Callable[[World, int], None]


def simulate(  # noqa: PLR0913 - one parameter for each option of the command
    *,
    nodes: Annotated[int, typer.Option(min=1, max=100_000, help="Machines in the fleet.")],
    days: Annotated[float, typer.Option(min=0.1, max=400, help="Days that pass.")],
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same bytes.")],
    out: Annotated[str, typer.Option(metavar="DIR", help="Where to write; - is standard output (events only).")],
    interval_s: Annotated[float, typer.Option(min=1, max=3_600, help="Seconds between a node's reports.")] = 300.0,
    mix: Annotated[
        str, typer.Option(metavar="NAME|FILE", help="How often what happens: default, shifted.")
    ] = "default",
    gpus_per_node: Annotated[int, typer.Option(min=1, max=16, help="GPUs in each machine.")] = 8,
    start: Annotated[str, typer.Option(metavar="TIME", help="When it begins.")] = DEFAULT_START,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable summary.")] = False,
) -> None:
    """Simulate a fleet that fails as published ones do, and write down the true cause of every failure."""
    happenings = load_happenings()
    chosen = load_mix(mix, happenings)
    shape = Shape(nodes, days, seed, _moment(start), interval_s, gpus_per_node)
    began = perf_counter()
    with _sinks(out) as sinks, _progress(shape) as watch:
        world = run(shape, chosen, happenings, write=sinks.events, told=sinks.truth, watch=watch)
    took_s = perf_counter() - began
    if out == STDOUT:
        return
    summary = {
        "events": world.delivery.delivered,
        "jobs": world.counts.get("jobs", 0),
        "failures": world.counts.get("failures", 0),
        "mix": f"{chosen.name} {chosen.version}",
        "seconds": round(took_s, 1),
        "out": out,
    }
    typer.echo(json.dumps(summary) if as_json else _sentence(summary))


def _sentence(summary: dict[str, object]) -> str:
    return (
        f"{summary['events']:,} events of {summary['jobs']:,} jobs, {summary['failures']:,} failures with known cause, "
        f"in {summary['seconds']} s: {summary['out']}/{EVENTS_FILE}, {summary['out']}/{TRUTH_FILE}"
    )


def _moment(text: str) -> int:
    try:
        return parse_moment(text)
    except ValueError as error:
        raise UsageError(f"--start: {error}") from None


@dataclass(frozen=True)
class _Sinks:
    events: Callable[[bytes], None]
    truth: Callable[[Truth], None]


@contextmanager
def _sinks(out: str) -> Iterator[_Sinks]:
    if out == STDOUT:
        with _lines(sys.stdout.buffer) as events:
            yield _Sinks(events, lambda _truth: None)
        return
    directory = Path(out)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            packed = stack.enter_context((directory / EVENTS_FILE).open("wb"))
            plain = stack.enter_context(zstandard.ZstdCompressor(level=3).stream_writer(packed))
            truth = stack.enter_context((directory / TRUTH_FILE).open("wb"))
            events = stack.enter_context(_lines(plain))
            yield _Sinks(events, lambda one: _write(truth, truth_line(one)))
    except OSError as error:
        raise WorldError(f"{directory} cannot be written: {error.strerror or error}") from error


@contextmanager
def _lines(file: BinaryIO) -> Iterator[Callable[[bytes], None]]:
    """Yield what writes one line, a thousand of them at once."""
    waiting: list[bytes] = []

    def write(line: bytes) -> None:
        waiting.append(line)
        if len(waiting) >= _LINES_AT_ONCE:
            flush()

    def flush() -> None:
        if waiting:
            _write(file, b"\n".join(waiting) + b"\n")
            waiting.clear()

    yield write
    flush()


def _write(file: BinaryIO, raw: bytes) -> None:
    file.write(raw)


@contextmanager
def _progress(shape: Shape) -> Iterator[Watch]:
    """Show how much of the time has passed, on a terminal only."""
    if not sys.stderr.isatty():
        yield lambda _world, _now_ms: None
        return
    columns = ("{task.description}", BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("Simulating", total=shape.days)
        yield lambda _world, now_ms: bar.update(task, completed=(now_ms - shape.start_ms) / DAY_MS)


if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False, no_args_is_help=True)
    app.command()(simulate)
    app()
