"""`faultlens topics`: make the topics, or say what is wrong with those that are there."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Final

import typer

from faultlens.cli_options import Brokers, JsonOption
from faultlens.errors import ConfigurationError
from faultlens.kafka import load_connection
from faultlens.kafka_topics import DEFAULT_PARTITIONS, Plan, TopicAdmin, as_json, mismatches, plans
from faultlens.topics import NODE_EVENTS

EXIT_BAD: Final = 1
_LEFT_TO_BROKERS: Final = -1

app = typer.Typer(no_args_is_help=True, help="Make the topics, or say what is wrong with those that are there.")


@app.command()
def create(
    *,
    brokers: Brokers = None,
    partitions: Annotated[
        int | None,
        typer.Option(
            min=1, max=1_024, help=f"Of each topic that is spread over workers [default: {DEFAULT_PARTITIONS}]."
        ),
    ] = None,
    replication: Annotated[
        int, typer.Option(min=_LEFT_TO_BROKERS, help="Copies of each record; -1: what the brokers do by default.")
    ] = _LEFT_TO_BROKERS,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be made.")] = False,
    as_json_: JsonOption = False,
) -> None:
    """Make every topic that is not there yet. What is there is not changed, but checked."""
    if dry_run:
        wanted = plans(partitions or DEFAULT_PARTITIONS)
        typer.echo(json.dumps(as_json(wanted), indent=2) if as_json_ else "\n".join(map(_line, wanted)))
        return
    connection = load_connection(brokers)
    admin = TopicAdmin(connection)
    there = admin.partitions()
    wanted = plans(_number(there.get(NODE_EVENTS), partitions))
    made = admin.create([plan for plan in wanted if plan.name not in there], replication)
    wrong = [asdict(each) for each in mismatches(connection, wanted)]
    if as_json_:
        typer.echo(json.dumps({"made": sorted(made), "wrong": wrong}, indent=2))
    else:
        typer.echo("\n".join([f"made {name}" for name in sorted(made)] or ["all topics are there"]))
        _tell_wrong(wrong)
    if wrong:
        raise typer.Exit(EXIT_BAD)


def _number(there: int | None, asked: int | None) -> int:
    """Return how many partitions to make; what is there already decides."""
    if there is None:
        return asked or DEFAULT_PARTITIONS
    if asked is not None and asked != there:
        raise ConfigurationError(
            f"{NODE_EVENTS} has {there} partitions, not {asked}: the number cannot be changed while states rest on it; "
            f"leave --partitions out, or make new topics on an empty installation"
        )
    return there


@app.command()
def check(*, brokers: Brokers = None, as_json_: JsonOption = False) -> None:
    """Say what is wrong with the topics; ends with 1 if anything is."""
    wrong = [asdict(each) for each in mismatches(load_connection(brokers))]
    if as_json_:
        typer.echo(json.dumps({"wrong": wrong}, indent=2))
    elif wrong:
        _tell_wrong(wrong)
    else:
        typer.echo("all topics are as they must be")
    if wrong:
        raise typer.Exit(EXIT_BAD)


def _line(plan: Plan) -> str:
    settings = ", ".join(f"{name}={value}" for name, value in plan.settings.items())
    return f"{plan.name:<22}{plan.partitions:>4} partitions  {settings}"


def _tell_wrong(wrong: list[dict[str, str]]) -> None:
    for each in wrong:
        typer.echo("{topic}: {setting} is {found}, wanted {wanted}\n    {remedy}".format(**each))
