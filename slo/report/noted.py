"""A reader that notes what it is asked, so that every figure can be followed to its question."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slo.queries import Reader, name_of
from slo.report.data import Source


class Noted:
    """Passes questions on, and keeps each once with what it was first asked with."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._asked: dict[str, Source] = {}

    def query(self, sql: str, params: Mapping[str, object] | None = None) -> list[dict[str, Any]]:
        """Return the rows of a question."""
        name = name_of(sql)
        if name not in self._asked:
            self._asked[name] = Source(name, sql, {key: str(value) for key, value in (params or {}).items()})
        return self._reader.query(sql, params)

    def sources(self) -> tuple[Source, ...]:
        """Return what was asked, by name."""
        return tuple(self._asked[name] for name in sorted(self._asked))
