"""`faultlens simulate` and `faultlens score`: a fleet whose causes of failure are known, and how right verdicts are."""

from __future__ import annotations

import json
import os
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
from faultlens.store import open_store
from faultlens.truth import Truth, read_breakages, read_truths, truth_line
from faultlens.version import program_version
from producers.simulation.broken import breakages
from producers.simulation.simulate import simulate as run
from producers.simulation.tables import Mix, load_happenings, load_mix
from producers.simulation.world import Shape, World
from slo import remedies, score_text
from slo.labels import labels, truth_of
from slo.precision import PrecisionTable
from slo.remedies_reading import said_in_directory, said_in_store
from slo.scoring import Score, Verdict, key_of
from slo.scoring import score as measure
from slo.verdicts import verdicts_of_directory, verdicts_of_store

STDOUT: Final = "-"
EXIT_BAD_ANSWER: Final = 1
EVENTS_FILE: Final = "events.jsonl.zst"
TRUTH_FILE: Final = "truth.jsonl"
BREAKAGES_FILE: Final = "breakages.jsonl"
ABOUT_FILE: Final = "simulation.json"
BY_A_PERSON: Final = "labelled_by_a_person"
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
    _describe(Path(out) / ABOUT_FILE, shape, chosen)
    _tell_breakages(Path(out) / BREAKAGES_FILE, world)
    summary = {
        "events": world.delivery.delivered,
        "jobs": world.counts.get("jobs", 0),
        "failures": world.counts.get("failures", 0),
        "mix": f"{chosen.name} {chosen.version}",
        "seconds": round(took_s, 1),
        "out": out,
    }
    typer.echo(json.dumps(summary) if as_json else _sentence(summary))


def score(
    truth: Annotated[
        str,
        typer.Argument(
            metavar="TRUTH|STORE", help="truth.jsonl of a simulation, or a store whose labels are the truth."
        ),
    ],
    answers: Annotated[
        str | None,
        typer.Argument(metavar="DIR|STORE", help="What `replay --out` wrote, or the store that it filled."),
    ] = None,
    *,
    by_rule: Annotated[bool, typer.Option("--by-rule", help="Also show how often each rule was right.")] = False,
    calibrate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the measured precision of rules there, as YAML.")
    ] = None,
    add: Annotated[bool, typer.Option("--add", help="Add to what the --calibrate file holds already.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable.")] = False,
) -> None:
    """Compare verdicts with the truth; ends with 1 if a failure has no final verdict.

    Against people's labels it is the program's own verdicts that are held, as they were without the labels.
    """
    measured = _against_labels(truth, answers) if _is_store(truth) else _against_truths(Path(truth), answers)
    if calibrate is not None:
        _calibrate(calibrate, measured, truth, add=add)
    repaired = None if _is_store(truth) or answers is None else _remedies(Path(truth), answers)
    if as_json:
        told = {} if repaired is None else {"remediation": remedies.as_json(repaired)}
        typer.echo(json.dumps(score_text.as_json(measured) | told, indent=2))
    else:
        typer.echo(score_text.as_text(measured))
        if repaired is not None and repaired.isolations:
            typer.echo(remedies.as_text(repaired))
        if by_rule:
            typer.echo(score_text.rules_as_text(measured.by_rule))
    if measured.unsettled:
        raise typer.Exit(EXIT_BAD_ANSWER)


def _remedies(truth: Path, answers: str) -> remedies.Remedies:
    """Return how right remediation was, by what it did and by what is beside the truth of what was wrong."""
    beside = truth.with_name(BREAKAGES_FILE)
    breakages = list(read_breakages(beside)) if beside.is_file() else []
    if not _is_store(answers):
        return remedies.remedies(read_truths(truth), breakages, said_in_directory(Path(answers)))
    with open_store(answers) as store:
        return remedies.remedies(read_truths(truth), breakages, said_in_store(store))


def _is_store(name: str) -> bool:
    return "://" in name


def _against_truths(truth: Path, answers: str | None) -> Score:
    if answers is None:
        raise UsageError(f"what is to be scored against {truth}? Name a directory of `replay --out`, or a store")
    try:
        truths = list(read_truths(truth))
    except OSError as error:
        raise UsageError(f"{truth}: cannot be read: {error.strerror}") from None
    return measure(truths, _verdicts(answers))


def _against_labels(dsn: str, answers: str | None) -> Score:
    """Score the program's own verdicts on what people labelled: the store's, or those of `answers`."""
    with open_store(dsn) as store:
        said = [label for label in labels(store) if label.own is not None]
    truths = [truth_of(label) for label in said]
    if answers is None:
        return measure(truths, [label.own for label in said if label.own is not None])
    known = {key_of(truth) for truth in truths}
    found = [verdict for verdict in _verdicts(answers) if verdict.key in known and verdict.rule != BY_A_PERSON]
    return measure(truths, found)


def _verdicts(answers: str) -> list[Verdict]:
    if not _is_store(answers):
        return verdicts_of_directory(Path(answers))
    with open_store(answers) as store:
        return verdicts_of_store(store)


def _calibrate(path: Path, measured: Score, truth: str, *, add: bool) -> None:
    about = Path(truth).with_name(ABOUT_FILE)
    origin: dict[str, object] = {"truth": truth}
    if not _is_store(truth) and about.is_file():
        origin = json.loads(about.read_text("utf-8"))
    origin |= {"failures": measured.failures, "scored_by": f"faultlens {program_version()}"}
    table = PrecisionTable(measured.by_rule, [origin])
    if add and path.is_file():
        table = PrecisionTable.read(path).plus(table)
    try:
        path.write_text(table.as_yaml(), "utf-8")
    except OSError as error:
        raise WorldError(f"{path} cannot be written: {error.strerror}") from error


def _describe(path: Path, shape: Shape, mix: Mix) -> None:
    """Write what was simulated, so that a measurement made on it can name its origin."""
    about = {
        "mix": f"{mix.name} {mix.version}",
        "seed": shape.seed,
        "nodes": shape.nodes,
        "days": shape.days,
        "interval_s": shape.interval_s,
        "made_by": f"faultlens {program_version()}",
    }
    path.write_text(json.dumps(about, indent=2) + "\n", "utf-8")


def _tell_breakages(path: Path, world: World) -> None:
    """Write what was wrong with machines, whether or not a job met it."""
    path.write_bytes(b"".join(truth_line(one) for one in breakages(world)))


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
        with _unless_nobody_reads(), _lines(sys.stdout.buffer) as events:
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
def _unless_nobody_reads() -> Iterator[None]:
    """End quietly when the reader of standard output has seen enough (`| head`)."""
    try:
        yield
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        # What is still in the buffer must not be written at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from None


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
