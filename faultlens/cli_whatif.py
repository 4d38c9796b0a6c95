"""`faultlens whatif`: what another policy would have done with what was recorded, against the present one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from faultlens.cli_options import JsonOption, ObjectivesOption
from faultlens.clock import parse_moment
from faultlens.errors import UsageError
from faultlens.local_policy import decided_by
from faultlens.local_roles import load_roles, under
from faultlens.local_whatif import Outcome, as_plain, outcome
from slo.wording import printable
from streams.remediation import Policy


def whatif(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE", help="Recorded events, one a line; plain, gzip or zstd.")
    ],
    *,
    policy: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The policy that is thought of; without it the present one.")
    ] = None,
    promote: Annotated[
        list[str] | None, typer.Option(metavar="ROUTE", help="With this shadow route of it live; may be repeated.")
    ] = None,
    against: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The present one; without it what the settings say.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Let time go on to here after the last event.")
    ] = None,
    objectives: ObjectivesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Replay recorded events under two policies and compare commands, isolations and GPU-hours taken and saved.

    What a repair would have changed nobody knows: conditions end when they ended in the recording.
    """
    if "-" in files:
        raise UsageError("the events are read twice: name files, not standard input")
    try:
        until_ms = None if until is None else parse_moment(until)
    except ValueError as error:
        raise UsageError(f"--until: {error}") from None
    if policy is None and not promote:
        raise UsageError("what if what? Give --policy FILE, or --promote ROUTE")
    present = outcome(
        files,
        load_roles(objectives=objectives, policy=against),
        policy=decided_by(against).version,
        until_ms=until_ms,
    )
    wanted = _promoted(decided_by(policy or against), promote or ())
    roles = under(load_roles(objectives=objectives, policy=policy or against), wanted)
    other = outcome(files, roles, policy=wanted.version, until_ms=until_ms)
    typer.echo(json.dumps(as_plain(present, other), indent=2) if as_json else _text(present, other))


def _promoted(policy: Policy, names: Sequence[str]) -> Policy:
    """Return the policy with these shadow routes live. UsageError: it has no such route in shadow."""
    shadows = [route.name for route in policy.routes if route.mode == "shadow"]
    for name in names:
        if name not in shadows:
            raise UsageError(f"--promote: no route {name!r} is in shadow; those are: {', '.join(shadows) or 'none'}")
    return policy.with_live(names)


def _text(present: Outcome, other: Outcome) -> str:
    actions = sorted({*present.commands, *other.commands})
    rows: list[tuple[str, str, str]] = [
        ("policy", printable(present.policy), printable(other.policy)),
        ("incidents", f"{present.incidents:,}", f"{other.incidents:,}"),
        *((f"  {a}", f"{present.commands.get(a, 0):,}", f"{other.commands.get(a, 0):,}") for a in actions),
        ("isolations", f"{present.isolations:,}", f"{other.isolations:,}"),
        ("nodes isolated", f"{present.nodes:,}", f"{other.nodes:,}"),
        ("GPU-hours taken", f"{present.gpu_hours_taken:,.1f}", f"{other.gpu_hours_taken:,.1f}"),
        ("GPU-hours saved", f"{present.gpu_hours_saved:,.1f}", f"{other.gpu_hours_saved:,.1f}"),
        ("failures avoided", f"{present.failures_avoided:,}", f"{other.failures_avoided:,}"),
    ]
    routes = sorted({*present.shadow, *other.shadow})
    rows += [
        (f"  shadow {printable(r)}", f"{present.shadow.get(r, 0):,}", f"{other.shadow.get(r, 0):,}") for r in routes
    ]
    return "\n".join(f"{name:<24} {one:>20} {two:>20}" for name, one, two in [("", "present", "other"), *rows])
