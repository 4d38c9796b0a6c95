"""The small SQLite files that producers remember things in."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from faultlens.errors import WorldError


def open_database(path: Path, schema: str) -> sqlite3.Connection:
    """Return the file with its table, made when it is not there yet. WorldError: it cannot be used.

    A crash of the machine may lose the last moments, never the file.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = sqlite3.connect(path, timeout=5)
        file.executescript(f"PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; {schema};")
    except (sqlite3.Error, OSError) as error:
        raise WorldError(f"{path} cannot be used: {why_of(error)}") from error
    return file


def why_of(error: sqlite3.Error | OSError) -> str:
    """Return why a file cannot be used: of the system's errors without their number and path."""
    return str(error.strerror if isinstance(error, OSError) else error)
