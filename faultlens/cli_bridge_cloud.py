"""`faultlens bridge cloud`: what a provider says of its machines, told as it happens."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from faultlens.cli_bridge_looking import EveryOption, OnceOption, StateOption, look_until_stopped, place_of
from faultlens.cli_options import Brokers, ClusterOption, Out
from faultlens.cli_outlet import outlet
from faultlens.clock import wall_ms
from faultlens.errors import ConfigurationError, UsageError
from producers.cloud.bridge import CloudBridge
from producers.cloud.notices import Answer
from producers.cloud.polling import METADATA, ask_aws_api
from producers.delivery.kept import Kept


def cloud(  # noqa: PLR0913 - one parameter for each option of the command
    provider: Annotated[
        Literal["aws", "gcp", "azure"], typer.Argument(metavar="PROVIDER", help="Whose machines they are.")
    ],
    *,
    cluster: ClusterOption = "",
    source: Annotated[
        Literal["metadata", "api"],
        typer.Option("--from", help="This machine's metadata service, or (aws) the provider's API for all machines."),
    ] = "metadata",
    node: Annotated[str | None, typer.Option(help="This machine's name as a node.", show_default="host name")] = None,
    nodes: Annotated[
        Path | None, typer.Option(metavar="FILE", help='With --from api: {"instance id": "node", …}.')
    ] = None,
    metadata_url: Annotated[str | None, typer.Option(hidden=True)] = None,
    every_s: EveryOption = 5.0,
    once: OnceOption = False,
    out: Out = None,
    brokers: Brokers = None,
    state: StateOption = None,
) -> None:
    """Tell of planned maintenance, of spot capacity that is taken away, and of the provider's failed checks.

    That the provider says all is well clears no fault: what clears one is the node's own report.
    """
    here = node or socket.gethostname()
    place = place_of(state, f"{provider}-{cluster}")
    ask = _asking(provider, source, here, nodes, metadata_url)
    kept = Kept(place / "kept")
    with outlet(out, brokers, place / "spool", must_arrive=once) as events:
        bridge = CloudBridge(ask, events, kept, provider=provider, cluster=cluster)
        look_until_stopped(lambda: {"new": bridge.poll(wall_ms())}, whom="the provider", every_s=every_s, once=once)
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
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ConfigurationError(f"{path} is no JSON: {error}") from None
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        raise ConfigurationError(f'{path}: expected {{"instance id": "node", …}}')
    return names
