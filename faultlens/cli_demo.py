"""`faultlens demo`: a real Slurm's failures explained, then a simulated fleet watched for a week."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Annotated, Final, NamedTuple, Self

import typer
from rich.console import Console
from rich.text import Text

from faultlens.errors import UsageError, WorldError
from faultlens.objectives import load_objectives
from faultlens.store import open_store
from producers.simulation.tables import load_happenings, load_mix
from slo.intervals import Interval
from slo.recompute import extent
from slo.report.collect import collect, view_of
from slo.report.period import latest_week
from slo.report.telling import telling
from slo.scoring import Key, Verdict
from slo.verdicts import ATTRIBUTIONS_FILE, verdicts_of_directory

EXAMPLES: Final = Path(__file__).parents[1] / "examples" / "slurm"
CLUSTER: Final = "lab"
# Only a directory with this in it is ever emptied.
MARK: Final = ".faultlens-demo"
LINES_SHOWN: Final = 48
JUDGED: Final = (0, 1)  # `score` ends with 1 where a failure has no final verdict
_CLASSES: Final = ("hardware", "driver", "platform", "user")
_BASES: Final = ("established", "supported", "assumed")


class Fleet(NamedTuple):
    """The fleet that is simulated: its machines, how long it is watched, how often they report, and its dice."""

    nodes: int
    days: float
    interval_s: float
    seed: int

    def simulated(self, out: Path) -> tuple[str, ...]:
        """Return the command that simulates it."""
        return (
            "simulate", "--nodes", str(self.nodes), "--days", f"{self.days:g}", "--interval-s", f"{self.interval_s:g}",
            "--seed", str(self.seed), "--out", str(out),
        )  # fmt: skip


def demo(
    *,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Where everything is written; an earlier demonstration is replaced.")
    ] = Path("demo"),
    nodes: Annotated[int, typer.Option(min=1, max=10_000, help="Machines of the simulated fleet.")] = 64,
    days: Annotated[float, typer.Option(min=0.5, max=60, help="Days that it is watched.")] = 8.0,
    interval_s: Annotated[float, typer.Option(min=1, max=3_600, help="Seconds between a node's reports.")] = 900.0,
    seed: Annotated[int, typer.Option(min=0, help="Another one: another fleet with other failures.")] = 7,
    slurm: Annotated[Path, typer.Option(metavar="DIR", help="A Slurm's exports.")] = EXAMPLES,
    as_json: Annotated[bool, typer.Option("--json", help="Only what it comes to, machine-readable.")] = False,
) -> None:
    """Explain a real Slurm's failures; then watch a simulated fleet for a week and say what it promised and kept.

    Every step is a command of this program, and is shown as you would type it.
    """
    if not slurm.is_dir():
        raise UsageError(
            f"{slurm} is not there: run this in a clone of the repository, or name exports with --slurm DIR"
        )
    _prepare(out)
    show = _Show(Console(quiet=as_json, soft_wrap=True, highlight=False))
    began = perf_counter()
    fleet, report = Fleet(nodes, days, interval_s, seed), out / "report.html"
    with show:
        show.ahead(*fleet.simulated(out / "fleet"))
        job = _explain(show, slurm, out / "slurm")
        _watch(show, fleet, out / "fleet", report)
    findings = _findings(out / "fleet" / "store")
    seconds = perf_counter() - began
    if as_json:
        typer.echo(json.dumps({"job": job, "findings": findings, "report": str(report), "seconds": round(seconds, 1)}))
    else:
        show.conclusion(findings, report, seconds)


def _prepare(out: Path) -> None:
    """Make the directory, or empty it of what an earlier demonstration left there."""
    if out.exists() and not (out / MARK).is_file() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out} is not empty and holds no earlier demonstration: name another directory with --out")
    try:
        for part in ("slurm", "fleet"):
            if (out / part).exists():
                shutil.rmtree(out / part)
            (out / part).mkdir(parents=True)
        (out / MARK).touch()
    except OSError as error:
        raise WorldError(f"{out} cannot be written: {error.strerror or error}") from None


def _explain(show: _Show, slurm: Path, out: Path) -> str | None:
    """Import a Slurm's exports, attribute its failures, and tell of one why it failed; return which."""
    events = out / "events.jsonl"
    show.heading("A real Slurm: accounting and node history, as its own programs export them")
    here = slurm.relative_to(Path.cwd()) if slurm.is_relative_to(Path.cwd()) else slurm
    show.run("import", "slurm", str(here), "--cluster", CLUSTER, "--timezone", "UTC", "--out", str(events))
    show.run("replay", str(events), "--store", str(out / "store"), "--out", str(out))
    if not (out / ATTRIBUTIONS_FILE).exists():  # nothing failed
        return None
    chosen = most_instructive(verdicts_of_directory(out), first_impressions(out / ATTRIBUTIONS_FILE))
    if chosen is None:
        return None
    show.run("why", f"{chosen.key.job_id}/{chosen.key.attempt}", "--store", str(out / "store"))
    return chosen.key.job_id


