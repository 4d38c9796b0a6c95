"""`faultlens why`, `slo` and `report`: the answers for people, read from the store."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from faultlens.cli_options import JsonOption, ObjectivesOption, StoreOption, promised
from faultlens.clock import wall_ms
from faultlens.errors import UsageError, WorldError
from faultlens.local_delivering import Message
from faultlens.local_delivering import deliver as send
from faultlens.objectives import parse_duration_ms
from faultlens.settings import load_settings
from faultlens.store import Embedded, Store, open_store, parse_dsn
from slo.intervals import Interval
from slo.recompute import Extent, Scopes, View, extent, scopes
from slo.report import period as periods
from slo.report.collect import collect, scope_words, view_of
from slo.report.data import Period, Price
from slo.report.html import render_html
from slo.report.markdown import render_markdown
from slo.report.plain import render_json
from slo.status import standings
from slo.status_text import as_plain, as_text
from slo.why import UnknownJobError, story_of
from slo.why import as_plain as story_as_plain
from slo.why import as_text as story_as_text
from slo.why.commands import UnknownCommandError, command_story
from slo.why.commands import as_text as command_as_text
from slo.wording import listed, minute, printable

EXIT_BAD: Final = 1
# The status page has an embedded store open for a second or two at a time.
PATIENCE_S: Final = 10.0
NAMES_SHOWN: Final = 20
LONGEST_WINDOW_MS: Final = 400 * 24 * 3_600_000
RENDERERS: Final = {"html": render_html, "md": render_markdown, "json": render_json}

ClusterOption = Annotated[str, typer.Option(metavar="NAME", help="Only this cluster.")]
PoolOption = Annotated[str, typer.Option(metavar="NAME", help="Only this pool's nodes and the jobs on them.")]
TeamOption = Annotated[str, typer.Option(metavar="NAME", help="Only the jobs of this team.")]


@contextmanager
def opened(dsn: str | None) -> Iterator[Store]:
    """Open the store to read it; a directory that is not there is not made, since nothing could be read from it."""
    place = parse_dsn(dsn or load_settings().store)
    if isinstance(place, Embedded) and not place.path.is_dir():
        raise WorldError(
            f"there is no store at {place}: fill it with `faultlens replay FILE`, or name another by --store"
        )
    with open_store(dsn or load_settings().store, patience_s=PATIENCE_S) as store:
        if dsn is None:
            _tell_which(store)
        yield store


def _tell_which(store: Store) -> None:
    """Say, beside the answer, which store it came from and how old that is, where nobody named one."""
    known = extent(store)
    reach = "it is empty" if known is None else f"it covers {minute(known.from_ms)} to {minute(known.to_ms)}"
    typer.echo(f"From {printable(str(store))} ({reach}); another one: --store", err=True)


def _known(store: Store) -> Extent:
    """What the store covers; an empty one covers nothing, now."""
    now_ms = wall_ms()
    return extent(store) or Extent(now_ms, now_ms, ())


def _one_of(what: str, asked: str, known: Sequence[str]) -> str:
    """Return the name that was asked for; a misspelt one would be answered with silence, which looks like health."""
    if asked and asked not in known:
        more = f", and {len(known) - NAMES_SHOWN} more" if len(known) > NAMES_SHOWN else ""
        raise UsageError(f"no {what} {asked!r} in the store (known: {', '.join(known[:NAMES_SHOWN]) or 'none'}{more})")
    return asked


def _view(store: Store, known: Extent, *, cluster: str, pool: str = "", team: str = "") -> View:
    of = scopes(store) if pool or team else Scopes((), ())
    return view_of(
        known,
        cluster=_one_of("cluster", cluster, known.clusters),
        pool=_one_of("pool", pool, of.pools),
        team=_one_of("team", team, of.teams),
    )


def slo(
    *,
    window: Annotated[
        str | None, typer.Option(metavar="SPAN", help="28d, 7d, week …; without it each objective's own.")
    ] = None,
    cluster: ClusterOption = "",
    pool: PoolOption = "",
    team: TeamOption = "",
    store: StoreOption = None,
    objectives: ObjectivesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show where each objective stands: target, attained, budget left, burn rates, and whom the rest is charged to.

    Recomputed from the store, beside what the processors counted. Ends with 1 if an objective is missed.
    """
    window_ms = _window(window)
    promise = promised(objectives)
    with opened(store) as target:
        known = _known(target)
        view = _view(target, known, cluster=cluster, pool=pool, team=team)
        found = standings(target, view, promise, window_ms=window_ms)
    scope = scope_words(view, known.clusters)
    if as_json:
        typer.echo(json.dumps(as_plain(found, view, scope), indent=2))
    else:
        typer.echo(as_text(found, view, scope, promise))
    if any(standing.met is False for standing in found):
        raise typer.Exit(EXIT_BAD)


