"""`faultlens serve`: the status page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from faultlens.cli_options import Brokers, ObjectivesOption, StoreOption, promised
from faultlens.exposition import parse_address
from faultlens.local_page_worker import Site, answered, prepare
from faultlens.local_pages import Doors, PageServer, is_loopback
from faultlens.settings import load_settings
from faultlens.store import parse_dsn
from slo.pages import Manners
from slo.wording import printable

DEFAULT_ADDRESS: Final = "127.0.0.1:8420"


def serve(  # noqa: PLR0913 - one parameter for each option of the command
    *,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where; without a host on this machine alone.")
    ] = DEFAULT_ADDRESS,
    user_header: Annotated[
        str, typer.Option(metavar="NAME", help="The header in which a proxy in front says who has logged in.")
    ] = "",
    host: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A name by which the page is called; may be repeated.")
    ] = None,
    log_tails: Annotated[bool, typer.Option("--log-tails", help="Show the last lines of jobs' logs too.")] = False,
    read_only: Annotated[bool, typer.Option("--read-only", help="Take no disputes.")] = False,
    store: StoreOption = None,
    brokers: Brokers = None,
    objectives: ObjectivesOption = None,
    catalogue: Annotated[
        list[Path] | None, typer.Option(metavar="DIR", help="A site's own fault catalogue, as for replay.")
    ] = None,
    signatures: Annotated[
        list[Path] | None, typer.Option(metavar="DIR", help="A site's own log signatures, as for replay.")
    ] = None,
) -> None:
    """Show objectives, failures, findings, jobs and nodes on a web page, and take disputes, until it is stopped.

    Replays and other commands go on beside it: an embedded store is open only while a page is made.
    """
    promised(objectives)
    dsn = store or load_settings().store
    site = Site(dsn, objectives, tuple(catalogue or ()), tuple(signatures or ()), brokers)
    doors = Doors(user_header, frozenset(host or ()), Manners(log_tails, disputes=not read_only))
    prepare(site)
    with PageServer(parse_address(listen), lambda what: answered(site, what), doors) as server:
        where = f"http://{server.host}:{server.server_port}"
        typer.echo(f"{where} shows {printable(str(parse_dsn(dsn)))}; stop it with Ctrl-C", err=True)
        if not is_loopback(server.host) and not user_header:
            typer.echo("Whoever reaches this may read and dispute: put a proxy before it (--user-header)", err=True)
        server.serve_forever()
