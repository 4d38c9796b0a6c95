"""What Grafana makes of a panel's question before it asks: macros and variables, as its ClickHouse plugin has them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from faultlens.store import Store
from slo.dashboards import load_boards


def expanded(sql: str, *, from_s: int, to_s: int, interval_s: int, variables: Mapping[str, Sequence[str]]) -> str:
    """Return the SQL that the store is asked."""
    begins, ends = f"toDateTime({from_s})", f"toDateTime({to_s})"
    sql = re.sub(r"\$__timeFilter\(([^()]+)\)", rf"(\1 >= {begins} AND \1 <= {ends})", sql)
    sql = re.sub(
        r"\$__timeInterval\(([^()]+)\)", rf"toStartOfInterval(toDateTime(\1), INTERVAL {interval_s} second)", sql
    )
    sql = sql.replace("$__fromTime", begins).replace("$__toTime", ends)
    sql = re.sub(r"\$\{(\w+):singlequote\}", lambda found: _quoted(variables[found[1]]), sql)
    if left := re.search(r"\$\w*\{?\w+", sql):
        raise AssertionError(f"{left[0]} is neither a macro nor a variable of Grafana's")
    return sql


def shown(store: Store, *, clusters: Sequence[str], from_s: int, to_s: int) -> dict[str, list[dict[str, Any]]]:
    """Return what every panel that asks the store shows of a time, by `board: title`."""
    found = {}
    for name, board in load_boards().items():
        variables = {"cluster": clusters, **{text: [value] for text, value in board.texts.items()}}
        for panel in board.panels:
            if panel.sql:
                sql = expanded(panel.sql, from_s=from_s, to_s=to_s, interval_s=3_600, variables=variables)
                found[f"{name}: {panel.title}"] = store.query(sql)
    return found


def _quoted(values: Sequence[str]) -> str:
    return ",".join("'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'" for value in values)
