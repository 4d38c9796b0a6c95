"""`faultlens pause`, `resume`, `hold`, `release`, `approve`, `deny`, `acknowledge`: people's word to remediation."""

from __future__ import annotations

import getpass
import json
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import typer

from faultlens.cli_options import Brokers, ClusterOption, Out
from faultlens.cli_outlet import STANDARD_OUTPUT, lines, one_place
from faultlens.clock import iso, moment_of, parse_moment, wall_ms
from faultlens.codec import Event, encode, event_of, stable_id
from faultlens.errors import UsageError
from faultlens.events import ControlScope, OperatorControl
from faultlens.kafka import load_connection
from faultlens.local_publishing import publish
from faultlens.objectives import parse_duration_ms

Verb = Literal["pause", "resume", "approve", "deny", "hold", "release", "acknowledge"]

ReasonOption = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why. It is shown wherever this matters.")]
NodesOption = Annotated[
    list[str] | None, typer.Option("--node", metavar="NODE", help="Only these nodes; may be repeated.")
]
PoolsOption = Annotated[
    list[str] | None, typer.Option("--pool", metavar="POOL", help="Only these pools; may be repeated.")
]
RoutesOption = Annotated[
    list[str] | None, typer.Option("--route", metavar="ROUTE", help="Only these routes of the policy; may be repeated.")
]
ForOption = Annotated[str | None, typer.Option("--for", metavar="DURATION", help="How long it holds, such as 2h.")]
UntilOption = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Until when it holds.")]
ByOption = Annotated[str | None, typer.Option("--by", metavar="NAME", help="Who says so; by default your user name.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Show the event that was sent.")]
CommandsArgument = Annotated[list[str], typer.Argument(metavar="COMMAND", help="Ids of commands that wait for it.")]


def pause(  # noqa: PLR0913 - one parameter for each option of the command
    *,
    cluster: ClusterOption = "",
    reason: ReasonOption,
    node: NodesOption = None,
    pool: PoolsOption = None,
    route: RoutesOption = None,
    for_: ForOption = None,
    until: UntilOption = None,
    by: ByOption = None,
    brokers: Brokers = None,
    out: Out = None,
    as_json: JsonOption = False,
) -> None:
    """Let nothing disruptive be done: no drain, reset, restart, replacement or end of a job. All else goes on."""
    scope = _scope(nodes=node, pools=pool, routes=route)
    _say("pause", cluster, scope, _word(reason, by, for_, until), _place(brokers, out, as_json=as_json))


def resume(  # noqa: PLR0913 - as above
    *,
    cluster: ClusterOption = "",
    reason: ReasonOption,
    node: NodesOption = None,
    pool: PoolsOption = None,
    route: RoutesOption = None,
    by: ByOption = None,
    brokers: Brokers = None,
    out: Out = None,
    as_json: JsonOption = False,
) -> None:
    """Take a pause back; what has waited is done now, within the caps."""
    scope = _scope(nodes=node, pools=pool, routes=route)
    _say("resume", cluster, scope, _word(reason, by), _place(brokers, out, as_json=as_json))


def hold(  # noqa: PLR0913 - as above
    *,
    cluster: ClusterOption = "",
    reason: ReasonOption,
    node: NodesOption = None,
    pool: PoolsOption = None,
    for_: ForOption = None,
    until: UntilOption = None,
    by: ByOption = None,
    brokers: Brokers = None,
    out: Out = None,
    as_json: JsonOption = False,
) -> None:
    """Let nodes be as they are: nothing is done to them, not even to bring them back."""
    scope = _named(_scope(nodes=node, pools=pool), "--node or --pool")
    _say("hold", cluster, scope, _word(reason, by, for_, until), _place(brokers, out, as_json=as_json))


def release(  # noqa: PLR0913 - as above
    *,
    cluster: ClusterOption = "",
    reason: ReasonOption,
    node: NodesOption = None,
    pool: PoolsOption = None,
    by: ByOption = None,
    brokers: Brokers = None,
    out: Out = None,
    as_json: JsonOption = False,
) -> None:
    """Let go of held nodes, and let those come back that wait for a person to say so."""
    scope = _named(_scope(nodes=node, pools=pool), "--node or --pool")
    _say("release", cluster, scope, _word(reason, by), _place(brokers, out, as_json=as_json))


