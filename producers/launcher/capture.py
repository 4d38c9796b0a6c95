"""The first and the last of what a process printed, in bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

HEAD_BYTES: Final = 1 << 10
TAIL_BYTES: Final = 64 << 10
# Contract, "Sizes": producers cut the middle, and keep first and last lines.
LOG_TAIL_BYTES: Final = 8 << 10
# So much of the end is cleaned before it is cut: the longest key that begins before what is kept ends within it.
CLEANED_BYTES: Final = 2 * LOG_TAIL_BYTES
_CUT: Final = "\n[… {count:,} bytes …]\n"


class Capture:
    """Keeps what it is fed of: the first `HEAD_BYTES` and the last `TAIL_BYTES`."""

    def __init__(self) -> None:
        self._head = b""
        self._chunks: deque[bytes] = deque()
        self._kept = 0
        self.total = 0

    def feed(self, data: bytes) -> None:
        """Take more output."""
        self.total += len(data)
        room = HEAD_BYTES - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if len(data) > TAIL_BYTES:
            data = data[-TAIL_BYTES:]
        if not data:
            return
        self._chunks.append(data)
        self._kept += len(data)
        while self._kept - len(self._chunks[0]) >= TAIL_BYTES:
            self._kept -= len(self._chunks.popleft())

    def text(self, limit: int = LOG_TAIL_BYTES, *, cleaned: Callable[[str], str] = str) -> str:
        """Return what was printed, at most `limit` bytes of it: of more the middle is cut, at ends of lines.

        `cleaned` is what becomes of a text before it is cut.
        """
        tail = b"".join(self._chunks)
        whole = cleaned(_text(self._head + tail)) if self.total <= limit else ""
        if self.total <= limit and len(whole.encode()) <= limit:
            return whole
        mark_bytes = 40
        head = self._head[: self._head.rfind(b"\n") + 1] or self._head[:200]
        head = cleaned(_text(head)).encode()[:HEAD_BYTES]
        room = limit - len(head) - mark_bytes
        last = cleaned(_text(tail[-CLEANED_BYTES:])).encode()[-room:]
        begin = last.find(b"\n") + 1
        last = last[begin:] if 0 < begin < len(last) else last
        cut = _CUT.format(count=max(0, self.total - len(head) - len(last)))
        return _whole(head).rstrip("\n") + cut + _whole(last)


def _whole(data: bytes) -> str:
    """Return the text, without characters that were cut in two."""
    return data.decode("utf-8", "ignore")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace").replace("\0", "\N{SYMBOL FOR NULL}")
