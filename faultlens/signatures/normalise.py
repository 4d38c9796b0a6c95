"""Brings a log into the form that signatures are written for."""

from __future__ import annotations

import json
import re
from typing import Final

# Colours, cursor moves and window titles: what a program writes for a terminal and not for a reader.
_TERMINAL_SEQUENCE: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")


def normalise(text: str) -> str:
    """The text without terminal sequences; a torchelastic error file becomes the traceback it holds."""
    if "\x1b" in text:
        text = _TERMINAL_SEQUENCE.sub("", text)
    if "py_callstack" in text and text.lstrip().startswith("{"):
        return _traceback_of_error_file(text) or text
    return text


def _traceback_of_error_file(text: str) -> str | None:
    """The call stack and message of a `TORCHELASTIC_ERROR_FILE`, or nothing if it is none."""
    try:
        document = json.loads(text)
        message = document["message"]
        if isinstance(message, str):
            return message
        return f"{message['extraInfo']['py_callstack']}\n{message['message']}"
    except (ValueError, KeyError, TypeError):
        return None
