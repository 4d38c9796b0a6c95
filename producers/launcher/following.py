"""A file that grows, read from where it ended when it was first looked at, by a thread that may hang with its disk."""

from __future__ import annotations

import os
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event as Flag
from threading import Thread
from typing import Final

EVERY_S: Final = 0.5
# Of what was added since the last look the last of it is read; what lies before is passed over.
AT_ONCE: Final = 1 << 20
# So long a first and a last look are waited for: the file may lie on storage that hangs, and the job must not wait.
PATIENCE_S: Final = 1.0


class Follower:
    """What is added to a file from now on; one that is made anew or cut short is read from its beginning."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._added: SimpleQueue[bytes] = SimpleQueue()
        self._begun, self._stop, self._ended = Flag(), Flag(), Flag()
        self._file: tuple[int, int] | None = None
        self._read = 0
        Thread(target=self._follow, name="progress file", daemon=True).start()
        self._begun.wait(PATIENCE_S)

    def taken(self) -> bytes:
        """Return what was added since the last call, without waiting."""
        try:
            return self._added.get_nowait()
        except Empty:
            return b""

    def close(self) -> bytes:
        """Look a last time, for `PATIENCE_S` at most, and return what was added."""
        self._stop.set()
        self._ended.wait(PATIENCE_S)
        return self.taken() + self.taken()

    def _follow(self) -> None:
        self._look(first=True)
        self._begun.set()
        while not self._stop.wait(EVERY_S):
            # What nobody has taken yet stays the only thing that waits.
            if self._added.empty():
                self._look()
        self._look()
        self._ended.set()

    def _look(self, *, first: bool = False) -> None:
        try:
            with self._path.open("rb") as file:
                told = os.fstat(file.fileno())
                if self._file != (told.st_dev, told.st_ino) or told.st_size < self._read:
                    self._file, self._read = (told.st_dev, told.st_ino), told.st_size if first else 0
                file.seek(max(self._read, told.st_size - AT_ONCE))
                data = file.read(AT_ONCE)
                self._read = file.tell()
        except OSError:
            return  # it is not there yet, or not any more
        if data:
            self._added.put(data)
