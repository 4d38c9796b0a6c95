"""The command line: one program with many verbs, each loaded only when it is called."""

from __future__ import annotations

import json
import signal
import sys
from dataclasses import dataclass
from importlib import import_module
from types import FrameType
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from faultlens.errors import ConfigurationError, FaultlensError, UsageError
from faultlens.version import program_version
from slo.wording import printable

EXIT_WRONG_USE: Final = 2
EXIT_WORLD_FAILED: Final = 3
EXIT_BY_SIGNAL: Final = 128  # and the signal's number, as shells have it
MAX_LINE: Final = 2_000


@dataclass(frozen=True)
class Verb:
    """Where a verb's command function (or, for a group of verbs, its typer app) is, and what it does in one line."""

    module: str
    attribute: str
    help: str


VERBS: Final[dict[str, Verb]] = {
    "import": Verb("faultlens.cli_import", "app", "Turn what Slurm or a kernel wrote down into events."),
    "replay": Verb("faultlens.cli_replay", "replay", "Say of every failed job in recorded events whose fault it was."),
    "why": Verb("faultlens.cli_answers", "why", "Tell why a job failed, with the evidence and what to do."),
    "failures": Verb("faultlens.cli_failures", "failures", "List what failed last, whose fault it was, and where."),
    "slo": Verb("faultlens.cli_answers", "slo", "Show where the objectives stand, and what used up their budgets."),
    "report": Verb("faultlens.cli_answers", "report", "Write the report of a week or any other time."),
    "serve": Verb("faultlens.cli_serve", "serve", "Show objectives, failures, jobs and nodes on a web page."),
    "notify": Verb("faultlens.cli_notify", "notify", "Tell owners and on-call of verdicts, by mail or webhook."),
    "dashboards": Verb("faultlens.cli_dashboards", "dashboards", "Write Grafana's dashboards over the store."),
    "objectives": Verb("faultlens.cli_objectives", "app", "Say what is promised, and whether it is written right."),
    "label": Verb("faultlens.cli_label", "label", "Say what made a job fail: a person's word is the truth."),
    "labels": Verb("faultlens.cli_label", "labels", "List what people said, and the rules they overruled most."),
    "demo": Verb("faultlens.cli_demo", "demo", "Show all of it: a real Slurm explained, a fleet watched for a week."),
    "simulate": Verb("faultlens.cli_simulate", "simulate", "Write the events of a fleet whose causes are known."),
    "score": Verb("faultlens.cli_simulate", "score", "Say how right the verdicts are, against known causes."),
    "explain-log": Verb("faultlens.cli_explain_log", "explain_log", "Say what broke, by a job's log alone."),
    "catalogue": Verb(
        "faultlens.cli_catalogue", "catalogue", "Say what a fault code means, and on which GPUs and drivers."
    ),
    "agent": Verb("faultlens.cli_agent", "agent", "Report this node's health, and the faults its kernel tells of."),
    "validate-node": Verb("faultlens.cli_validate", "validate_node", "Test this node before it takes work."),
    "npd-check": Verb("faultlens.cli_agent", "npd_check", "Make one check as a plugin of node-problem-detector."),
    "bridge": Verb("faultlens.cli_bridge", "app", "Tell what Kubernetes, Slurm or a cloud know, as it happens."),
    "ingest": Verb("faultlens.cli_ingest", "ingest", "Take events over HTTP, for who cannot reach Kafka."),
    "launch": Verb("faultlens.cli_launch", "launch", "Run a command as a job, and again where that can help."),
    "stream": Verb("faultlens.cli_stream", "stream", "Run the processors on Kafka: one role, or all of them."),
    "produce": Verb("faultlens.cli_produce", "produce", "Play recorded events into Kafka, with the time they take."),
    "topics": Verb("faultlens.cli_topics", "app", "Make Kafka's topics, or say what is wrong with those there."),
    "sink": Verb("faultlens.cli_sink", "sink", "Write what is said on Kafka into the store, each record once."),
    "dead-letters": Verb("faultlens.cli_dead_letters", "app", "List, show and retry what could not be processed."),
    "pause": Verb("faultlens.cli_operator", "pause", "Let nothing disruptive be done to nodes or jobs."),
    "resume": Verb("faultlens.cli_operator", "resume", "Take a pause back."),
    "hold": Verb("faultlens.cli_operator", "hold", "Let nodes be as they are."),
    "release": Verb("faultlens.cli_operator", "release", "Let held nodes go, or come back."),
    "approve": Verb("faultlens.cli_operator", "approve", "Let commands be issued that wait for approval."),
    "deny": Verb("faultlens.cli_operator", "deny", "Let commands never be issued."),
    "acknowledge": Verb("faultlens.cli_operator", "acknowledge", "Say that you see to what was handed to a person."),
    "act": Verb("faultlens.cli_act", "app", "Carry remediation commands out, on a scheduler, a host or by a call."),
    "whatif": Verb("faultlens.cli_whatif", "whatif", "Say what another policy would have done with what was recorded."),
    "policy": Verb("faultlens.cli_policy", "app", "Say what remediation would do about a fault, and test a policy."),
    "check": Verb("faultlens.cli_check", "check", "Check settings, data files and connections."),
    "migrate": Verb("faultlens.cli_check", "migrate", "Bring the store's tables up to date."),
    "schema": Verb("faultlens.cli_check", "schema", "Print what an event of a type looks like."),
}

