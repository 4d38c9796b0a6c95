"""Fleets at the edges: nothing runs, everything fails, a hundred clusters. All that is shown of them can be read."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from faultlens.cli import main
from faultlens.clock import HOUR_MS, MINUTE_MS, parse_moment
from faultlens.codec import Event, encode, event_of
from faultlens.events import JobAllocated, JobEnded, JobStarted, JobSubmitted, NodeHealth, RankExited, Slot
from faultlens.objectives import load_objectives
from faultlens.store import Store, open_store
from sinks.migrate import migrate
from slo.pages import Asked, answer
from tests.clickhouse.grafana import shown as panels_of

pytest.importorskip("chdb", reason="chDB is not installed (extra `store`)")
pytestmark = pytest.mark.store

MON = parse_moment("2026-11-23T00:00:00Z")
# What a division by nothing, or a value that nobody looked at, would leave behind. `null` is JSON's own.
WRONG = re.compile(r"\b(nan|inf|infinity|none %|None)\b")


def node(cluster: str, name: str) -> Iterator[Event]:
    for hour in range(25):
        health = NodeHealth(name, cluster, 3_600.0, 8, 8, (), boot_id="b")
        yield event_of(health, source=f"agent/{name}", id_=f"{name}-{hour}", time_ms=MON + hour * HOUR_MS)


def job(cluster: str, name: str, on: str, *, fails: bool) -> Iterator[Event]:
    told = [
        (0, "scheduler/s", JobSubmitted(name, cluster, "training", 8, 1)),
        (1, "scheduler/s", JobAllocated(name, 1, cluster, (Slot(on, tuple(range(8))),))),
        (2, "launcher/l", JobStarted(name, 1)),
        (90, "scheduler/s", JobEnded(name, 1, "failed" if fails else "succeeded")),
    ]
    if fails:
        told.append((89, "launcher/l", RankExited(name, 1, 0, on, exit_code=1, log_tail="Segmentation fault\n")))
    for minute, source, data in told:
        yield event_of(data, source=source, id_=f"{name}-{minute}", time_ms=MON + minute * MINUTE_MS)


def quiet() -> Iterator[Event]:
    yield from node("c1", "n1")


def broken() -> Iterator[Event]:
    yield from node("c1", "n1")
    yield from job("c1", "j1", "n1", fails=True)


def many() -> Iterator[Event]:
    for number in range(100):
        cluster, name = f"cluster-{number:02}", f"n-{number:02}"
        yield from node(cluster, name)
        yield from job(cluster, f"j-{number}", name, fails=False)


def pages(store: Store) -> list[Asked]:
    """Return every kind of page, of the first cluster, node and job that there are."""
    first = store.query("SELECT min(node) AS node, min(cluster) AS cluster FROM node_states")[0]
    jobs = store.query("SELECT job_id FROM jobs ORDER BY job_id LIMIT 1")
    return [
        Asked("/"),
        Asked("/", {"cluster": first["cluster"]}),
        Asked("/objectives/job_success"),
        Asked("/failures"),
        Asked("/node", {"name": first["node"]}),
        *(Asked("/job", {"id": row["job_id"]}) for row in jobs),
        Asked("/search", {"q": "n"}),
    ]


def finite(panels: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """Return the panels as they are, after a look at every number in them: text is searched, None is a gap."""
    for title, rows in panels.items():
        numbers = [value for row in rows for value in row.values() if isinstance(value, float)]
        assert all(map(math.isfinite, numbers)), title
    return {
        title: [{name: "" if value is None else value for name, value in row.items()} for row in rows]
        for title, rows in panels.items()
    }


def called(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return int(ended.value.code or 0)


@pytest.mark.parametrize(
    ("fleet", "summary"),
    [
        (quiet, "No attempt failed"),
        (broken, "failure"),
        (many, "No attempt failed"),
    ],
)
def test_what_is_shown_of_an_odd_fleet_can_be_read(
    fleet: object, summary: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events = sorted(fleet(), key=lambda event: event.time_ms)  # type: ignore[operator]
    (tmp_path / "events.jsonl").write_bytes(b"".join(encode(event) + b"\n" for event in events))
    store = f"chdb://{tmp_path / 'store'}"
    assert called("replay", str(tmp_path / "events.jsonl"), "--store", store) == 0
    capsys.readouterr()
    for kind in ("html", "md", "json"):
        assert called("report", "--store", store, "--out", str(tmp_path / f"report.{kind}")) == 0
    assert called("slo", "--store", store) in (0, 1)
    shown = {kind: (tmp_path / f"report.{kind}").read_text("utf-8") for kind in ("html", "md", "json")}
    shown["slo"] = capsys.readouterr().out
    with open_store(store) as opened:
        for asked in pages(opened):
            shown[str(asked)] = answer(opened, asked, load_objectives()).html
        clusters = [row["cluster"] for row in opened.query("SELECT DISTINCT cluster FROM node_states")]
        shown["panels"] = str(
            finite(panels_of(opened, clusters=clusters, from_s=MON // 1_000, to_s=MON // 1_000 + 90_000))
        )
        before = panels_of(opened, clusters=clusters, from_s=MON // 1_000 - 7_200, to_s=MON // 1_000 - 3_600)
        shown["panels of an hour of which nothing is known"] = str(finite(before))
    assert {kind: found[0] for kind, text in shown.items() if (found := WRONG.search(text))} == {}
    assert summary in shown["html"]
    assert "Job success" in shown[str(Asked("/"))]


def test_a_store_in_which_nothing_is_shows_dashboards_without_numbers_that_are_none(tmp_path: Path) -> None:
    with open_store(f"chdb://{tmp_path / 'store'}") as store:
        migrate(store)
        panels = finite(panels_of(store, clusters=["c1"], from_s=MON // 1_000, to_s=MON // 1_000 + 3_600))
    assert panels["fleet: Failures"] == [{"failures": 0}]
    assert panels["goodput: Goodput"] == [{"goodput": ""}]
