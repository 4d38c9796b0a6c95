"""What became of each command, on disk: what makes an actuator that is killed and started again do nothing twice."""

from __future__ import annotations

import fcntl
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Lock
from typing import Any, Final, NamedTuple

from faultlens.clock import DAY_MS
from faultlens.errors import WorldError

KEPT_MS: Final = 30 * DAY_MS
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS commands (
    command_id TEXT PRIMARY KEY, state TEXT NOT NULL, reason TEXT NOT NULL, at_ms INTEGER NOT NULL, body BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS notes (command_id TEXT PRIMARY KEY, note BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS untold (command_id TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS done (what TEXT PRIMARY KEY, command_id TEXT NOT NULL, at_ms INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS taken (node TEXT PRIMARY KEY, incident_id TEXT NOT NULL) WITHOUT ROWID;
"""
_OPEN: Final = "SELECT * FROM commands WHERE state IN ('accepted', 'started') ORDER BY at_ms, command_id"
_UNTOLD: Final = "SELECT commands.* FROM commands JOIN untold USING (command_id) ORDER BY at_ms, command_id"


class Entry(NamedTuple):
    """A command as it stands: its state, why, since when, and the command itself."""

    command_id: str
    state: str
    reason: str
    at_ms: int
    body: bytes


class Ledger:
    """A file of commands; safe to use from several threads, and one process at a time has it.

    What cannot be read or written is a WorldError: nothing may be done that cannot be remembered.
    """

    def __init__(self, path: Path | str) -> None:
        self._lock = Lock()
        self._path = path
        with _explained(path):
            self._alone = _held(path) if isinstance(path, Path) else None
            self._file = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
            with closing(self._file.cursor()) as cursor:
                cursor.execute("PRAGMA journal_mode=WAL")
                cursor.execute("PRAGMA synchronous=FULL")
                cursor.executescript(_SCHEMA)

    def get(self, command_id: str) -> Entry | None:
        """Return how a command stands; None: it was never seen."""
        rows = self._asked("SELECT * FROM commands WHERE command_id = ?", command_id)
        return Entry(*rows[0]) if rows else None

    def put(self, entry: Entry) -> None:
        """Write down how a command stands."""
        with self._changing():
            self._written(entry)

    def end(self, entry: Entry, done: str | None) -> None:
        """Write down how a command ended, which is to be told; `done`: what was done by it and is not to be twice."""
        with self._changing():
            self._written(entry)
            self._file.execute("INSERT OR REPLACE INTO untold VALUES (?)", (entry.command_id,))
            if done is not None:
                row = (done, entry.command_id, entry.at_ms)
                self._file.execute("INSERT OR REPLACE INTO done VALUES (?, ?, ?)", row)

    def told(self, command_id: str) -> None:
        """Note that a command's end was told."""
        with self._changing():
            self._file.execute("DELETE FROM untold WHERE command_id = ?", (command_id,))

    def untold(self) -> list[Entry]:
        """Return the commands that ended and whose end was not told yet, the oldest first."""
        return [Entry(*row) for row in self._asked(_UNTOLD)]

    def done(self, what: str) -> tuple[str, int] | None:
        """Return by which command something was done last, and when; None: it never was."""
        rows = self._asked("SELECT command_id, at_ms FROM done WHERE what = ?", what)
        return (str(rows[0][0]), int(rows[0][1])) if rows else None

    def memory_of(self, command_id: str) -> Note:
        """Return where an actuator keeps how far it has come with a command."""
        return Note(self, command_id)

    # --- nodes that are out ----------------------------------------------------------------------------

    def take(self, node: str, incident_id: str) -> None:
        """Note that we keep a node from work, for an incident."""
        with self._changing():
            self._file.execute("INSERT OR REPLACE INTO taken VALUES (?, ?)", (node, incident_id))

    def give_back(self, node: str) -> None:
        """Note that we do not keep a node from work any more."""
        with self._changing():
            self._file.execute("DELETE FROM taken WHERE node = ?", (node,))

    def taken_for(self, node: str) -> str | None:
        """Return the incident for which we keep a node from work, as far as we know; None: we do not."""
        rows = self._asked("SELECT incident_id FROM taken WHERE node = ?", node)
        return str(rows[0][0]) if rows else None

    # --- as a whole ------------------------------------------------------------------------------------

    def unfinished(self) -> list[Entry]:
        """Return the commands that were accepted or begun and have not ended, the oldest first."""
        return [Entry(*row) for row in self._asked(_OPEN)]

    def forget(self, now_ms: int) -> None:
        """Drop what ended long ago."""
        with self._changing():
            self._file.execute(
                "DELETE FROM commands WHERE at_ms < ? AND state NOT IN ('accepted', 'started')", (now_ms - KEPT_MS,)
            )
            self._file.execute("DELETE FROM notes WHERE command_id NOT IN (SELECT command_id FROM commands)")
            self._file.execute("DELETE FROM untold WHERE command_id NOT IN (SELECT command_id FROM commands)")
            self._file.execute("DELETE FROM done WHERE at_ms < ?", (now_ms - KEPT_MS,))

    def close(self) -> None:
        """Close the file, which others may have then."""
        with self._lock:
            self._file.close()
            if self._alone is not None:
                self._alone.close()

    def noted(self, command_id: str) -> bytes | None:
        """Return what an actuator kept of a command last."""
        rows = self._asked("SELECT note FROM notes WHERE command_id = ?", command_id)
        return bytes(rows[0][0]) if rows else None

    def note(self, command_id: str, note: bytes) -> None:
        """Keep what an actuator wants to know of a command."""
        with self._changing():
            self._file.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (command_id, note))

    # --- inside ----------------------------------------------------------------------------------------

    def _asked(self, query: str, *values: str) -> list[tuple[Any, ...]]:
        with self._lock, _explained(self._path):
            return self._file.execute(query, values).fetchall()

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """All that is changed meanwhile is on disk at the end, or nothing of it."""
        with self._lock, _explained(self._path):
            self._file.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._file.execute("COMMIT")
            except BaseException:
                if self._file.in_transaction:
                    self._file.execute("ROLLBACK")
                raise

    def _written(self, entry: Entry) -> None:
        self._file.execute("INSERT OR REPLACE INTO commands VALUES (?, ?, ?, ?, ?)", entry)


class Note:
    """What an actuator keeps of one command in its own words, as long as the ledger knows the command."""

    def __init__(self, ledger: Ledger, command_id: str) -> None:
        self._ledger = ledger
        self._command_id = command_id

    def recall(self) -> bytes | None:
        """Return what was kept last."""
        return self._ledger.noted(self._command_id)

    def keep(self, note: bytes) -> None:
        """Keep it; it is on disk when this returns."""
        self._ledger.note(self._command_id, note)


def _held(path: Path) -> Any:
    """Return what has the ledger for this process alone until it is closed or the process ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = path.with_name(f"{path.name}.lock").open("a")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise WorldError(f"{path} is the ledger of an actuator that runs: end that, or give --ledger FILE") from None
    return lock


@contextmanager
def _explained(path: Path | str) -> Iterator[None]:
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        is_damaged = isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError)
        aside = "; move it away to begin anew without what it knew" if is_damaged else ""
        raise WorldError(f"{path} cannot be kept as the actuator's ledger: {error}{aside}") from None
