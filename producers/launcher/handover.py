"""What a job's next attempt is handed where another launcher starts it: the last checkpoint, in a shared folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from threading import Condition, Thread
from typing import Final
from urllib.parse import quote

import msgspec

from producers.launcher.hearing import Saved, is_path

# A shared folder may hang: the training is never kept waiting for it, and the launcher's end no longer than this.
PATIENCE_S: Final = 10.0
_FILE_BYTES: Final = 64 * 1024
_NAME_BYTES: Final = 200


class Handover:
    """The file of one job, written by a thread of its own, the newest only; `say` is told once when it cannot be."""

    def __init__(self, folder: Path, job_id: str, say: Callable[[str], None]) -> None:
        self._file = folder / f"{quote(job_id, safe='')[:_NAME_BYTES]}.checkpoint.json"
        self._say = say
        self._failed = False
        self._next: Saved | None = None
        self._is_writing = False
        self._changed = Condition()
        self._writer: Thread | None = None

    def read(self) -> Saved | None:
        """Return what an earlier attempt left; None: nothing, or nothing that can be believed."""
        try:
            with self._file.open("rb") as file:
                found = msgspec.json.decode(file.read(_FILE_BYTES), type=Saved)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError) as error:
            self._tell(error)
            return None
        return found if found.path is None or is_path(found.path) else Saved(found.step, None)

    def keep(self, saved: Saved) -> None:
        """Leave this for the next attempt, soon."""
        with self._changed:
            self._next = saved
            if self._writer is None:
                self._writer = Thread(target=self._write, name="handover", daemon=True)
                self._writer.start()
            self._changed.notify_all()

    def close(self, *, is_done: bool) -> None:
        """Wait until it is left; a job that is done leaves nothing."""
        with self._changed:
            written = self._changed.wait_for(lambda: self._next is None and not self._is_writing, PATIENCE_S)
        if is_done and written:
            try:
                self._file.unlink(missing_ok=True)
            except OSError as error:
                self._tell(error)

    def _write(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._next is not None)
                saved, self._next, self._is_writing = self._next, None, True
            try:
                self._put(msgspec.json.encode(saved))
            except OSError as error:
                self._tell(error)
            with self._changed:
                self._is_writing = False
                self._changed.notify_all()

    def _put(self, text: bytes) -> None:
        """Write the file, whole or not at all: the next attempt may look at any time."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self._file.with_name(f"{self._file.name}.{os.getpid()}.part")
        with unfinished.open("wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(self._file)

    def _tell(self, error: Exception) -> None:
        if not self._failed:
            self._failed = True
            self._say(f"{self._file}: checkpoints are not handed to a requeued attempt: {error}")
