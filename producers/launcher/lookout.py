"""Where progress is looked for that the training does not tell itself: in what it prints, or in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from producers.launcher.following import Follower
from producers.launcher.watching import Watch

# Beside the streams that are printed to.
_FILE: Final = 3


class Lookout:
    """Looks during one attempt, until it is closed: at `file` if there is one, else at the output."""

    def __init__(self, watch: Watch, file: Path | None) -> None:
        self._watch = watch
        self._follower = Follower(file) if file is not None else None

    def printed(self, stream: int, data: bytes) -> None:
        """Take what was printed."""
        if self._follower is None:
            self._watch.feed(stream, data)

    def look(self) -> None:
        """Take what was added to the file, and tell what waited to be told."""
        if self._follower is not None:
            self._watch.feed(_FILE, self._follower.taken())
        self._watch.tell()

    def close(self) -> None:
        """Look a last time and tell what there is."""
        if self._follower is not None:
            self._watch.feed(_FILE, self._follower.close())
        self._watch.tell(at_last=True)
