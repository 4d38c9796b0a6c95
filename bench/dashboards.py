"""How long each panel takes over its default week, on 90 days of 1,000 nodes: `python bench/dashboards.py`."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from faultlens.clock import DAY_MS, SECOND_MS, parse_moment
from faultlens.store import open_store
from sinks.migrate import migrate
from slo.dashboards import load_boards

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.filled import fill
from tests.clickhouse.grafana import expanded

NODES, DAYS, SHOWN_DAYS = 1_000, 90, 7
END_MS = parse_moment("2026-11-30T00:00:00Z")
ROUNDS = 3
# What Grafana asks for on a panel of usual width over a week.
INTERVAL_S = 3_600


def main() -> None:
    """Fill a store, ask every panel a few times, and print the best."""
    with tempfile.TemporaryDirectory() as directory, open_store(f"chdb://{directory}/store") as store:
        migrate(store)
        began = time.perf_counter()
        jobs = fill(store, nodes=NODES, days=DAYS, end_ms=END_MS)
        print(f"{jobs:,} jobs of {NODES:,} nodes in {DAYS} days, filled in {time.perf_counter() - began:.0f} s")
        for name, board in load_boards().items():
            texts = {text: [value] for text, value in board.texts.items()}
            variables = {"cluster": ["c1"], **texts} | ({"job": ["job-7"]} if "job" in texts else {})
            for panel in board.panels:
                if panel.sql:
                    begins_s = (END_MS - SHOWN_DAYS * DAY_MS) // SECOND_MS
                    window = {"from_s": begins_s, "to_s": END_MS // SECOND_MS, "interval_s": INTERVAL_S}
                    sql = expanded(panel.sql, **window, variables=variables)
                    took = [_timed(lambda sql=sql: store.query(sql)) for _ in range(ROUNDS)]
                    print(f"{min(took):6.2f} s  {name}: {panel.title}")


def _timed(do) -> float:
    began = time.perf_counter()
    do()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
