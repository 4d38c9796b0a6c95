"""What others wrote, on its way to somebody else: of bounded size, and in one line where a line is meant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

ROWS: Final = 50
_ITEMS: Final = 512
_LINE_CHARS: Final = 400
_TEXT_CHARS: Final = 4_000
_DEPTH: Final = 6
_CUT: Final = " … cut"


def one_line(value: object, *, limit: int = _LINE_CHARS) -> str:
    """Return text in one line, without characters that only a terminal, a mail or a scheduler would see."""
    text = " ".join(str(value)[: 2 * limit].split())
    is_cut = len(text) > limit or len(str(value)) > 2 * limit
    return "".join(c if c.isprintable() else "?" for c in text[:limit]) + (_CUT if is_cut else "")


def bounded(value: object, *, depth: int = _DEPTH) -> Any:
    """Return plain values of bounded size: long texts and lists are cut, and what is no text in UTF-8 is replaced.

    Lists keep their first 512 values, texts 4,000 characters, and what lies six deep is told as a text.
    """
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping) and depth:
        rows = list(value.items())[:_ITEMS]
        return {bounded(str(key)): bounded(inner, depth=depth - 1) for key, inner in rows}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray) and depth:
        return [bounded(inner, depth=depth - 1) for inner in value[:_ITEMS]]
    text = value.decode("utf-8", "replace") if isinstance(value, bytes | bytearray) else str(value)
    whole = text[:_TEXT_CHARS].encode("utf-8", "replace").decode()
    return whole + _CUT if len(text) > _TEXT_CHARS else whole
