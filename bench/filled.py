"""A store filled with the answers of a large fleet over months, by the engine itself: deterministic, in seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from faultlens.clock import DAY_MS
from faultlens.store import Store
from sinks.hours import add_up

JOBS_PER_NODE_AND_DAY: Final = 5
STATEMENTS: Final = Path(__file__).with_suffix(".sql")


def fill(store: Store, *, nodes: int, days: int, end_ms: int) -> int:
    """Fill a store whose tables are there and empty; return how many jobs there are."""
    jobs = nodes * days * JOBS_PER_NODE_AND_DAY
    params = {
        "nodes": nodes,
        "days": days,
        "jobs": jobs,
        "start": end_ms - days * DAY_MS,
        "end": end_ms,
        "span": days * DAY_MS,
    }
    for statement in STATEMENTS.read_text("utf-8").split(";\n"):
        if statement.strip():
            # The driver takes `%` for its own where a statement names no parameter.
            store.command(statement, params if "{" in statement else None)
    add_up(store)
    return jobs
