"""Rows of a real store as they were given to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from faultlens.clock import ms_of
from faultlens.store import Store


def plain(value: Any) -> Any:
    """Return a value as it was given: times as milliseconds, sequences as tuples."""
    if isinstance(value, datetime):
        return ms_of(value)
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return tuple(tuple(plain(item).values()) if isinstance(item, dict) else plain(item) for item in value)
    return value


def rows_in(store: Store, table: str, columns: Sequence[str]) -> list[Mapping[str, object]]:
    """Return the table's rows, once each, in the order of their text."""
    found = store.query(f"SELECT {', '.join(columns)} FROM {table} FINAL")  # noqa: S608 - names of ours
    return sorted(({name: plain(value) for name, value in row.items()} for row in found), key=repr)
