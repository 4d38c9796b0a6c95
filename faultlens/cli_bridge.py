"""`faultlens bridge`: what other systems know, told as it happens."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import structlog
import typer

from faultlens.cli_bridge_cloud import cloud
from faultlens.cli_bridge_kubernetes import kubernetes
from faultlens.cli_options import Brokers, Out
from faultlens.cli_outlet import outlet
from faultlens.clock import wall_ms
from faultlens.errors import UsageError, WorldError
from faultlens.settings import data_directory
from faultlens.stopping import told_to_stop
from producers.delivery.remembered import Remembered
from producers.slurm.bridge import LOOK_BACK_S, SlurmBridge
from producers.slurm.job_events import Names
from producers.slurm.live import ask_slurm
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
    cluster: Annotated[str, typer.Option(help="The cluster's name in events.")],
    every_s: Annotated[float, typer.Option(min=1, max=3_600, help="Seconds between two looks.")] = 30.0,
    look_back_s: Annotated[
        int, typer.Option(min=60, max=90 * 86_400, help="How far back accounting is asked for, in seconds.")
    ] = LOOK_BACK_S,
    prefix: Annotated[
        bool, typer.Option("--prefix", help="Names get CLUSTER: in front, for a second cluster.")
    ] = False,
    once: Annotated[bool, typer.Option("--once", help="Look once and end.")] = False,
    out: Out = None,
    brokers: Brokers = None,
    state: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where it remembers what was told.", show_default=False)
    ] = None,
) -> None:
    """Tell of Slurm's jobs and of what becomes of its nodes, by asking sacct, sacctmgr and scontrol.

    The same as `faultlens import slurm`, again and again: only what is new is told, also after a restart.
    """
    log = structlog.get_logger("faultlens.bridge")
    place = state or data_directory() / "faultlens" / "bridge" / f"slurm-{cluster}"
    stop = told_to_stop()
    memory = Remembered(place / "told")
    with outlet(out, brokers, place / "spool") as events:
        bridge = SlurmBridge(
            lambda since: ask_slurm(since, deadline_s=DEADLINE_S),
            Names(cluster, f"{cluster}:" if prefix else ""),
            events,
            memory,
            look_back_s=look_back_s,
            every_s=every_s,
        )
        while not stop.is_set():
            try:
                polled = bridge.poll(wall_ms())
                log.info("looked", new=polled.told, seen=polled.seen, unreadable=polled.bad)
            except (WorldError, TableError) as error:
                if once:
                    raise error if isinstance(error, WorldError) else UsageError(str(error)) from None
                log.warning("Slurm could not be asked", error=str(error))
            if once:
                break
            stop.wait(every_s)
    memory.close()
