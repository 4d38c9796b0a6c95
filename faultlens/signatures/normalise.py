"""Brings a log into the form that signatures are written for."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

# Colours, cursor moves and window titles: what a program writes for a terminal and not for a reader.
_TERMINAL_SEQUENCE: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")
_BYTE_ORDER_MARK: Final = "\ufeff"

# Where container runtimes and structured loggers keep the line that the program wrote, and what it said of an error.
_MESSAGE_KEYS: Final = ("log", "message", "msg", "textPayload", "MESSAGE", "event")
_ERROR_KEYS: Final = ("error", "err", "exception", "exc_info", "traceback", "stack_trace", "stacktrace", "stack")
_JSON_LINE_CHARS_LIMIT: Final = 256 << 10


class Normalised(msgspec.Struct, frozen=True):
    """A text as signatures read it.

    `log_lines` gives the line of the log that each line of the text comes from, from 1; empty where they are the same.
    """

    text: str
    log_lines: Sequence[int] = ()


def normalise(text: str) -> Normalised:
    """The text without terminal sequences, with lines that end in a newline, and unwrapped where it is JSON.

    A torchelastic error file becomes the traceback it holds, a line of a container or of a structured logger what
    its program wrote, which can be several lines.
    """
    if "\x1b" in text:
        text = _TERMINAL_SEQUENCE.sub("", text)
    text = text.removeprefix(_BYTE_ORDER_MARK).replace("\r\n", "\n")
    if "py_callstack" in text and text.lstrip().startswith("{"):
        return Normalised(_traceback_of_error_file(text) or text)
    if text.startswith("{") or "\n{" in text:
        return _unwrapped(text)
    return Normalised(text)


def _unwrapped(text: str) -> Normalised:
    """Each line, or what it holds if it is a JSON object with a message; without change if none is."""
    lines: list[str] = []
    log_lines: list[int] = []
    for number, line in enumerate(text.split("\n"), start=1):
        held = _held_in(line)
        for part in [line] if held is None else held.split("\n"):
            lines.append(part)
            log_lines.append(number)
    unwrapped = "\n".join(lines)
    return Normalised(text) if unwrapped == text else Normalised(unwrapped, log_lines)


def _held_in(line: str) -> str | None:
    """The message of a JSON object on one line, and the error beside it; nothing if it is none or holds none."""
    if not line.startswith("{") or len(line) > _JSON_LINE_CHARS_LIMIT:
        return None
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        return None
    texts = list(_texts_of(document)) if isinstance(document, dict) else []
    return "\n".join(texts) if texts else None


def _texts_of(document: Mapping[str, object]) -> Iterator[str]:
    message = next((value for key in _MESSAGE_KEYS if isinstance(value := document.get(key), str)), None)
    if message is None:
        return
    yield message.replace("\r\n", "\n").rstrip("\n")
    yield from (value for key in _ERROR_KEYS if isinstance(value := document.get(key), str) and value)


def _traceback_of_error_file(text: str) -> str | None:
    """The call stack and message of a `TORCHELASTIC_ERROR_FILE`, or nothing if it is none."""
    try:
        document = json.loads(text)
        message = document["message"]
        if isinstance(message, str):
            return message
        return f"{message['extraInfo']['py_callstack']}\n{message['message']}"
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
