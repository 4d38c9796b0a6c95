"""Spools whose programs ended before the brokers took what is in them: named so that the next program can tell."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

# Each is an open file and a thread.
AT_ONCE: Final = 16


def spool_of(place: Path, name: str, host: str, pid: int) -> Path:
    """Return the spool of one program: several hosts may share the folder, and each has many programs."""
    return place / f"{name.replace('/', '_')}@{host}.{pid}"


def left_behind(place: Path, host: str, is_running: Callable[[int], bool]) -> list[Path]:
    """Return spools that programs of this host left, as many as may be taken over at once; of other hosts nobody here
    knows which programs run."""
    pattern = re.compile(rf".*@{re.escape(host)}\.(\d+)", re.DOTALL)
    named = ((path, pattern.fullmatch(path.name)) for path in sorted(place.iterdir()))
    return [path for path, found in named if found is not None and not is_running(int(found[1]))][:AT_ONCE]


def is_running(pid: int) -> bool:
    """Return whether a process of this host has that number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
