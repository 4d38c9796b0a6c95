"""`faultlens bridge cloud`: what a provider says of its machines, told as it happens."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import structlog
import typer

from faultlens.cli_options import Brokers, Out
from faultlens.cli_outlet import outlet
from faultlens.clock import wall_ms
from faultlens.errors import ConfigurationError, UsageError, WorldError
from faultlens.settings import data_directory
from faultlens.stopping import told_to_stop
from producers.cloud.bridge import CloudBridge
from producers.cloud.notices import Answer
from producers.cloud.polling import METADATA, ask_aws_api
from producers.delivery.kept import Kept


def cloud(  # noqa: PLR0913 - one parameter for each option of the command
    provider: Annotated[Literal["aws", "gcp", "azure"], typer.Argument(help="Whose machines they are.")],
    *,
    cluster: Annotated[str, typer.Option(help="The cluster's name in events.")],
    source: Annotated[
        Literal["metadata", "api"],
        typer.Option("--from", help="This machine's metadata service, or (aws) the provider's API for all machines."),
    ] = "metadata",
    node: Annotated[str | None, typer.Option(help="This machine's name as a node.", show_default="host name")] = None,
    nodes: Annotated[
        Path | None, typer.Option(metavar="FILE", help='With --from api: {"instance id": "node", …}.')
    ] = None,
    metadata_url: Annotated[str | None, typer.Option(hidden=True)] = None,
    every_s: Annotated[float, typer.Option(min=1, max=3_600, help="Seconds between two looks.")] = 5.0,
    once: Annotated[bool, typer.Option("--once", help="Look once and end.")] = False,
    out: Out = None,
    brokers: Brokers = None,
    state: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where it remembers what was told.", show_default=False)
    ] = None,
) -> None:
    """Tell of planned maintenance, of spot capacity that is taken away, and of the provider's failed checks.

    That the provider says all is well clears no fault: what clears one is the node's own report.
    """
    log = structlog.get_logger("faultlens.bridge")
    here = node or socket.gethostname()
    place = state or data_directory() / "faultlens" / "bridge" / f"{provider}-{cluster}"
    ask = _asking(provider, source, here, nodes, metadata_url)
    stop = told_to_stop()
    kept = Kept(place / "kept")
    with outlet(out, brokers, place / "spool") as events:
        bridge = CloudBridge(ask, events, kept, provider=provider, cluster=cluster)
        while not stop.is_set():
            try:
                log.info("looked", new=bridge.poll(wall_ms()))
            except WorldError as error:
                if once:
                    raise
                log.warning("the provider could not be asked", error=str(error))
            if once:
                break
            stop.wait(every_s)
    kept.close()


def _asking(
    provider: str, source: str, node: str, nodes: Path | None, metadata_url: str | None
) -> Callable[[], Answer]:
    if source == "api":
        if provider != "aws":
            raise UsageError(f"--from api: only for aws; run this on each machine of {provider} instead")
        return partial(ask_aws_api, _names(nodes))
    ask, base = METADATA[provider]
    return partial(ask, node, metadata_url or base)


def _names(path: Path | None) -> dict[str, str]:
    if path is None:
        return {}
    try:
        names = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path} cannot be used: {error}") from None
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        raise ConfigurationError(f'{path}: expected {{"instance id": "node", …}}')
    return names
