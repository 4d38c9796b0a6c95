"""Which events were told already, on disk, so that what is read over and over is told once."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from faultlens.codec import fingerprint
from producers.delivery.database import open_database

# SQLite takes so many values in one question, whatever its version.
_AT_ONCE: Final = 500
_SCHEMA: Final = "CREATE TABLE IF NOT EXISTS told (mark BLOB PRIMARY KEY, at_ms INTEGER NOT NULL) WITHOUT ROWID"


class Remembered:
    """A set of (source, id) with when each was told, or last said to be still there."""

    def __init__(self, path: Path) -> None:
        self._file = open_database(path, _SCHEMA)

    def known(self, events: Iterable[tuple[str, str]]) -> dict[tuple[str, str], int]:
        """Return those (source, id) that were told, with when they were remembered last."""
        marks = {fingerprint(source, id_): (source, id_) for source, id_ in events}
        known: dict[tuple[str, str], int] = {}
        keys = list(marks)
        for begin in range(0, len(keys), _AT_ONCE):
            some = keys[begin : begin + _AT_ONCE]
            asked = ",".join("?" * len(some))
            question = f"SELECT mark, at_ms FROM told WHERE mark IN ({asked})"  # noqa: S608 - only ?s
            known.update((marks[mark], at_ms) for mark, at_ms in self._file.execute(question, some))
        return known

    def add(self, events: Iterable[tuple[str, str]], at_ms: int) -> None:
        """Remember that these were told, or are still seen."""
        rows = [(fingerprint(source, id_), at_ms) for source, id_ in events]
        with self._file:
            self._file.executemany("INSERT OR REPLACE INTO told (mark, at_ms) VALUES (?, ?)", rows)

    def last_ms(self) -> int | None:
        """Return when anything was remembered last; None: nothing is."""
        newest: int | None = self._file.execute("SELECT max(at_ms) FROM told").fetchone()[0]
        return newest

    def forget(self, before_ms: int) -> None:
        """Forget what was not seen since; it cannot come again."""
        with self._file:
            self._file.execute("DELETE FROM told WHERE at_ms < ?", (before_ms,))

    def close(self) -> None:
        """Close the file."""
        self._file.close()
