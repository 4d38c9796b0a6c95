"""What bridges share that ask again and again: their options, and the loop that outlives whoever does not answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Event as Flag
from time import monotonic
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
# Jobs end all the time: whoever is asked to look again has this much rest between two looks.
AWAKE_S: Final = 2.0
GLANCE_S: Final = 0.5
HELD: Final = "held"
HELD_S: Final = 5.0
_log: Final = structlog.get_logger("faultlens.bridge")


def place_of(state: Path | None, name: str) -> Path:
    """Return where a bridge keeps what it remembers; made by whoever writes there first."""
    return state or data_directory() / "faultlens" / "bridge" / name


def look_until_stopped(
    look: Callable[[], Mapping[str, int]], *, whom: str, every_s: float, once: bool, wake: Path | None = None
) -> None:
    """Look every `every_s` until told to stop, and say what each look came to.

    Whoever (`whom`) does not answer (WorldError) is asked again at the next look; of a single one the error is raised.
    A look that holds something back (`HELD`: how much) is followed by the next one within `HELD_S`.
    `wake`: a file; whoever touches it has the next look come soon (`AWAKE_S` after the last one).
    """
    stop = told_to_stop()
    while not stop.is_set():
        touched, rest_s = None if wake is None else _touched(wake), every_s
        try:
            found = look()
            _log.info("looked", **found)
            rest_s = min(every_s, HELD_S) if found.get(HELD) else every_s
        except WorldError as error:
            if once:
                raise
            _log.warning(f"{whom} could not be asked", error=str(error))
        if once:
            break
        _rest(stop, rest_s, wake, touched)


def _rest(stop: Flag, every_s: float, wake: Path | None, touched: int | None) -> None:
    """Wait for the next look; one that was asked for since the last one began comes sooner."""
    if wake is None:
        stop.wait(every_s)
        return
    began = monotonic()
    while not stop.wait(min(GLANCE_S, every_s)):
        waited_s = monotonic() - began
        if waited_s >= every_s or (waited_s >= AWAKE_S and _touched(wake) != touched):
            return


def _touched(wake: Path) -> int | None:
    """Return when the file was touched last; None: it is not there."""
    try:
        return wake.stat().st_mtime_ns
    except OSError:
        return None
