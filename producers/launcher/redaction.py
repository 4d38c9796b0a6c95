"""Secrets in what a job printed, replaced before it leaves the node."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from faultlens.yaml_lines import compiles, load_model

REPLACED: Final = "[redacted]"
_FILE: Final = Path(__file__).parent / "redaction.yaml"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Entry(_Strict):
    """A pattern of secrets and an example that it replaces something of."""

    name: str
    pattern: Annotated[str, Field(min_length=3, max_length=400), AfterValidator(compiles)]
    example: str


class RedactionFile(_Strict):
    """`redaction.yaml`, or a site's own beside it."""

    version: Literal[1]
    patterns: tuple[Entry, ...]


@cache
def load_redaction(path: Path = _FILE) -> RedactionFile:
    """Return the patterns; ConfigurationError names file, line and what is wrong."""
    return load_model(path, RedactionFile, "the patterns of secrets cannot be used:")


@cache
def _patterns() -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(entry.pattern) for entry in load_redaction().patterns)


def redacted(text: str) -> str:
    """Return the text without secrets, as far as they look like any that is known."""
    for pattern in _patterns():
        text = pattern.sub(_replaced, text)
    return text


def _replaced(found: re.Match[str]) -> str:
    whole = found.group()
    if "secret" not in found.re.groupindex:
        return REPLACED
    start, end = (place - found.start() for place in found.span("secret"))
    return whole[:start] + REPLACED + whole[end:]
