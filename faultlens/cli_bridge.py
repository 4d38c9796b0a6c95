"""`faultlens bridge`: what other systems know, told as it happens."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from faultlens.cli_bridge_cloud import cloud
from faultlens.cli_bridge_kubernetes import kubernetes
from faultlens.cli_bridge_looking import (
    HELD,
    EveryOption,
    OnceOption,
    PrefixOption,
    StateOption,
    look_until_stopped,
    place_of,
)
from faultlens.cli_options import Brokers, ClusterOption, Out
from faultlens.cli_outlet import outlet
from faultlens.clock import wall_ms
from faultlens.errors import WorldError
from producers.delivery.kept import Kept
from producers.delivery.remembered import Remembered
from producers.slurm.bridge import LOOK_BACK_S, SlurmBridge
from producers.slurm.job_events import Names
from producers.slurm.live import ask_slurm
from producers.slurm.places import Places
from producers.slurm.tables import TableError

# slurmctld and slurmdbd serve others too: a look may take this long at most, and none follows before it.
DEADLINE_S: Final = 120.0

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Tell what other systems know, as it happens.")


@app.callback()
def _group() -> None:
    """Tell what other systems know, as it happens."""


app.command("kubernetes")(kubernetes)
app.command("cloud")(cloud)


@app.command("slurm")
def slurm(  # noqa: PLR0913 - one parameter for each option of the command
    *,
    cluster: ClusterOption = "",
    every_s: EveryOption = 30.0,
    look_back_s: Annotated[
        int, typer.Option(min=60, max=90 * 86_400, help="How far back accounting is asked for, in seconds.")
    ] = LOOK_BACK_S,
    prefix: PrefixOption = False,
    once: OnceOption = False,
    wake: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Look soon when this file is touched, as Slurm's prolog and epilog can."),
    ] = None,
    out: Out = None,
    brokers: Brokers = None,
    state: StateOption = None,
) -> None:
    """Tell of Slurm's jobs and of what becomes of its nodes, by asking sacct, sacctmgr and scontrol.

    The same as `faultlens import slurm`, again and again: only what is new is told, also after a restart.
    """
    place = place_of(state, f"slurm-{cluster}")
    memory, kept = Remembered(place / "told"), Kept(place / "runs")
    with outlet(out, brokers, place / "spool", must_arrive=once) as events:
        bridge = SlurmBridge(
            lambda since: ask_slurm(since, deadline_s=DEADLINE_S),
            Names(cluster, f"{cluster}:" if prefix else ""),
            events,
            memory,
            look_back_s=look_back_s,
            every_s=every_s,
            places=Places(kept),
        )
        look_until_stopped(lambda: _looked(bridge), whom="Slurm", every_s=every_s, once=once, wake=wake)
    memory.close()
    kept.close()


def _looked(bridge: SlurmBridge) -> dict[str, int]:
    """Look once and return what that came to. WorldError: no answer, or none that can be read."""
    try:
        polled = bridge.poll(wall_ms())
    except TableError as error:
        raise WorldError(f"Slurm's answer cannot be read: {error}") from None
    return {"new": polled.told, "seen": polled.seen, "unreadable": polled.bad, HELD: polled.held}
