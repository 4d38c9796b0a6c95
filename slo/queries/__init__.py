"""The questions that the answers are made of: one SQL file each, with named parameters."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final, Protocol

# From the epoch to the year 2200: everything.
EVER_MS: Final = (0, 7_258_118_400_000)


class Reader(Protocol):
    """What can be asked; `faultlens.store.Store` is one."""

    def query(self, sql: str, params: Mapping[str, object] | None = None) -> list[dict[str, Any]]:
        """Return the rows that the SQL selects, as dicts by column."""


@cache
def sql(name: str) -> str:
    """Return the text of `slo/queries/<name>.sql`."""
    return files("slo.queries").joinpath(f"{name}.sql").read_text(encoding="utf-8")


@cache
def _names() -> dict[str, str]:
    found = (file.name for file in files("slo.queries").iterdir() if file.name.endswith(".sql"))
    return {sql(name.removesuffix(".sql")): name.removesuffix(".sql") for name in found}


def name_of(text: str) -> str:
    """Return the name of a question by its text."""
    return _names()[text]


def ask(reader: Reader, name: str, params: Mapping[str, object]) -> list[dict[str, Any]]:
    """Return the rows of a question with its parameters."""
    return reader.query(sql(name), params)
