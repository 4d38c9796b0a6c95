"""How a command that runs until it is stopped learns of that."""

from __future__ import annotations

import signal
from threading import Event
from types import FrameType


def told_to_stop() -> Event:
    """Return what is set when somebody asks the process to end (SIGTERM, or SIGINT from a terminal)."""
    stop = Event()

    def ask(number: int, frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, ask)
    return stop
