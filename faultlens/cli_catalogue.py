"""`faultlens catalogue`: what a fault code means, the whole list, and who sees it otherwise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Final, TypeVar

import msgspec
import typer
from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from faultlens.catalogue import load_catalogue
from faultlens.catalogue.diff import Difference, diff
from faultlens.catalogue.explain import Explanation, View, explain
from faultlens.catalogue.listing import Row, listing
from faultlens.errors import ConfigurationError, UsageError

EXIT_WRONG_USE: Final = 2
# Wide enough for the tables where nobody looks at a terminal.
PIPE_WIDTH: Final = 160

_Answer = TypeVar("_Answer")

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def catalogue(
    what: Annotated[
        str,
        typer.Argument(metavar="KIND:CODE|list|diff", help="A fault: xid:79, xid:149/link_down, check:ecc/fail."),
    ],
    *,
    family: Annotated[str | None, typer.Option(help="GPU family, such as H100.")] = None,
    driver: Annotated[str | None, typer.Option(help="Driver version or branch, such as 570.133.20.")] = None,
    kind: Annotated[str | None, typer.Option(help="With list: only this kind, such as xid.")] = None,
    site: Annotated[
        list[Path] | None,
        typer.Option("--catalogue", metavar="DIR", help="Directory with a site's own entries; may be repeated."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
) -> None:
    """Say what a fault code means, list the catalogue, or show who judges a code otherwise."""
    try:
        loaded = load_catalogue(site or ())
        if what == "list":
            _show(listing(loaded, kind=kind, family=family), as_json=as_json, render=_list_table)
        elif what == "diff":
            _show(diff(loaded), as_json=as_json, render=_diff_table)
        else:
            _show(explain(loaded, what, family=family, driver=driver), as_json=as_json, render=_explanation)
    except (ConfigurationError, UsageError) as error:
        Console(stderr=True, soft_wrap=True).print(_plain(str(error)), style="red", highlight=False)
        raise typer.Exit(EXIT_WRONG_USE) from None


def _show(answer: _Answer, *, as_json: bool, render: Callable[[_Answer], list[RenderableType]]) -> None:
    if as_json:
        typer.echo(msgspec.json.format(msgspec.json.encode(answer), indent=2).decode())
        return
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    for part in render(answer):
        console.print(part)


def _list_table(rows: list[Row]) -> list[RenderableType]:
    table = _table("code", "families", "meaning", "role", "cause", "severity", "hint")
    for row in rows:
        judged = row.judgement
        _add(
            table,
            row.ref, row.families, judged.meaning, judged.role, judged.cause_code, str(judged.severity),
            judged.action_hint,
        )  # fmt: skip
    return [table]


def _diff_table(rows: list[Difference]) -> list[RenderableType]:
    table = _table("who", "code", "families", "about", "theirs", "ours", "why")
    for row in rows:
        _add(table, row.who, row.refs, row.families, row.about, row.theirs, row.ours, row.note)
    return [table]


def _explanation(found: Explanation) -> list[RenderableType]:
    judged = found.judgement
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, value in (
        ("means", judged.meaning),
        ("on", found.family or "a family that was not given"),
        ("cause", f"{judged.cause_code} ({judged.cause_class}): {found.cause_title}"),
        ("role", f"{judged.role}, severity {judged.severity} of 100"),
        ("hits", f"the {judged.scope}; {'ends' if judged.fatal_to_job else 'does not by itself end'} the jobs there"),
        ("first step", judged.action_hint),
        ("cleared by", ", ".join(judged.clears)),
        ("comes with", ", ".join(judged.companions)),
        ("follows from", ", ".join(judged.yields_to)),
        ("again after a restart", judged.cause_after_reset or ""),
        ("after a boot", f"informational for {judged.boot_phase_s} s" if judged.boot_phase_s else ""),
        ("acts", "late: progress does not clear it" if judged.acts_late else ""),
        ("dates back", f"{judged.latent_s} s: it may have been so before it was found" if judged.latent_s else ""),
        ("announced", found.announced or ""),
        *(("others", f"{o.who}: {o.says}{'' if o.agrees else ' (we differ)'}") for o in found.opinions),
        ("source", judged.source),
        ("entry", f"{judged.entry} of {found.catalogue}"),
    ):
        if value:
            _add(table, name, value)
    return [
        Text(_plain(found.ref), style="bold"), table, *_views("by family", found.by_family),
        *_views("by sub-code", found.by_subcode),
    ]  # fmt: skip


def _views(title: str, views: Sequence[View]) -> list[RenderableType]:
    if not views:
        return []
    table = _table(title, "meaning", "role", "cause", "hint")
    for view in views:
        _add(table, view.case, view.meaning, view.role, view.cause_code, view.action_hint)
    return [table]


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _add(table: Table, *cells: str) -> None:
    table.add_row(*(Text(_plain(cell)) for cell in cells))


def _plain(text: str) -> str:
    """Text whose control characters cannot steer a terminal."""
    return "".join(letter if letter.isprintable() or letter == "\n" else "\N{REPLACEMENT CHARACTER}" for letter in text)


if __name__ == "__main__":
    app()