# Verbs that take a command to run.
RUNS_ANOTHER: Final = frozenset({"launch"})


class _LazyGroup(TyperGroup):
    """Lists the verbs of the table above; imports a verb's module only to run it or to show its own help."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = {name: TyperCommand(name, help=verb.help) for name, verb in VERBS.items()}

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        return name, None if name is None or command is None else command_of(name), rest


def command_of(name: str) -> Any:
    """Return a verb's command, or its group of commands."""
    verb = VERBS[name]
    loaded = getattr(import_module(verb.module), verb.attribute)
    if isinstance(loaded, typer.Typer):
        return typer.main.get_group(loaded)
    single = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
    # What stands behind a command that is to be run is that command's, options too.
    single.command(name, context_settings={"allow_interspersed_args": name not in RUNS_ANOTHER})(loaded)
    return typer.main.get_command(single)


app = typer.Typer(
    cls=_LazyGroup,
    name="faultlens",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"faultlens {program_version()}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and end.")
    ] = False,
) -> None:
    """Say of every failed GPU job whose fault it was, with the evidence, and what that did to the objectives."""


def main(arguments: list[str] | None = None) -> None:
    """Run the program and end the process: 0 good, 1 the answer is bad, 2 wrong use, 3 the world failed."""
    arguments = sys.argv[1:] if arguments is None else arguments
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        app(arguments)
    except FaultlensError as error:
        sys.stderr.write(rendered(error, as_json="--json" in arguments) + "\n")
        sys.exit(exit_code(error))
    except _InterruptedError as interrupted:
        sys.stderr.write("faultlens: interrupted before it was done; run the same command again\n")
        sys.exit(EXIT_BY_SIGNAL + interrupted.number)


class _InterruptedError(BaseException):
    """Somebody asked the process to end. No `Exception`: nothing on the way up may take it for a failure."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise _InterruptedError(number)


def exit_code(error: FaultlensError) -> int:
    """Return the process's exit code for an error: what a person wrote is wrong use, all else is the world's."""
    return EXIT_WRONG_USE if isinstance(error, (ConfigurationError, UsageError)) else EXIT_WORLD_FAILED


def rendered(error: FaultlensError, *, as_json: bool) -> str:
    """Return what is shown of an error; control characters of what it quotes are escaped."""
    if as_json:
        return json.dumps({"error": {"kind": type(error).__name__, "message": str(error)}})
    return "\n".join(printable(line, limit=MAX_LINE) for line in f"faultlens: {error}".splitlines())


if __name__ == "__main__":
    main()
