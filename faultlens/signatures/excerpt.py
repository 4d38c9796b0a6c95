"""The part of a log that can hold the reason: its end, and its beginning where the end says nothing."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import BinaryIO, Final

import msgspec

HEAD_BYTES: Final = 256 << 10
TAIL_BYTES: Final = 4 << 20
CHUNK_BYTES: Final = 64 << 10
# The last episode is looked for from the end, in ever larger parts; the teardown of a node's ranks fits the first.
WINDOWS_BYTES: Final = (64 << 10, 512 << 10, TAIL_BYTES)


class Part(msgspec.Struct, frozen=True):
    """Consecutive lines of a log; `first_line` is the number of the first one, from 1."""

    text: str
    first_line: int


class Excerpt(msgspec.Struct, frozen=True):
    """What was kept of a log: its first bytes and its last ones, cut at lines."""

    head: Part
    tail: Part
    bytes_read: int
    bytes_skipped: int

    def parts(self) -> Iterator[Part]:
        """The parts to read for the reason, best first, until one supports an answer."""
        data = self.tail.text.encode()
        for size in WINDOWS_BYTES:
            yield _last_lines(data, size, self.tail.first_line)
            if size >= len(data):
                break
        if self.bytes_skipped:
            yield self.head


def read_excerpt(stream: BinaryIO) -> Excerpt:
    """Reads the stream to its end, and keeps at most `HEAD_BYTES` and `TAIL_BYTES` and a chunk of it."""
    head = stream.read(HEAD_BYTES)
    chunks: deque[bytes] = deque()
    kept = skipped = skipped_lines = 0
    while chunk := stream.read(CHUNK_BYTES):
        chunks.append(chunk)
        kept += len(chunk)
        while kept - len(chunks[0]) >= TAIL_BYTES:
            gone = chunks.popleft()
            kept -= len(gone)
            skipped += len(gone)
            skipped_lines += gone.count(b"\n")
    tail = b"".join(chunks)
    if not skipped:
        return _whole(head + tail)
    first_line = head.count(b"\n") + skipped_lines + 1
    return Excerpt(
        head=Part(_text(head[: head.rfind(b"\n") + 1] or head), 1),
        tail=_last_lines(tail, TAIL_BYTES, first_line),
        bytes_read=len(head) + skipped + kept,
        bytes_skipped=skipped,
    )


def _whole(data: bytes) -> Excerpt:
    part = Part(_text(data), 1)
    return Excerpt(head=part, tail=part, bytes_read=len(data), bytes_skipped=0)


def _last_lines(data: bytes, size: int, first_line: int) -> Part:
    """The whole lines among the last `size` bytes; the cut-off last one alone if there is no other."""
    if len(data) <= size:
        return Part(_text(data), first_line)
    begin = data.find(b"\n", len(data) - size) + 1
    if not 0 < begin < len(data):
        begin = len(data) - size
    return Part(_text(data[begin:]), first_line + data.count(b"\n", 0, begin))


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
