"""The report as a page, as Markdown and as JSON: complete, self-contained, accessible, and safe with foreign words."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultlens.causes import class_of, title_of
from faultlens.clock import DAY_MS, HOUR_MS, parse_moment
from faultlens.objectives import load_objectives
from slo.report import figures, notes, view
from slo.report.charts import whole_ticks
from slo.report.data import (
    CauseLine,
    DayLine,
    Intake,
    Ledger,
    NodeLine,
    ObjectiveLine,
    Period,
    Quality,
    Reliability,
    ReportData,
    Totals,
)
from slo.report.html import render_html
from slo.report.markdown import render_markdown
from slo.report.plain import render_json
from slo.report.summary import NOTHING_KNOWN, summary

MONDAY_MS = parse_moment("2026-11-16T00:00:00Z")
PERIOD = Period(MONDAY_MS, MONDAY_MS + 7 * DAY_MS, "week 47, 16 to 22 November 2026")
VOID = {"meta", "link", "br", "img", "input", "hr", "rect", "line"}


def cause(code: str, failures: int, hours: float, assumed: int = 0) -> CauseLine:
    return CauseLine(code, class_of(code), title_of(code), failures, assumed, round(hours * HOUR_MS))


def objective(name: str, attained: float | None, left: float | None = None, **more: object) -> ObjectiveLine:
    promise = load_objectives()[name]
    line = ObjectiveLine(
        name=name,
        title=promise.title,
        promise=promise.promise,
        target=promise.target,
        unit=promise.unit,
        good=0,
        total=1000,
        attained=attained,
        before=None,
        rolling=attained,
        budget_left=left,
        spent=None,
        by_class={},
    )
    return replace(line, **more)  # type: ignore[arg-type]


def a_report() -> ReportData:
    """Three failures by hardware, two by the platform, four by users; a tenth of the GPU time lost."""
    overhead = CauseLine("", "overhead", "No failure behind it", 0, 0, 40 * HOUR_MS + 1)
    causes = (
        cause("gpu.off_bus", 3, 40.25),
        cause("platform.registry", 2, 9.5, 1),
        cause("app.exception", 4, 10.25, 2),
    )
    lost = sum(line.gpu_ms for line in (*causes, overhead))
    ledger = Ledger({"productive": 9 * lost, "lost_work": lost - 7, "startup": 7}, queued_ms=3 * HOUR_MS)
    failures = {"hardware": 3, "platform": 2, "user": 4}
    by_basis = {
        ("hardware", "established"): 3,
        ("platform", "supported"): 1,
        ("platform", "assumed"): 1,
        ("user", "established"): 2,
        ("user", "assumed"): 2,
    }
    return ReportData(
        period=PERIOD,
        scope="cluster c1",
        as_of_ms=PERIOD.to_ms,
        objectives=(objective("job_success", 0.9712, -4.76), objective("goodput", 0.9, 0.0)),
        causes=(*causes, overhead),
        days=(DayLine(MONDAY_MS, failures), *(DayLine(MONDAY_MS + d * DAY_MS, {}) for d in range(1, 7))),
        totals=Totals(120, failures, ledger, survived=1),
        before=Totals(100, {"hardware": 5}, Ledger({"productive": 8, "lost_work": 2})),
        nodes=(NodeLine("node-7", "h100", 3, {"1": 2, "4": 1}, 40 * HOUR_MS, 5 * HOUR_MS, 9, ("gpu.off_bus",)),),
        quality=Quality(by_basis, amended=1),
        reliability=Reliability(3, 140 * DAY_MS, 10 * lost, (HOUR_MS, 2 * HOUR_MS, 30 * HOUR_MS)),
        intake=Intake({"not_json": 3}),
        fleet={"allocated": 10 * lost, "idle_healthy": 500 * HOUR_MS},
        catalogs=("nvidia-xid 2026-11",),
    )


def quiet_report() -> ReportData:
    """Nodes reported, nothing failed, no job ran."""
    return replace(
        a_report(),
        objectives=(objective("node_availability", 1.0, 1.0),),
        causes=(),
        days=tuple(DayLine(line.day_ms, {}) for line in a_report().days),
        totals=Totals(0, {}, Ledger({})),
        before=None,
        nodes=(),
        quality=Quality({}),
        reliability=Reliability(0, 140 * DAY_MS, 0),
        intake=Intake({}),
        fleet={},
    )


def empty_report() -> ReportData:
    return replace(quiet_report(), objectives=(), reliability=Reliability(0, 0, 0))


class Page(HTMLParser):
    """The page as a tree of tags that must close in order, with the text of each kind of tag."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts.setdefault(self.open[-1], []).append(data)

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(params=[a_report, quiet_report, empty_report], ids=["full", "quiet", "empty"])
def data(request: pytest.FixtureRequest) -> ReportData:
    made: ReportData = request.param()
    return made


