"""What became of each command, on disk: what makes an actuator that is killed and started again do nothing twice."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from threading import Lock
from typing import Final, NamedTuple

from faultlens.clock import DAY_MS
from faultlens.errors import WorldError

KEPT_MS: Final = 30 * DAY_MS
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS commands (
    command_id TEXT PRIMARY KEY, state TEXT NOT NULL, reason TEXT NOT NULL, at_ms INTEGER NOT NULL, body BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS notes (command_id TEXT PRIMARY KEY, note BLOB NOT NULL) WITHOUT ROWID;
"""


class Entry(NamedTuple):
    """A command as it stands: its state, why, since when, and the command itself."""

    command_id: str
    state: str
    reason: str
    at_ms: int
    body: bytes


class Ledger:
    """A file of commands; safe to use from several threads."""

    def __init__(self, path: Path | str) -> None:
        self._lock = Lock()
        try:
            if isinstance(path, Path):
                path.parent.mkdir(parents=True, exist_ok=True)
            self._file = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
            with closing(self._file.cursor()) as cursor:
                cursor.execute("PRAGMA journal_mode=WAL")
                cursor.execute("PRAGMA synchronous=FULL")
                cursor.executescript(_SCHEMA)
        except (OSError, sqlite3.Error) as error:
            raise WorldError(f"{path} cannot be kept as the actuator's ledger: {error}") from None

    def get(self, command_id: str) -> Entry | None:
        """Return how a command stands; None: it was never seen."""
        with self._lock:
            row = self._file.execute("SELECT * FROM commands WHERE command_id = ?", (command_id,)).fetchone()
        return None if row is None else Entry(*row)

    def put(self, entry: Entry) -> None:
        """Write down how a command stands."""
        with self._lock:
            self._file.execute("INSERT OR REPLACE INTO commands VALUES (?, ?, ?, ?, ?)", entry)

    def memory_of(self, command_id: str) -> Note:
        """Return where an actuator keeps how far it has come with a command."""
        return Note(self._file, self._lock, command_id)

    def unfinished(self) -> list[Entry]:
        """Return the commands that were accepted or begun and have not ended, the oldest first."""
        query = "SELECT * FROM commands WHERE state IN ('accepted', 'started') ORDER BY at_ms, command_id"
        with self._lock:
            return [Entry(*row) for row in self._file.execute(query).fetchall()]

    def forget(self, now_ms: int) -> None:
        """Drop what ended long ago."""
        with self._lock:
            self._file.execute(
                "DELETE FROM commands WHERE at_ms < ? AND state NOT IN ('accepted', 'started')", (now_ms - KEPT_MS,)
            )
            self._file.execute("DELETE FROM notes WHERE command_id NOT IN (SELECT command_id FROM commands)")

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._file.close()


class Note:
    """What an actuator keeps of one command in its own words, as long as the ledger knows the command."""

    def __init__(self, file: sqlite3.Connection, lock: Lock, command_id: str) -> None:
        self._file = file
        self._lock = lock
        self._command_id = command_id

    def recall(self) -> bytes | None:
        """Return what was kept last."""
        query = "SELECT note FROM notes WHERE command_id = ?"
        with self._lock:
            row = self._file.execute(query, (self._command_id,)).fetchone()
        return None if row is None else bytes(row[0])

    def keep(self, note: bytes) -> None:
        """Keep it; it is on disk when this returns."""
        with self._lock:
            self._file.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (self._command_id, note))
