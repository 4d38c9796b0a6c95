"""`faultlens objectives`: what is promised, and whether a site's own documents are right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Final

import typer

from faultlens.cli_answers import opened
from faultlens.cli_options import JsonOption, ObjectivesOption, StoreOption, promised
from faultlens.errors import ConfigurationError, UsageError
from slo import excluding
from slo.alerts import DEFAULT_URL, rules_text
from slo.objectives_text import as_plain, details, listing
from slo.recompute import extent
from slo.wording import many, printable

EXIT_BAD: Final = 1
_LINE: Final = 2_000

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@app.callback()
def _objectives() -> None:
    """Say what is promised, and whether a site's own documents are right."""


@app.command(name="list")
def list_(*, objectives: ObjectivesOption = None, as_json: JsonOption = False) -> None:
    """List the objectives: of what, target, window, how they are counted, and at which burn rates they warn."""
    promise = promised(objectives)
    typer.echo(json.dumps(as_plain(tuple(promise)), indent=2) if as_json else listing(promise))


@app.command()
def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="As `faultlens objectives list` names it.")],
    *,
    objectives: ObjectivesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one objective: budget, tiers with their factors, what is left out and by whom."""
    promise = promised(objectives)
    known = name.replace("-", "_")
    if known not in promise:
        raise UsageError(f"no objective {name!r} (known: {', '.join(objective.name for objective in promise)})")
    typer.echo(json.dumps(as_plain([promise[known]])[0], indent=2) if as_json else details(promise[known]))


@app.command()
def check(
    path: Annotated[
        Path | None, typer.Argument(metavar="PATH", help="A file or folder; without it what the settings name.")
    ] = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Check a site's own documents, with the shipped ones below them. Ends with 1 if something is wrong."""
    try:
        promise = promised(path)
    except ConfigurationError as error:
        problems = str(error).splitlines()
        typer.echo(json.dumps({"problems": problems}) if as_json else _problems(problems))
        raise typer.Exit(EXIT_BAD) from None
    left_out = [str(tier) for tier in promise.never_fire]
    if as_json:
        typer.echo(json.dumps({"problems": [], "version": promise.version, "never_fire": left_out}))
        return
    count = many(len(promise.by_name), "objective")
    typer.echo("\n".join([f"{count} are right, version {promise.version}", *left_out]))


@app.command()
def alerts(
    *,
    objectives: ObjectivesOption = None,
    url: Annotated[
        str, typer.Option(metavar="URL", help="Where the status page is, which alerts link to.")
    ] = DEFAULT_URL,
) -> None:
    """Print burn-rate rules for Prometheus, on the gauges that `faultlens sink --metrics` shows."""
    typer.echo(rules_text(promised(objectives), url.rstrip("/")), nl=False)


@app.command()
def exclude(
    incident: Annotated[str, typer.Argument(metavar="INCIDENT", help="Its id: one of ours, or as it was announced.")],
    *,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why its time is not to count; reports say so.")],
    author: Annotated[str, typer.Option(metavar="NAME", help="Who says so.")],
    objective: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only from this objective; may be repeated.")
    ] = None,
    cluster: Annotated[str, typer.Option(metavar="NAME", help="Where several have an incident of that id.")] = "",
    store: StoreOption = None,
) -> None:
    """Print the document that leaves an incident's time, in its cluster and of its class, out of the objectives.

    Put it beside your other documents of objectives. Ends with 1 if the store knows no such incident.
    """
    with opened(store) as target:
        found = [row for row in excluding.incidents(target, incident) if cluster in ("", row["cluster"])]
        known = extent(target)
    if not found or known is None:
        typer.echo(
            f"the store knows no incident {printable(incident)}{f' in cluster {cluster}' if cluster else ''}", err=True
        )
        raise typer.Exit(EXIT_BAD)
    if len(found) > 1:
        raise UsageError(f"--cluster: which one? Known in {', '.join(printable(row['cluster']) for row in found)}")
    signed = excluding.Signed(reason, author, tuple(objective or ()))
    typer.echo(excluding.document(incident, found[0], signed, known.to_ms), nl=False)


def _problems(problems: list[str]) -> str:
    return "\n".join(printable(problem, limit=_LINE) for problem in problems)