def test_the_page_is_well_formed_and_needs_nothing_from_elsewhere(data: ReportData) -> None:
    text = render_html(data)
    page = Page(text)
    assert page.open == []
    assert not {"script", "link", "img", "iframe"} & {tag for tag, _ in page.tags}
    assert "http" not in re.sub(r'http-equiv="[^"]*"', "", text)
    assert "@import" not in text
    assert "url(" not in text


def test_every_chart_says_in_words_what_it_shows_and_no_id_is_used_twice(data: ReportData) -> None:
    page = Page(render_html(data))
    charts = [attributes for attributes in page.all("svg") if attributes.get("role") == "img"]
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for chart in charts:
        assert set(chart["aria-labelledby"].split()) <= set(ids)
    assert len(page.texts.get("desc", [])) == len(charts)


def test_every_table_has_a_caption_and_heads_for_columns_and_rows(data: ReportData) -> None:
    page = Page(render_html(data))
    assert len(page.all("caption")) == len(page.all("table"))
    assert all(attributes.get("scope") in ("col", "row") for attributes in page.all("th"))


def test_the_page_has_one_title_and_no_gap_between_levels_of_headings(data: ReportData) -> None:
    levels = [int(tag[1]) for tag, _ in Page(render_html(data)).tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_dark_screens_and_printers_have_their_own_colours() -> None:
    text = render_html(a_report())
    assert "@media (prefers-color-scheme: dark)" in text
    assert "@media print" in text


def test_the_same_figures_are_the_same_bytes() -> None:
    assert render_html(a_report()) == render_html(a_report())
    assert render_json(a_report()) == render_json(a_report())


EVIL = '<img src=x onerror=alert(1)>"|`*_'


def evil_report() -> ReportData:
    report = a_report()
    return replace(
        report,
        scope=EVIL,
        nodes=(replace(report.nodes[0], node=EVIL, pool=EVIL, causes=(EVIL,)),),
        causes=(replace(report.causes[0], code=EVIL, title=EVIL),),
        catalogs=(EVIL,),
        intake=Intake({EVIL: 1}),
    )


def test_foreign_words_stay_words_in_the_page() -> None:
    text = render_html(evil_report())
    assert "<img" not in text
    assert "&lt;img src=x onerror=alert(1)&gt;" in text
    assert Page(text).all("img") == []


def test_characters_that_no_page_may_hold_or_that_turn_its_text_around_are_written_out() -> None:
    report = replace(a_report(), scope="c1 \x00\x1b[2J\u202e", catalogs=("\x9b\u2028\r",))
    text = render_html(report)
    assert r"c1 \x00\x1b[2J\u202e" in text
    assert r"\x9b\u2028\x0d" in text
    assert {character for character in text if not character.isprintable()} <= {"\n", "\N{NO-BREAK SPACE}"}


def test_foreign_words_stay_words_in_markdown_and_cannot_break_its_tables() -> None:
    text = render_markdown(evil_report())
    assert "<img" not in text.replace("\\<", "")
    widths: dict[int, set[int]] = {}
    for number, block in enumerate(text.split("\n\n")):
        rows = [line for line in block.splitlines() if line.startswith("|")]
        widths[number] = {len(re.findall(r"(?<!\\)\|", row)) for row in rows}
    assert all(len(columns) <= 1 for columns in widths.values())


def test_the_summary_begins_with_what_was_missed() -> None:
    first, second = summary(a_report())[:2]
    assert first == "1 of 2 objectives was met. Missed: job success (97.1 %, target 99.5 %)."
    assert second.endswith("the error budget is overspent for job success.")


def test_the_summary_says_who_failed_what_it_cost_and_how_sure_that_is() -> None:
    text = "\n".join(summary(a_report()))
    assert "Of 120 attempts that ended, 8 failed, and 1 went on after a loss: 4 to users, 3 to hardware" in text
    assert "“GPU lost from the bus” (3 failures), which also cost most, 40.2 GPU-hours." in text
    assert "Against the period before: +4 failures (5 then), goodput +10.0 points (80.0 % then)." in text
    assert "node-7: 3 failures, 2 of them on GPU 1; 40.0 GPU-hours lost and 5 h out of service." in text
    assert "3 of 9 verdicts (33.3 %)" in text
    assert "hardware is behind at least 3 and at most 6 failures" in text
    assert "3 records could not be read" in text


def test_a_quiet_week_reads_as_good_news() -> None:
    assert summary(quiet_report()) == [
        "The one objective measured was met.",
        "The least error budget is left for node availability: 100 % of it.",
        "Of 0 attempts that ended none failed.",
        "No GPU time was allocated.",
        "There are no data of the period before to compare with.",
    ]
    assert "No attempt failed in this period." in render_html(quiet_report())


def test_an_empty_store_is_said_to_be_one_and_shows_no_figures() -> None:
    assert summary(empty_report()) == [NOTHING_KNOWN]
    assert Page(render_html(empty_report())).all("table") == []
    assert "|" not in render_markdown(empty_report())


def test_rounded_gpu_hours_of_the_waterfall_add_up_to_what_was_allocated() -> None:
    figure = figures.goodput_waterfall(a_report().totals.ledger)
    assert figure is not None
    notes = dict(re.findall(r"([A-Z][\w -]+): ([\d,.]+) h", figure.wide))
    hours = {name: round(float(text.replace(",", "")) * 10) for name, text in notes.items()}
    assert hours.pop("Allocated") == sum(hours.values())


def test_causes_in_the_table_add_up_to_its_last_row() -> None:
    table = view.causes_table(a_report())
    for column in (3, 4, 5):
        parts = [round(float(row[column].replace(",", "")) * 10) for row in table.rows]
        assert sum(parts) == round(float(table.foot[column].replace(",", "")) * 10)


def test_of_many_causes_the_rare_ones_share_a_row_and_overhead_stays_the_last() -> None:
    many = tuple(replace(cause("app.exception", n, n), code=f"app.exception.{n}") for n in range(1, 41))
    table = view.causes_table(replace(a_report(), causes=(*many, a_report().causes[-1])))
    assert table.rows[-2][0] == "20 more"
    assert table.rows[-1][0] == "No failure behind it"
    assert sum(int(row[3]) for row in table.rows) == int(table.foot[3]) == sum(range(1, 41))


def test_a_miss_that_would_round_to_the_target_gets_more_decimals() -> None:
    assert view.attained_text(objective("job_success", 0.994999)) == "99.4999 %"
    assert view.attained_text(objective("job_success", 0.99496)) == "99.496 %"
    assert view.attained_text(objective("job_success", 0.9951)) == "99.5 %"


def test_an_objective_that_only_the_processors_count_is_judged_by_its_rolling_window() -> None:
    line = objective("coverage", None, rolling=0.99, source="streamed")
    assert (line.met, line.shown) == (False, 0.99)
    assert objective("coverage", None).met is None


def test_bounds_move_every_assumed_verdict_away_from_a_class_and_to_it() -> None:
    quality = a_report().quality
    assert quality.bounds("hardware") == (3, 6)
    assert quality.bounds("user") == (2, 5)
    assert quality.bounds("driver") == (0, 3)


def test_a_failure_rate_is_told_as_what_it_means_for_a_large_job() -> None:
    """Three failures in 1,024 GPU-days: a job on 1,024 GPUs would be ended three times a day."""
    report = replace(a_report(), reliability=Reliability(3, 128 * DAY_MS, 1_024 * DAY_MS), fleet={})
    assert dict(notes.outlook_lines(report)) == {
        "it would be ended every": "8 h",
        "effective training time, hourly checkpoints": "92.7 %",
        "best interval, if one takes a minute": "31 min",
        "effective training time with that": "95.7 %",
    }
    assert list(notes.outlook_lines(quiet_report())) == []


def test_the_outlook_is_for_no_larger_job_than_the_fleet_could_hold_and_says_when_the_formula_ends() -> None:
    report = replace(a_report(), fleet={"idle_healthy": 200 * 7 * DAY_MS}, reliability=Reliability(90, 1, 200 * DAY_MS))
    assert notes.outlook_gpus(report) == 200
    assert dict(notes.outlook_lines(report))["effective training time, hourly checkpoints"] == "less than half"


def test_json_holds_the_exact_milliseconds_and_the_same_words() -> None:
    plain = json.loads(render_json(a_report()))
    ledger = a_report().totals.ledger
    assert plain["totals"]["allocated_gpu_ms"] == sum(plain["totals"]["gpu_ms"].values()) == ledger.allocated_ms
    assert plain["summary"] == summary(a_report())
    assert plain["period"]["from"] == "2026-11-16T00:00:00.000Z"
    assert plain["quality"]["bounds"]["hardware"] == [3, 6]
    assert sum(day["by_class"].get("user", 0) for day in plain["days"]) == 4


@given(st.floats(0, 10**7))
def test_a_grid_has_few_round_lines_and_reaches_the_highest_column(highest: float) -> None:
    ticks = whole_ticks(highest)
    assert ticks[0] == 0
    assert ticks[-1] >= highest
    assert 2 <= len(ticks) <= 6
    steps = {after - before for before, after in pairwise(ticks)}
    assert len(steps) == 1
    assert re.fullmatch(r"[125]0*", str(steps.pop()))
