"""`argMax(x, v)` passes over rows in which x is NULL, and so tells an older value: questions must not fall for it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files

import pytest

from faultlens.store import Store, open_store
from sinks.migrate import migrate
from slo.dashboards import load_boards

pytest.importorskip("chdb", reason="chDB is not installed (extra `store`)")
pytestmark = pytest.mark.store

# Of the views that put together what several records say of a job or node this is what is wanted: a value that the
# preferred record leaves out is taken from the next one. Questions want the newest row as it is.
_NEWEST = re.compile(r"\barg(?:Max|Min)(?:If)?\(\s*(\w+)\s*,")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with open_store(f"chdb://{tmp_path_factory.mktemp('empty') / 'store'}") as opened:
        migrate(opened)
        yield opened


def questions() -> dict[str, str]:
    found = {
        file.name: file.read_text("utf-8") for file in files("slo.queries").iterdir() if file.name.endswith(".sql")
    }
    return found | {f"{n}: {panel.title}": panel.sql for n, board in load_boards().items() for panel in board.panels}


def passed_over(sql: str, nullable: dict[str, set[str]]) -> set[str]:
    """Return the columns that can be NULL in a table that the question names, and whose newest value it asks for."""
    columns = set().union(*(names for table, names in nullable.items() if re.search(rf"\b{table}\b", sql)))
    return {name for name in _NEWEST.findall(sql) if name in columns}


def test_no_question_asks_for_the_newest_value_of_what_can_be_missing(store: Store) -> None:
    rows = store.query(
        "SELECT table, groupArray(name) AS names FROM system.columns "
        "WHERE database = currentDatabase() AND startsWith(type, 'Nullable') GROUP BY table"
    )
    nullable = {row["table"]: set(row["names"]) for row in rows}
    assert "attained" in nullable["slo_status"]
    assert passed_over("SELECT argMax(attained, time) FROM slo_status", nullable) == {"attained"}
    assert {name: found for name, sql in questions().items() if (found := passed_over(sql, nullable))} == {}


def test_the_newest_value_is_missing_where_it_is_and_not_an_older_one(store: Store) -> None:
    values = "(SELECT * FROM values('at UInt8, x Nullable(UInt8)', (1, 5), (2, NULL)))"
    row = store.query(f"SELECT argMax(x, at) AS wrong, argMax(tuple(x), at).1 AS right FROM {values}")[0]  # noqa: S608
    assert (row["wrong"], row["right"]) == (5, None)
