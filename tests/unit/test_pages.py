"""The status page's answers: what others wrote is only ever text, and nothing is claimed that is not known."""

from __future__ import annotations

from collections.abc import Mapping
from html.parser import HTMLParser
from typing import Any

import pytest

from faultlens.clock import parse_moment
from faultlens.objectives import load_objectives
from slo.intervals import Interval
from slo.pages import Asked, Manners, Page, answer, grids, message_page, style
from slo.report.assemble import nodes, outages

NOW_MS = parse_moment("2026-11-23T04:12:07Z")
EVIL = "<script>alert(1)</script>\x1b[31m\u202e"
PROMISED = load_objectives()

FAILURE: dict[str, Any] = {
    "job_id": EVIL, "attempt": 1, "loss": 0, "class": "hardware", "code": "gpu.off_bus", "summary": EVIL,
    "basis": "supported", "status": "final", "rule": "r", "node": EVIL, "device_index": 3, "lost_gpu_seconds": 7200.0,
    "ended_ms": NOW_MS, "user": EVIL, "team": EVIL,
}  # fmt: skip


class Store:
    """Answers by a word of the question."""

    def __init__(self, **rows: list[dict[str, Any]]) -> None:
        self.rows = rows

    def query(self, sql: str, params: Mapping[str, object] | None = None) -> list[dict[str, Any]]:
        return next((rows for word, rows in self.rows.items() if f"-- {word.replace('_', ' ')}" in sql.lower()), [])


def store(**rows: list[dict[str, Any]]) -> Store:
    known = {"from_ms": 0, "to_ms": NOW_MS, "known": 1, "clusters": ["c1", EVIL]}
    return Store(from_when=[known], **rows)


class Tags(HTMLParser):
    """Collects elements, attributes and text."""

    def __init__(self, page: Page) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.hrefs: list[str] = []
        self.feed(page.html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.hrefs += [value for name, value in attrs if name in ("href", "src", "action") and value]


def asked(path: str, **params: str) -> Asked:
    return Asked(path, params)


@pytest.mark.parametrize("path", ["/", "/failures", "/search", "/objectives/job_success"])
def test_what_others_wrote_is_text_and_leads_nowhere_else(path: str) -> None:
    found = [{"kind": "job", "name": EVIL}, {"kind": "node", "name": EVIL}]
    reader = store(the_newest_verdicts=[FAILURE], jobs_and_nodes=found)
    page = answer(reader, asked(path, q="x", code=EVIL), PROMISED)
    seen = Tags(page)
    assert page.status == 200
    assert "script" not in seen.tags
    assert not {"\x1b", "\u202e"} & set(page.html)
    assert all(href.startswith(("/", "data:,")) for href in seen.hrefs)


def test_a_failure_leads_to_its_job_its_node_and_its_like() -> None:
    page = answer(store(the_newest_verdicts=[FAILURE | {"job_id": "a/b", "node": "n1"}]), asked("/failures"), PROMISED)
    hrefs = Tags(page).hrefs
    wanted = ["/job?id=a%2Fb&attempt=1", "/failures?class=hardware", "/failures?code=gpu.off_bus", "/node?name=n1"]
    assert [href for href in wanted if href not in hrefs] == []
    assert "GPU lost from the bus (supported)" in page.html


def test_an_exact_name_is_gone_to_at_once() -> None:
    rows = [{"kind": "node", "name": "n1"}, {"kind": "node", "name": "n11"}]
    page = answer(store(jobs_and_nodes=rows), asked("/search", q="n1"), PROMISED)
    assert (page.status, page.location) == (303, "/node?name=n1")


def test_an_empty_store_and_an_unknown_page_say_so() -> None:
    assert "The store is empty" in answer(Store(from_when=[{"known": 0}]), asked("/"), PROMISED).html
    assert answer(store(), asked("/.env"), PROMISED).status == 404
    assert answer(store(), asked("/node", name="n1"), PROMISED).status == 404


def test_nothing_counted_is_neither_met_nor_missed() -> None:
    page = answer(store(), asked("/"), PROMISED)
    assert page.html.count('<li class="no data">') == len(PROMISED.by_name)
    assert "nan" not in page.html.lower().replace("finan", "")


def test_a_word_that_is_too_long_is_cut() -> None:
    assert len(Asked("/", {"q": "x" * 10_000}).word("q")) == 300


def test_the_style_and_messages_need_no_store() -> None:
    assert "--accent" in style()
    assert "a&lt;b" in message_page(503, "Later", "a<b").html
    assert Manners().log_tails is False


def test_states_of_namesakes_say_of_which_cluster_they_are() -> None:
    state = {
        "state": "down", "planned": False, "cause": "", "gpus_total": 8, "gpus_allocatable": 0,
        "since_ms": 1_795_000_000_000, "until_ms": None,
    }  # fmt: skip
    alone, shared = (grids.states([state | {"cluster": name} for name in names], 5) for names in (["c1"], ["c1", "c2"]))
    assert [row[0].text for row in alone.rows] == ["2026-11-18 11:06 UTC"]
    assert [row[0].text for row in shared.rows] == ["2026-11-18 11:06 UTC (c1)", "2026-11-18 11:06 UTC (c2)"]


def test_outages_of_namesakes_are_outages_of_two_nodes() -> None:
    rows = [{"cluster": name, "node": "n1", "from_ms": begins, "to_ms": 20} for name, begins in (("c1", 0), ("c2", 10))]
    found = outages(rows)
    assert found == {("c1", "n1"): [Interval(0, 20)], ("c2", "n1"): [Interval(10, 20)]}
    (line,), _ = nodes({"charged": [], "faults": []}, found)
    assert (line.node, line.down_ms) == ("n1", 30)
