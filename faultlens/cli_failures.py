"""`faultlens failures`: what failed last, whose fault it was, and where."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from faultlens.causes import CauseClass
from faultlens.cli_answers import ClusterOption, opened
from faultlens.cli_options import JsonOption, StoreOption
from slo.failures import as_plain, as_text, newest


def failures(  # noqa: PLR0913 - one parameter for each option of the command
    *,
    class_: Annotated[CauseClass | None, typer.Option("--class", help="Only this side's fault.")] = None,
    code: Annotated[
        str, typer.Option(metavar="CODE", help="Only this cause and what is below it, such as gpu.memory.")
    ] = "",
    node: Annotated[str, typer.Option(metavar="NODE", help="Only what this node is to blame for.")] = "",
    job: Annotated[
        str, typer.Option(metavar="JOB", help="Only this job, or with 1234 all of 1234_7, 1234+1 and its like.")
    ] = "",
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="At most so many.")] = 20,
    cluster: ClusterOption = "",
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the newest failures with the verdicts in force: whose fault, what happened, on which node."""
    narrowed = {"cluster": cluster, "class": class_ or "", "code": code, "node": node, "job": job}
    with opened(store) as target:
        rows = newest(target, narrowed, limit=limit + 1)
    typer.echo(json.dumps(as_plain(rows[:limit]), indent=2) if as_json else as_text(rows, limit))
