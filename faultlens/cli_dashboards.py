"""`faultlens dashboards`: Grafana's dashboards over the store, as files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from faultlens.errors import WorldError
from slo.dashboards import dashboards as made
from slo.dashboards import written
from slo.wording import many


def dashboards(
    *, out: Annotated[Path, typer.Option(metavar="DIR", help="Where to write them, one file each.")]
) -> None:
    """Write the dashboards for Grafana, to be provisioned or imported; the ClickHouse plugin is needed."""
    boards = made()
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, board in boards.items():
            (out / name).write_text(written(board), encoding="utf-8")
    except OSError as error:
        raise WorldError(f"the dashboards cannot be written to {out}: {error.strerror or error}") from None
    typer.echo(f"Wrote {many(len(boards), 'dashboard')} to {out}", err=True)
