"""What a bridge remembers on disk: its translator's memory and how far each watch has come, saved together."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from faultlens.errors import WorldError
from producers.delivery.database import open_database

_SCHEMA: Final = "CREATE TABLE IF NOT EXISTS kept (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID"


class Kept:
    """Values by key; several are written at once or not at all."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = open_database(path, _SCHEMA)

    def all(self) -> dict[str, bytes]:
        """Return everything that was saved."""
        return dict(self._file.execute("SELECT key, value FROM kept").fetchall())

    def save(self, changes: Iterable[tuple[str, bytes | None]]) -> None:
        """Write the changes; None deletes a key. WorldError: the disk takes nothing."""
        listed = list(changes)
        try:
            with self._file:
                self._file.executemany(
                    "INSERT OR REPLACE INTO kept (key, value) VALUES (?, ?)", [c for c in listed if c[1] is not None]
                )
                self._file.executemany(
                    "DELETE FROM kept WHERE key = ?", [(key,) for key, value in listed if value is None]
                )
        except sqlite3.Error as error:
            raise WorldError(f"{self._path} cannot be written: {error}") from error

    def close(self) -> None:
        """Close the file."""
        self._file.close()
