"""`faultlens produce`: a recording played into Kafka, so that it gives the same verdicts live."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from time import perf_counter, sleep
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from faultlens.cli_options import Brokers
from faultlens.clock import SECOND_MS, iso, monotonic_s, parse_moment
from faultlens.codec import Decoder
from faultlens.errors import UsageError, WorldError
from faultlens.kafka import load_connection
from faultlens.kafka_progress import LaneProgress
from faultlens.kafka_topics import demand, plans
from faultlens.local_roles import READS
from faultlens.logs import configure, forward_libraries
from faultlens.recordings import Recording, merged
from faultlens.topics import INPUT_TYPES
from producers.playback import Played, Player, timeline
from streams.live.changelog import offsets_of

TICKING: Final = tuple(topics[0] for topics in READS.values())
_LONGEST_NAP_SECONDS: Final = 0.5
_PATIENCE_SECONDS: Final = 120.0


def produce(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE", help="Events, one a line; plain, gzip or zstd. - is standard input.")
    ],
    *,
    brokers: Brokers = None,
    speed: Annotated[str, typer.Option(metavar="max|1x|60x|…", help="How fast the recorded time passes.")] = "max",
    step: Annotated[
        float,
        typer.Option(
            "--step",
            metavar="SECONDS",
            min=0,
            help="At full speed: after so much recorded time wait until all workers are done; 0: never wait.",
        ),
    ] = 60.0,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Let time go on to here after the last event.")
    ] = None,
    unended: Annotated[
        bool, typer.Option("--unended", help="More will be played: do not let workers write what they still hold.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable summary.")] = False,
) -> None:
    """Play recorded events into Kafka, each with the time at which it had arrived, and ticks for the time between.

    Its workers run with `--clock recorded --no-ticks`. Ends with 3 if anything could not be delivered.
    """
    configure()
    forward_libraries()
    factor, until_ms = _factor(speed), _moment(until)
    recordings = [Recording(file) for file in files]
    connection = load_connection(brokers)
    wanted = {plan.name: plan.partitions for plan in plans(demand(connection))}
    player = Player(connection, {topic: wanted[topic] for topic in TICKING})
    began_s = perf_counter()
    with (
        closing(LaneProgress(connection, READS, wanted, offsets_of)) as workers,
        _progress(recordings, player.played) as show,
    ):
        pace = _stepped(player, workers, step) if factor is None else _paced(factor)
        for what in timeline(merged(recordings, Decoder(INPUT_TYPES)), until_ms):
            pace(what.arrived_ms)
            player.play(what)
            show()
        player.finish()
        if not unended:
            _end(player, workers if step else None)
    _tell(player.played, perf_counter() - began_s, as_json=as_json)


def _factor(speed: str) -> float | None:
    """Return how many times faster than the day itself; None: as fast as can be."""
    if speed == "max":
        return None
    try:
        factor = float(speed.removesuffix("x"))
    except ValueError:
        factor = 0.0
    if not 0 < factor < 1e6:
        raise UsageError(f"--speed {speed}: expected max, or a factor like 1x or 60x")
    return factor


def _moment(text: str | None) -> int | None:
    try:
        return None if text is None else parse_moment(text)
    except ValueError as error:
        raise UsageError(f"--until: {error}") from None


def _stepped(player: Player, workers: LaneProgress, step_s: float) -> Callable[[int], None]:
    """Return what waits, each time so much recorded time has passed, until all that follows from it is done.

    A worker that runs ahead of the others by hours would judge by what those had not told it yet. Steps end where whole
    ones do since the epoch: nodes are counted at full minutes, and nobody goes on before the count is told.
    """
    step_ms = int(step_s * SECOND_MS)
    next_ms: int | None = None

    def wait(at_ms: int) -> None:
        nonlocal next_ms
        if next_ms is not None and at_ms > next_ms:
            player.finish()
            _await(workers)
            next_ms = None
        if next_ms is None and step_ms:
            next_ms = -(-at_ms // step_ms) * step_ms

    return wait


def _end(player: Player, workers: LaneProgress | None) -> None:
    """Let one role after the other write what it still holds, in the order in which they tell each other."""
    for topic in TICKING:
        if workers is not None:
            _await(workers)
        player.end(topic)
        player.finish()
    if workers is not None:
        _await(workers)


def _await(workers: LaneProgress) -> None:
    """Wait until all groups are done; WorldError when nothing has moved for too long."""
    before, moved_s = workers.behind(), monotonic_s()
    while before is not None:
        behind = workers.behind()
        if behind != before:
            before, moved_s = behind, monotonic_s()
        elif monotonic_s() - moved_s > _PATIENCE_SECONDS:
            raise WorldError(
                f"nothing moves for {_PATIENCE_SECONDS:.0f} s: {behind}; does `faultlens stream --role all --clock "
                f"recorded --no-ticks` run? (--step 0 does not wait)"
            )


def _paced(factor: float) -> Callable[[int], None]:
    """Return what waits until a recorded time is due."""
    began_s = monotonic_s()
    first_ms: int | None = None

    def wait(at_ms: int) -> None:
        nonlocal first_ms
        if first_ms is None:
            first_ms = at_ms
        due_s = began_s + (at_ms - first_ms) / SECOND_MS / factor
        while (left_s := due_s - monotonic_s()) > 0:
            sleep(min(left_s, _LONGEST_NAP_SECONDS))

    return wait


@contextmanager
def _progress(recordings: list[Recording], played: Played) -> Iterator[Callable[[], None]]:
    """Show how much was played, on a terminal only."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    sizes = [recording.size for recording in recordings]
    total = None if None in sizes else sum(size or 0 for size in sizes)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[at]}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("Playing", total=total, at="")
        count = 0

        def show() -> None:
            nonlocal count
            count += 1
            if count % 1_000 == 0:
                bar.update(task, completed=sum(r.bytes_read for r in recordings), at=iso(played.last_ms))

        yield show


def _tell(played: Played, took_s: float, *, as_json: bool) -> None:
    summary: dict[str, Any] = {
        "events": sum(played.events.values()),
        "by_topic": dict(sorted(played.events.items())),
        "ticks": played.ticks,
        "refused": dict(sorted(played.refused.items())),
        "from": None if played.first_ms is None else iso(played.first_ms),
        "to": None if played.first_ms is None else iso(played.last_ms),
        "seconds": round(took_s, 1),
    }
    if as_json:
        typer.echo(json.dumps(summary, indent=2))
        return
    if played.first_ms is None:
        typer.echo("The input is empty")
        return
    refused = "".join(f", {count:,} lines refused as {reason}" for reason, count in summary["refused"].items())
    typer.echo(
        f"{summary['events']:,} events and {played.ticks:,} ticks from {summary['from']} to {summary['to']} "
        f"in {took_s:.1f} s{refused}"
    )
