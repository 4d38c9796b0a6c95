"""Recorded events as a stream of lines: plain, gzip or zstd files, or standard input; several merged by arrival."""

from __future__ import annotations

import hashlib
import heapq
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import BinaryIO, Final, Protocol

import zstandard
from msgspec import Struct

from faultlens.arrival import Entry, arrivals
from faultlens.codec import MAX_RECORD_BYTES, Decoder
from faultlens.errors import InvalidEventError, UsageError, WorldError

STDIN: Final = "-"
HEAD_BYTES: Final = 64 * 1024
_PLAIN_CHUNK: Final = 256 * 1024
# A piece of compressed input may unpack to a thousand times its size and more: small pieces keep that bounded.
_PACKED_CHUNK: Final = 8 * 1024
_GZIP_MAGIC: Final = b"\x1f\x8b"
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_UTF8_MARK: Final = b"\xef\xbb\xbf"


class LongLine(Struct, frozen=True):
    """A line beyond the size of a record: its first 64 KiB, its size in bytes, and the SHA-256 of all of it."""

    head: bytes
    size: int
    sha256: str


class Recording:
    """A file of lines (`-`: standard input), read once from its beginning; compression is told by its content.

    UsageError: there is no such file, or it may not be read.
    """

    def __init__(self, path: str) -> None:
        self.name = path
        self.bytes_read = 0
        self.lines_unpacked = 0
        self.size = None if path == STDIN else _size_of(Path(path))

    def verify(self) -> None:
        """Raise WorldError where a file's compression is broken, before anything is made of its beginning.

        Unpacking alone takes a small part of what reading events does. What comes through a pipe comes once.
        """
        if self.size is None:
            return
        with Path(self.name).open("rb") as file:
            packed = file.read(len(_ZSTD_MAGIC)).startswith((_ZSTD_MAGIC, _GZIP_MAGIC))
            file.seek(0)
            for _ in self._unpacked(file) if packed else ():
                pass
        self.bytes_read = self.lines_unpacked = 0

    def lines(self) -> Iterator[bytes | LongLine]:
        """Yield every line without its end; WorldError where the file cannot be read or its compression is broken."""
        try:
            if self.name == STDIN:
                yield from split(self._unpacked(sys.stdin.buffer))
            else:
                with Path(self.name).open("rb") as file:
                    yield from split(self._unpacked(file))
        except OSError as error:
            raise WorldError(f"{self.name} cannot be read: {error.strerror or error}") from error

    def _unpacked(self, file: BinaryIO) -> Iterator[bytes]:
        first = file.read(_PACKED_CHUNK)
        self.bytes_read = len(first)
        try:
            if first.startswith(_ZSTD_MAGIC):
                yield from self._counted(unpack(self._chunks(file, first, _PACKED_CHUNK), _new_zstd))
            elif first.startswith(_GZIP_MAGIC):
                yield from self._counted(unpack(self._chunks(file, first, _PACKED_CHUNK), _new_gzip))
            else:
                yield from self._chunks(file, first.removeprefix(_UTF8_MARK), _PLAIN_CHUNK)
        except (EOFError, zlib.error, zstandard.ZstdError) as error:
            raise WorldError(
                f"{self.name}: the compressed data is broken after line {self.lines_unpacked} ({error}); get the file "
                f"again, or unpack by hand what is left of it and replay that"
            ) from error

    def _counted(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            self.lines_unpacked += chunk.count(b"\n")
            yield chunk

    def _chunks(self, file: BinaryIO, first: bytes, size: int) -> Iterator[bytes]:
        chunk = first
        while chunk:
            yield chunk
            chunk = file.read(size)
            self.bytes_read += len(chunk)


def _size_of(path: Path) -> int | None:
    """Return the size of a regular file, None for a pipe; UsageError where nothing can be read."""
    try:
        if path.is_dir():
            raise UsageError(f"{path} is a directory: name the files in it")
        with path.open("rb"):
            pass
        return path.stat().st_size if path.is_file() else None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error


# --- decompression -------------------------------------------------------------------------------------


class _Unpacker(Protocol):
    """What zlib and zstandard have in common: one compressed member or frame, and what follows it."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /) -> bytes: ...


def _new_gzip() -> _Unpacker:
    return zlib.decompressobj(wbits=31)


def _new_zstd() -> _Unpacker:
    return zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj()


def unpack(chunks: Iterable[bytes], new: Callable[[], _Unpacker]) -> Iterator[bytes]:
    """Yield the content of one or more members one after the other; EOFError where the last one has no end."""
    unpacker = new()
    fed = False
    for chunk in chunks:
        rest = chunk
        while rest:
            fed = True
            piece = unpacker.decompress(rest)
            if piece:
                yield piece
            rest = unpacker.unused_data if unpacker.eof else b""
            if unpacker.eof:
                unpacker, fed = new(), False
    if fed:
        raise EOFError("it ends in the middle")


# --- lines ---------------------------------------------------------------------------------------------


def split(chunks: Iterable[bytes]) -> Iterator[bytes | LongLine]:
    """Yield the lines in the chunks without their ends; of a line longer than a record only what is kept of it."""
    source = iter(chunks)
    rest = b""
    for chunk in source:
        more: bytes | None = chunk
        while more is not None:
            lines = (rest + more).split(b"\n")
            rest, more = lines.pop(), None
            for line in lines:
                yield line if len(line) <= MAX_RECORD_BYTES else _long(line)
            if len(rest) > MAX_RECORD_BYTES:
                long, more = _swallow(rest, source)
                rest = b""
                yield long
    if rest:
        yield rest


def _long(line: bytes) -> LongLine:
    return LongLine(line[:HEAD_BYTES], len(line), hashlib.sha256(line).hexdigest())


def _swallow(begun: bytes, chunks: Iterator[bytes]) -> tuple[LongLine, bytes]:
    """Read on to the end of a long line, keeping its beginning; return it and what follows it."""
    digest = hashlib.sha256(begun)
    size = len(begun)
    for chunk in chunks:
        part, end, rest = chunk.partition(b"\n")
        digest.update(part)
        size += len(part)
        if end:
            return LongLine(begun[:HEAD_BYTES], size, digest.hexdigest()), rest
    return LongLine(begun[:HEAD_BYTES], size, digest.hexdigest()), b""


# --- events --------------------------------------------------------------------------------------------


def entries(recording: Recording, decoder: Decoder) -> Iterator[Entry]:
    """Yield every line of a recording that is not blank, decoded, or with the reason why it is no event."""
    name, decode = recording.name, decoder.decode
    for number, line in enumerate(recording.lines(), 1):
        if isinstance(line, LongLine):
            error = f"{line.size} bytes, at most {MAX_RECORD_BYTES} are accepted"
            yield Entry(name, number, line.head, None, "too_large", error, line.sha256)
            continue
        try:
            event = decode(line)
        except InvalidEventError as error:
            if line and not line.isspace():
                yield Entry(name, number, line, None, error.reason, str(error))
        else:
            yield Entry(name, number, line, event)


def merged(recordings: Sequence[Recording], decoder: Decoder) -> Iterator[Entry]:
    """Yield the entries of all recordings by arrival, in each one's own order; of a tie the first file's first."""
    streams = [arrivals(entries(recording, decoder)) for recording in recordings]
    if len(streams) == 1:
        return streams[0]
    return heapq.merge(*streams, key=attrgetter("arrived_ms"))
