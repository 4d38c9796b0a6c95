"""What a report says of change: movers, what is new, what was done, what is disputed, and what to do next."""

from dataclasses import replace

import pytest

from faultlens.clock import HOUR_MS, MINUTE_MS
from slo.labels import Label
from slo.report import view
from slo.report.changes import disputes, movers, news, remedies
from slo.report.data import Ledger, Price, Quality, Source, Totals, WeekLine
from slo.report.html import render_html
from slo.report.markdown import render_markdown
from slo.report.plain import to_plain
from slo.report.telling_changes import actions, dispute_lines, news_lines
from slo.scoring import Key, Verdict
from tests.unit.test_report import MONDAY_MS, a_report, cause, empty_report, quiet_report

RESET = {
    "action": "reset_device", "mode": "live", "commands": 5, "succeeded": 3, "failed": 1, "refused": 1, "expired": 0,
    "relapsed": 2, "median_s": 90.0,
}  # fmt: skip
EVIL = "<b>x</b>\x1b"


def label(code: str, rule: str = "a_rule", *, cause_class: str = "user") -> Label:
    key = Key("j", 1)
    own = Verdict(key, "hardware", "gpu.off_bus", "established", 0.9, rule, settled=True, first_said_ms=0)
    return Label(key, cause_class, code, "", "jo", "", 0, 0, own, in_force=True)


def test_the_causes_that_moved_most_come_first_and_those_that_are_gone_are_there() -> None:
    now = [cause("gpu.off_bus", 3, 40), cause("app.exception", 4, 1), cause("driver.hang", 1, 2)]
    then = [cause("gpu.off_bus", 1, 10), cause("platform.registry", 9, 35), cause("driver.hang", 1, 2)]
    found = movers(now, then)
    assert [(m.cause.code, m.failures, m.gpu_ms // HOUR_MS) for m in found] == [
        ("platform.registry", -9, -35),
        ("gpu.off_bus", 2, 30),
        ("app.exception", 4, 1),
    ]


def test_what_is_new_is_told_and_what_others_wrote_is_only_text() -> None:
    codes = [{"kind": "xid", "code": EVIL, "faults": 7, "nodes": 2}]
    lemons = [{"node": EVIL, "failures": 2, "causes": ["gpu.off_bus"]}]
    rollouts = [{"what": "driver", "version": EVIL, "phase": "ended", "began_ms": MONDAY_MS}]
    lines = list(news_lines(news(codes, lemons, rollouts)))
    assert "7 faults on 2 nodes" in lines[0]
    assert "A roll-out began on Mon 16 Nov: driver" in lines[2]
    data = replace(a_report(), news=news(codes, lemons, rollouts))
    assert "<b>x" not in render_html(data)
    assert "\x1b" not in render_html(data) + render_markdown(data)


def test_a_rule_that_was_overruled_is_named() -> None:
    found = disputes([label("app.config"), label("gpu.off_bus", cause_class="hardware"), label("app.data", "other")])
    assert (found.labels, found.overruled) == (3, 2)
    assert "a_rule/established was overruled 1 of 2 times that somebody looked." in list(dispute_lines(found))
    assert list(dispute_lines(disputes([]))) == ["Nobody disputed a verdict in this period."]


def test_what_to_do_next_has_its_reason() -> None:
    by_basis = {("user", "assumed"): 5, ("hardware", "established"): 5}
    data = replace(a_report(), remedies=remedies([RESET]), quality=Quality(by_basis))
    assert actions(data) == [
        "Have GPU 1 of node-7 looked at: 3 failures, 40.0 GPU-hours lost (gpu.off_bus).",
        "Work on GPU lost from the bus: it cost most of what is not the users' own, 40.2 GPU-hours.",
        "Save more often: 10.0 % of what jobs held was work lost since their last checkpoint.",
        "Give faultlens more to see: 50 % of verdicts rest on a default. Kernel logs and agents tell most.",
        "Look at what reset device is for: 2 of 3 that succeeded were in vain (it takes 1 min 30 s).",
    ]
    assert actions(empty_report()) == []
    assert actions(quiet_report()) == []


def test_weeks_are_a_line_each_and_nothing_is_not_a_number() -> None:
    weeks = (
        WeekLine(MONDAY_MS - 7 * 24 * HOUR_MS, Totals(0, {}, Ledger({})), {"job_success": None, "goodput": None}),
        WeekLine(MONDAY_MS, a_report().totals, {"job_success": 0.9712, "goodput": 0.9}),
    )
    table = view.weeks_table(replace(a_report(), weeks=weeks))
    assert table is not None
    assert [" ".join(row) for row in table.rows] == [
        "Mon 9 Nov 0 0 0 0 0 \N{EN DASH} 0.0 \N{EN DASH}",
        "Mon 16 Nov 120 3 0 2 4 90.0 % 100.0 97.1 %",
    ]
    assert view.weeks_table(replace(a_report(), weeks=weeks[1:])) is None


@pytest.mark.parametrize("price", [None, Price(2.5, "EUR")])
def test_costs_are_told_where_a_gpu_hour_has_a_price(price: Price | None) -> None:
    table = view.causes_table(replace(a_report(), price=price))
    assert ("Cost" in table.heads) is (price is not None)
    if price is not None:
        assert table.rows[0][-1] == "26 EUR"
        assert table.foot[-1] == "250 EUR"


def test_every_section_leads_to_the_questions_that_its_figures_answer() -> None:
    sources = tuple(Source(name, f"SELECT '{EVIL}'", {"from": "1"}) for name in ("attempts", "failures", "ledger"))
    page = render_html(replace(a_report(), sources=sources))
    hrefs = {part.partition('"')[0] for part in page.split('href="#query-')[1:]}
    assert hrefs == {"attempts", "failures", "ledger"}
    assert [f'id="query-{name}"' in page for name in hrefs] == [True] * 3


def test_commands_are_told_with_how_many_were_in_vain() -> None:
    shadow = RESET | {"action": "drain", "mode": "shadow", "median_s": 0.0}
    table = view.remedies_table(replace(a_report(), remedies=remedies([RESET, shadow])))
    assert table is not None
    assert table.rows[0] == ("reset device", "5", "3", "1", "1", "0", "2", "1 min 30 s")
    assert table.rows[1][0] == "drain (shadow)"
    assert remedies([RESET])[0].median_ms == 90_000 == 1.5 * MINUTE_MS


def test_the_machine_readable_form_has_all_of_it() -> None:
    plain = to_plain(replace(a_report(), remedies=remedies([RESET]), price=Price(2.5, "EUR")))
    assert {"weeks", "movers", "news", "remedies", "disputes", "price", "sources", "actions"} <= plain.keys()