def approve(
    commands: CommandsArgument,
    *,
    cluster: ClusterOption = "",
    reason: ReasonOption,
    by: ByOption = None,
    brokers: Brokers = None,
    out: Out = None,
    as_json: JsonOption = False,
) -> None:
    """Let commands be issued that wait for approval (`waits_for` of their incident names them)."""
    _say("approve", cluster, _scope(commands=commands), _word(reason, by), _place(brokers, out, as_json=as_json))


def deny(
    commands: CommandsArgument,
    *,
    cluster: ClusterOption = "",
    reason: ReasonOption,
    by: ByOption = None,
    brokers: Brokers = None,
    out: Out = None,
    as_json: JsonOption = False,
) -> None:
    """Let commands never be issued: their incident goes on with the next step."""
    _say("deny", cluster, _scope(commands=commands), _word(reason, by), _place(brokers, out, as_json=as_json))


def acknowledge(  # noqa: PLR0913 - as above
    *,
    cluster: ClusterOption = "",
    reason: ReasonOption,
    node: NodesOption = None,
    for_: ForOption = None,
    until: UntilOption = None,
    by: ByOption = None,
    brokers: Brokers = None,
    out: Out = None,
    as_json: JsonOption = False,
) -> None:
    """Say that you have seen to it: what was handed to a person about these nodes shows your name."""
    scope = _named(_scope(nodes=node), "--node")
    _say("acknowledge", cluster, scope, _word(reason, by, for_, until), _place(brokers, out, as_json=as_json))


# --- what they share -------------------------------------------------------------------------------------


class _Word(NamedTuple):
    """Why, who says so, and until when (None: until it is taken back)."""

    reason: str
    by: str
    until_ms: int | None


class _Place(NamedTuple):
    """Where the event goes, and whether it is shown."""

    brokers: str | None
    out: Path | None
    as_json: bool


def _scope(
    *,
    nodes: list[str] | None = None,
    pools: list[str] | None = None,
    routes: list[str] | None = None,
    commands: list[str] | None = None,
) -> ControlScope:
    given = (tuple(names) if names else None for names in (nodes, pools, commands, routes))
    return ControlScope(*given)


def _named(scope: ControlScope, options: str) -> ControlScope:
    if scope == ControlScope():
        raise UsageError(f"say which nodes: {options}")
    return scope


def _word(reason: str, by: str | None, for_: str | None = None, until: str | None = None) -> _Word:
    if for_ is not None and until is not None:
        raise UsageError("give --for or --until, not both")
    now_ms = wall_ms()
    try:
        until_ms = now_ms + parse_duration_ms(for_) if for_ is not None else None
        until_ms = parse_moment(until) if until is not None else until_ms
    except ValueError as error:
        raise UsageError(f"{'--for' if for_ is not None else '--until'}: {error}") from None
    if until_ms is not None and until_ms <= now_ms:
        raise UsageError(f"{iso(until_ms)} is over already")
    if not reason.strip():
        raise UsageError("--reason: say why, others have to live with it")
    return _Word(reason.strip(), (by or getpass.getuser()).strip(), until_ms)


def _place(brokers: str | None, out: Path | None, *, as_json: bool) -> _Place:
    one_place(out, brokers)
    return _Place(brokers, out, as_json)


def _say(verb: Verb, cluster: str, scope: ControlScope, word: _Word, place: _Place) -> None:
    reason, by, until_ms = word
    data = OperatorControl(cluster, verb, by, reason, scope, None if until_ms is None else moment_of(until_ms))
    now_ms = wall_ms()
    event = event_of(
        data, source=f"operator/{by}", id_=stable_id("control", cluster, verb, by, now_ms), time_ms=now_ms,
        recorded_ms=now_ms,
    )  # fmt: skip
    _delivered(event, place)
    if place.as_json and place.out != STANDARD_OUTPUT:
        typer.echo(json.dumps(json.loads(encode(event)), indent=2))
    elif place.out is None:
        typer.echo(f"{verb}: {_shown(scope)} of {cluster}" + ("" if until_ms is None else f" until {iso(until_ms)}"))


def _shown(scope: ControlScope) -> str:
    names: list[Any] = [*(scope.nodes or ()), *(scope.pools or ()), *(scope.routes or ()), *(scope.command_ids or ())]
    return ", ".join(names) or "everything"


def _delivered(event: Event, place: _Place) -> None:
    if place.out is None:
        publish(load_connection(place.brokers), event)
        return
    with lines(place.out) as file:
        file.put(event)