def why(
    job: Annotated[str | None, typer.Argument(metavar="JOB", help="The job's id, or JOB/N for its attempt N.")] = None,
    *,
    attempt: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Without it the last attempt that failed.")
    ] = None,
    command: Annotated[
        str | None, typer.Option("--command", metavar="ID", help="Why a remediation command was issued instead.")
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say why a job failed: whose fault, how sure, what happened when, what it cost and what to do.

    Ends with 1 if the store does not know the job (or the command).
    """
    if (job is None) == (command is None):
        raise UsageError("say which JOB (`faultlens failures` lists those that failed), or which --command ID")
    with opened(store) as target:
        if job is None:
            _why_command(target, command or "", as_json=as_json)
            return
        try:
            story = story_of(target, job, attempt)
        except UnknownJobError as error:
            tell_unknown(job, error, str(target), as_json=as_json)
            raise typer.Exit(EXIT_BAD) from None
    typer.echo(json.dumps(story_as_plain(story), indent=2) if as_json else story_as_text(story))


def _why_command(target: Store, command_id: str, *, as_json: bool) -> None:
    try:
        told = command_story(target, command_id)
    except UnknownCommandError as error:
        if as_json:
            typer.echo(json.dumps({"command_id": command_id, "error": str(error)}))
        else:
            typer.echo(f"{printable(command_id)}: {error}", err=True)
        raise typer.Exit(EXIT_BAD) from None
    typer.echo(json.dumps(told, indent=2) if as_json else command_as_text(told))


def tell_unknown(job: str, error: UnknownJobError, store: str, *, as_json: bool) -> None:
    """Say that the store knows no such job or attempt, and which may be meant."""
    if as_json:
        typer.echo(json.dumps({"job_id": job, "error": str(error), "similar": list(error.similar)}, indent=2))
        return
    typer.echo(f"{printable(job)}: {printable(str(error))} (store {printable(store)})", err=True)
    if error.similar:
        typer.echo(f"Did you mean {listed([printable(name) for name in error.similar])}?", err=True)


def _window(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        window_ms = parse_duration_ms(text)
    except ValueError as error:
        raise UsageError(f"--window: {error}") from None
    if window_ms > LONGEST_WINDOW_MS:
        raise UsageError("--window: longer than the 400 days that answers are kept")
    return window_ms


def report(  # noqa: PLR0913 - one parameter for each option of the command
    *,
    week: Annotated[
        str | None, typer.Option(metavar="WEEK", help="2026-W47; without it the last whole week with data.")
    ] = None,
    first: Annotated[
        str | None, typer.Option("--from", metavar="DAY", help="The first day, instead of a week.")
    ] = None,
    last: Annotated[str | None, typer.Option("--to", metavar="DAY", help="The last day, itself included.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write there instead of standard output.")] = None,
    format_: Annotated[
        Literal["html", "md", "json"] | None,
        typer.Option("--format", help="By default what --out ends with, else html."),
    ] = None,
    cluster: ClusterOption = "",
    team: TeamOption = "",
    deliver: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="Send it too: smtp://HOST?from=A&to=B, or a webhook; may be repeated."),
    ] = None,
    store: StoreOption = None,
    objectives: ObjectivesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write what the fleet promised and kept in a week, whose fault the rest was, and what it cost, as one file."""
    asked = _period(week, first, last)
    kind = "json" if as_json else format_ or _kind_of(out)
    promise = promised(objectives)
    with opened(store) as target:
        known = _known(target)
        view = _view(target, known, cluster=cluster, team=team)
        chosen = asked or periods.latest_week(Interval(known.from_ms, known.to_ms))
        data = collect(target, view, chosen, promise, price=_price())
    for address in deliver or ():
        subject = f"GPU fleet: {data.period.label}"
        send(address, Message(subject, render_markdown(data), render_html(data)))
    if out is not None or not deliver:
        _write(RENDERERS[kind](data), out)


def _period(week: str | None, first: str | None, last: str | None) -> Period | None:
    if week is not None and (first is not None or last is not None):
        raise UsageError("give either --week or --from and --to")
    if week is not None:
        return periods.week(week)
    if first is None and last is None:
        return None
    if first is None or last is None:
        raise UsageError("--from and --to go together: give both days")
    return periods.days(first, last)


def _price() -> Price | None:
    settings = load_settings()
    price = settings.gpu_hour_price
    return None if price is None else Price(price, settings.currency)


def _kind_of(out: Path | None) -> Literal["html", "md", "json"]:
    endings: dict[str, Literal["html", "md", "json"]] = {".md": "md", ".json": "json"}
    return endings.get(out.suffix.lower(), "html") if out is not None else "html"


def _write(text: str, out: Path | None) -> None:
    if out is None:
        sys.stdout.write(text)
        return
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise WorldError(f"the report cannot be written to {out}: {error.strerror}") from None
    typer.echo(f"Wrote {out} ({len(text.encode()):,} bytes).", err=True)
