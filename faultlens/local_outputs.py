"""Where the embedded runtime writes: one file of JSON lines per output topic, and the store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from faultlens.codec import Event, encode
from faultlens.errors import WorldError
from faultlens.topics import TOPICS

OUTPUTS: Final = tuple(name for name, topic in TOPICS.items() if topic.kind == "output")
_BUFFER_BYTES: Final = 1 << 20


class Store(Protocol):
    """What takes events as rows; `raw` is the record as it came in, None for what was made here."""

    def add(self, event: Event, arrived_ms: int, raw: bytes | None) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...


class OutputFiles:
    """`<topic>.jsonl` in a directory, each made when its first record comes; those of an earlier run are removed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files: dict[str, BinaryIO] = {}
        with _explained(directory):
            directory.mkdir(parents=True, exist_ok=True)
            for topic in OUTPUTS:
                self._path(topic).unlink(missing_ok=True)

    def add(self, topic: str, event: Event) -> None:
        """Append the event to its topic's file."""
        file = self._files.get(topic)
        with _explained(self._directory):
            if file is None:
                file = self._files[topic] = self._path(topic).open("wb", _BUFFER_BYTES)
            file.write(encode(event) + b"\n")

    def flush(self) -> None:
        """Hand everything to the operating system."""
        with _explained(self._directory):
            for file in self._files.values():
                file.flush()

    def close(self) -> None:
        """Write what is left and close the files."""
        with _explained(self._directory):
            for file in self._files.values():
                file.close()

    def _path(self, topic: str) -> Path:
        return self._directory / f"{topic}.jsonl"


@contextmanager
def _explained(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise WorldError(f"{directory} cannot be written: {error.strerror or error}") from error