def first_impressions(attributions: Path) -> dict[Key, str]:
    """Return the class that each failure's first verdict named, from a replay's output."""
    said = [json.loads(line)["data"] for line in attributions.read_text("utf-8").splitlines()]
    return {
        Key(verdict["job_id"], verdict["attempt"], verdict.get("loss", 0)): verdict["cause"]["class"]
        for verdict in said
        if verdict["revision"] == 1
    }


def most_instructive(verdicts: list[Verdict], first: Mapping[Key, str]) -> Verdict | None:
    """Return the verdict that shows most: one that evidence turned away from what its end looked like.

    Of those, or where there are none: one that rests on an observation, and on a machine's fault before a user's.
    """
    failures = [verdict for verdict in verdicts if verdict.settled and not verdict.key.loss]
    return min(failures, key=lambda verdict: _tameness(verdict, first), default=None)


def _tameness(verdict: Verdict, first: Mapping[Key, str]) -> tuple[bool, int, int, float, Key]:
    turned = first.get(verdict.key, verdict.cause_class) != verdict.cause_class
    basis, whose = _BASES.index(verdict.basis), _CLASSES.index(verdict.cause_class)
    return not turned, basis, whose, -verdict.confidence, verdict.key


def _watch(show: _Show, fleet: Fleet, out: Path, report: Path) -> None:
    """Simulate a fleet, attribute its failures, hold the verdicts against the truth, and write the week's report."""
    store = str(out / "store")
    often = load_mix("default", load_happenings()).acceleration
    show.heading(
        f"A simulated fleet: {fleet.nodes} nodes, {fleet.days:g} days; machines fail {often:g} times as often as real "
        "ones, and the true cause of every failure is written down"
    )
    show.run(*fleet.simulated(out))
    show.run("replay", str(out / "events.jsonl.zst"), "--store", store, "--out", str(out))
    reporting = ("report", "--store", store, "--out", str(report))
    show.ahead(*reporting)
    show.heading("How right the verdicts are: the processors never saw the truth")
    show.run("score", str(out / "truth.jsonl"), str(out), allowed=JUDGED)
    show.heading("The week's report")
    show.run(*reporting)


def _findings(store: Path) -> list[str]:
    """Return what most GPU time is behind in the week that the report is about."""
    with open_store(str(store)) as opened:
        known = extent(opened)
        if known is None:
            return []
        week = latest_week(Interval(known.from_ms, known.to_ms))
        return telling(collect(opened, view_of(known), week, load_objectives()))


class _Running:
    """A command of this program under way; what it says is kept in a file until it has ended."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the command has ended
        command = [sys.executable, "-m", "faultlens.cli", *arguments]
        self._process = subprocess.Popen(command, stdout=self._said, stderr=subprocess.STDOUT)  # noqa: S603

    def ended(self) -> tuple[int, list[str]]:
        """Wait for its end; return its exit code and the lines that it said."""
        code = self._process.wait()
        self._said.seek(0)
        lines = self._said.read().decode("utf-8", "replace").splitlines()
        self._said.close()
        return code, lines

    def stop(self) -> None:
        """End it, if it still runs."""
        self._process.terminate()
        self.ended()


class _Show:
    """Runs commands of this program and shows each with what it says; leaving it ends what was begun and not shown."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._begun: dict[tuple[str, ...], _Running] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for running in self._begun.values():
            running.stop()

    def heading(self, words: str) -> None:
        """Say what comes next."""
        self._console.print(Text(f"\n{words}", style="bold"))

    def ahead(self, *arguments: str) -> None:
        """Begin what `run` will show later: this machine has more than one core, and it waits for nothing before."""
        self._begun[arguments] = _Running(arguments)

    def run(self, *arguments: str, allowed: tuple[int, ...] = (0,)) -> None:
        """Run `faultlens ARGUMENTS`; the demonstration ends with its exit code if that is not an allowed one."""
        self._console.print(Text(f"\n$ faultlens {shlex.join(arguments)}", style="cyan"))
        began = perf_counter()
        with self._console.status("…"):
            code, lines = (self._begun.pop(arguments, None) or _Running(arguments)).ended()
        failed = code not in allowed
        for line in lines if failed else lines[:LINES_SHOWN]:
            self._console.print(Text(f"  {line}"))
        if failed:
            if self._console.quiet:
                typer.echo("\n".join(lines), err=True)
            raise typer.Exit(code)
        cut = f"{len(lines) - LINES_SHOWN} more lines; " if len(lines) > LINES_SHOWN else ""
        self._console.print(Text(f"  ({cut}{perf_counter() - began:.1f} s)", style="dim"))

    def conclusion(self, findings: list[str], report: Path, seconds: float) -> None:
        """Say what it came to."""
        self.heading("What most GPU time is behind")
        for number, finding in enumerate(findings, 1):
            self._console.print(Text(f"  {number}. {finding}"))
        self._console.print(Text(f"\nThe report: {report.resolve()}", style="bold"))
        self._console.print(Text(f"All of it took {seconds:.0f} s."))
