"""What waits to be delivered, on disk and bounded: when it is full the most dispensable goes first, and is counted."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Final, NamedTuple

from faultlens.codec import Event, encode
from faultlens.errors import WorldError
from faultlens.events import JobAlive, JobProgress, NodeHealth
from producers.delivery.database import why_of

LIMIT_BYTES: Final = 64 << 20
# A row's own weight beside its event: key, index and page.
_ROW_BYTES: Final = 64
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS waiting (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    rank INTEGER NOT NULL,
    size INTEGER NOT NULL,
    event BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS dispensable ON waiting (rank, number);
"""


class Waiting(NamedTuple):
    """An event that waits: `number` says in which order they came."""

    number: int
    raw: bytes


def rank_of(event: Event) -> int:
    """Return how dispensable an event is: 0 reports, of which the next says the same, 1 signs of life, 2 all else.

    A report with the inventory is said once a boot, and nothing repeats it.
    """
    if isinstance(event.data, NodeHealth):
        return 0 if event.data.devices is None else 2
    return 1 if isinstance(event.data, JobAlive | JobProgress) else 2


class Spool:
    """A file of events in their order. `folded`: how many were dropped for want of room; `lost`: of those rank 2.

    May be used from several threads. A file that is damaged is put aside (`<name>.damaged`), and a new one begun.
    """

    def __init__(self, path: Path, limit_bytes: int = LIMIT_BYTES) -> None:
        self._limit = limit_bytes
        self._lock = Lock()
        self.folded = 0
        self.lost = 0
        self.damaged = False
        with _explained(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._opened(path)
            row = self._file.execute("SELECT count(*), coalesce(sum(size), 0) FROM waiting").fetchone()
        self._count, self._bytes = int(row[0]), int(row[1])

    def __len__(self) -> int:
        return self._count

    @property
    def bytes(self) -> int:
        """How much room what waits takes."""
        return self._bytes

    def _opened(self, path: Path) -> sqlite3.Connection:
        try:
            return _open(path)
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise  # no disk, no permission: the file itself may be whole
            path.replace(path.with_name(f"{path.name}.damaged"))
            self.damaged = True
            return _open(path)

    def add(self, event: Event) -> None:
        """Keep an event, and drop the most dispensable ones beyond the limit. WorldError: it could not be kept."""
        raw = encode(event)
        size = len(raw) + _ROW_BYTES
        with self._lock, _explained("the spool"), self._file:
            self._file.execute("INSERT INTO waiting (rank, size, event) VALUES (?, ?, ?)", (rank_of(event), size, raw))
            self._count, self._bytes = self._count + 1, self._bytes + size
            if self._bytes > self._limit:
                self._make_room()

    def _make_room(self) -> None:
        """Drop the oldest of the most dispensable events until a tenth of the room is free: not one by one."""
        rows = self._file.execute("SELECT number, rank, size FROM waiting ORDER BY rank, number")
        gone = []
        for number, rank, size in rows:
            if self._bytes <= self._limit * 9 // 10:
                break
            gone.append((number,))
            self._count, self._bytes = self._count - 1, self._bytes - size
            self.folded += 1
            self.lost += rank == 2
        self._file.executemany("DELETE FROM waiting WHERE number = ?", gone)

    def oldest(self, count: int) -> list[Waiting]:
        """Return up to `count` events that have waited longest, in order."""
        with self._lock, _explained("the spool"):
            rows = self._file.execute("SELECT number, event FROM waiting ORDER BY number LIMIT ?", (count,))
            return [Waiting(number, raw) for number, raw in rows]

    def done(self, delivered: Sequence[Waiting]) -> None:
        """Forget events that were delivered; of those that were dropped meanwhile nothing is left to forget."""
        with self._lock, _explained("the spool"), self._file:
            for waiting in delivered:
                found = self._file.execute(
                    "DELETE FROM waiting WHERE number = ? RETURNING size", (waiting.number,)
                ).fetchone()
                if found is not None:
                    self._count, self._bytes = self._count - 1, self._bytes - int(found[0])

    def close(self) -> None:
        """Close the file; what waits in it is delivered by whoever opens it next."""
        with self._lock:
            self._file.close()


def _open(path: Path) -> sqlite3.Connection:
    file = sqlite3.connect(path, timeout=5, check_same_thread=False)
    try:
        # A crash of the machine may lose the last moments, never the file: reports come again, and the log is read on.
        file.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA auto_vacuum = INCREMENTAL;")
        file.executescript(_SCHEMA)
    except sqlite3.DatabaseError:
        file.close()
        raise
    return file


@contextmanager
def _explained(what: Path | str) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise WorldError(f"{what} cannot be written: {why_of(error)}") from error
