"""What each panel takes over its default week, on 90 days of 1,000 nodes: `python bench/dashboards.py`.

Seconds on the wall, and of processors: on a machine that does nothing else, the first is below the second.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from faultlens.clock import DAY_MS, SECOND_MS, parse_moment
from faultlens.store import open_store
from sinks.migrate import migrate
from slo.dashboards import load_boards

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.filled import JOBS_PER_NODE_AND_DAY, fill
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
        jobs = NODES * DAYS * JOBS_PER_NODE_AND_DAY
        wall_s, cpu_s = _timed(lambda: fill(store, nodes=NODES, days=DAYS, end_ms=END_MS))
        print(f"{jobs:,} jobs of {NODES:,} nodes in {DAYS} days, filled in {wall_s:.0f} s ({cpu_s:.0f} s of CPU)")
        for name, board in load_boards().items():
            texts = {text: [value] for text, value in board.texts.items()}
            variables = {"cluster": ["c1"], **texts} | ({"job": ["job-7"]} if "job" in texts else {})
            for panel in board.panels:
                if panel.sql:
                    begins_s = (END_MS - SHOWN_DAYS * DAY_MS) // SECOND_MS
                    ends_s = END_MS // SECOND_MS
                    sql = expanded(panel.sql, from_s=begins_s, to_s=ends_s, interval_s=INTERVAL_S, variables=variables)
                    took = [_timed(partial(store.query, sql)) for _ in range(ROUNDS)]
                    wall_s, cpu_s = min(took)
                    print(f"{wall_s:6.2f} s  {cpu_s:6.2f} s of CPU  {name}: {panel.title}")


def _timed(ask: Callable[[], object]) -> tuple[float, float]:
    began, used = time.perf_counter(), time.process_time()
    ask()
    return time.perf_counter() - began, time.process_time() - used


if __name__ == "__main__":
    main()
