"""`faultlens bridge kubernetes`: what a cluster's API server knows, told as it happens."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from faultlens.cli_bridge_looking import OnceOption, PrefixOption, StateOption, place_of
from faultlens.cli_options import Brokers, ClusterOption, KubeconfigOption, Out
from faultlens.cli_outlet import outlet
from faultlens.clock import wall_ms
from faultlens.errors import UsageError
from faultlens.stopping import told_to_stop


def kubernetes(  # noqa: PLR0913 - one parameter for each option of the command
    *,
    cluster: ClusterOption = "",
    kubeconfig: KubeconfigOption = None,
    all_pods: Annotated[bool, typer.Option("--all-pods", help="Tell of jobs that ask for no accelerator too.")] = False,
    prefix: PrefixOption = False,
    once: OnceOption = False,
    out: Out = None,
    brokers: Brokers = None,
    state: StateOption = None,
) -> None:
    """Tell of a cluster's jobs, nodes and devices, by watching its API server.

    It goes on where it stopped: what happened meanwhile is told with its own time, and nothing is told twice.
    """
    try:
        from producers.kubernetes.bridge import KubernetesBridge, versions_in  # noqa: PLC0415 - needs the client
        from producers.kubernetes.watching import RESOURCES, Cluster  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise UsageError(f"{error.name} is not installed: pip install 'faultlens[kubernetes]'") from None
    from producers.delivery.kept import Kept  # noqa: PLC0415
    from producers.kubernetes.telling import Names  # noqa: PLC0415
    from producers.kubernetes.translator import Translator  # noqa: PLC0415

    place = place_of(state, f"kubernetes-{cluster}")
    stop = told_to_stop()
    kept = Kept(place / "kept")
    saved = kept.all()
    names, kinds = Names(cluster, f"{cluster}:" if prefix else ""), {resource.kind for resource in RESOURCES}
    translator = Translator(names, all_pods=all_pods, watched=kinds, saved=saved)

    async def run() -> None:
        server = await Cluster.connect(None if kubeconfig is None else str(kubeconfig))
        try:
            await (bridge.once(server) if once else bridge.run(server, versions_in(saved), stop))
        finally:
            await server.close()

    with outlet(out, brokers, place / "spool", must_arrive=once) as events:
        bridge = KubernetesBridge(translator, kept, events, now_ms=wall_ms)
        asyncio.run(run())
    kept.close()
