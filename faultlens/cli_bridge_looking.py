"""What bridges share that ask again and again: their options, and the loop that outlives whoever does not answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Final

import structlog
import typer

from faultlens.errors import WorldError
from faultlens.settings import data_directory
from faultlens.stopping import told_to_stop

EveryOption = Annotated[float, typer.Option("--every-s", min=1, max=3_600, help="Seconds between two looks.")]
OnceOption = Annotated[bool, typer.Option("--once", help="Look once and end.")]
StateOption = Annotated[
    Path | None,
    typer.Option("--state", metavar="DIR", help="Where it remembers what was told.", show_default=False),
]
PrefixOption = Annotated[bool, typer.Option("--prefix", help="Names get CLUSTER: in front, for a second cluster.")]
_log: Final = structlog.get_logger("faultlens.bridge")


def place_of(state: Path | None, name: str) -> Path:
    """Return where a bridge keeps what it remembers; made by whoever writes there first."""
    return state or data_directory() / "faultlens" / "bridge" / name


def look_until_stopped(look: Callable[[], Mapping[str, int]], *, whom: str, every_s: float, once: bool) -> None:
    """Look every `every_s` until told to stop, and say what each look came to.

    Whoever (`whom`) does not answer (WorldError) is asked again at the next look; of a single one the error is raised.
    """
    stop = told_to_stop()
    while not stop.is_set():
        try:
            _log.info("looked", **look())
        except WorldError as error:
            if once:
                raise
            _log.warning(f"{whom} could not be asked", error=str(error))
        if once:
            break
        stop.wait(every_s)
