"""Structured logs of the long-running commands: one line an event on standard error, for people or machines."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import MutableMapping
from typing import Any, Final, Literal, TextIO

import structlog

LogFormat = Literal["auto", "console", "json"]
MASK: Final = "**********"
# Nothing of ours passes secrets to a log. Should something do so once, it is masked by its name.
_SECRET: Final = re.compile(r"password|passwd|secret|token|authorization|api_?key", re.IGNORECASE)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")

Fields = MutableMapping[str, Any]


def configure(chosen: LogFormat = "auto", *, level: int = logging.INFO, stream: TextIO | None = None) -> None:
    """Let `structlog.get_logger` write to standard error; `auto` is for people on a terminal, JSON elsewhere."""
    out = sys.stderr if stream is None else stream
    for_people = chosen == "console" or (chosen == "auto" and out.isatty())
    renderer: Any = (
        structlog.dev.ConsoleRenderer(colors=out.isatty(), exception_formatter=structlog.dev.plain_traceback)
        if for_people
        else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
            _masked,
            *((_printable,) if for_people else (structlog.processors.format_exc_info,)),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(out),
        cache_logger_on_first_use=False,
    )


class _Forwarded(logging.Handler):
    """Hands on what libraries log by the standard library's means."""

    def emit(self, record: logging.LogRecord) -> None:
        """Log the record with the name of who wrote it."""
        log = structlog.get_logger()
        log.log(record.levelno, record.getMessage(), by=record.name, exc_info=record.exc_info or None)


def forward_libraries(level: int = logging.WARNING) -> None:
    """Let what libraries log at `level` or above go the same way as our own."""
    logging.basicConfig(handlers=[_Forwarded()], level=level, force=True)


def _masked(_: Any, __: str, fields: Fields) -> Fields:
    for name in fields:
        if _SECRET.search(name):
            fields[name] = MASK
    return fields


def _printable(_: Any, __: str, fields: Fields) -> Fields:
    """Escape control characters: what others wrote must not speak to a terminal. JSON does so by itself."""
    for name, value in fields.items():
        if isinstance(value, str):
            fields[name] = _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", value)
    return fields
