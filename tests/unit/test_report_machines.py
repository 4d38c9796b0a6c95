"""How long jobs last, how often they should save, what went back to its vendor, and what changed after it was final."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultlens.catalogue.loader import load_families
from faultlens.clock import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from slo.indicators import mttf_bounds_h, poisson_bounds
from slo.report import view_machines
from slo.report.corrections import Correction, Corrections, corrections
from slo.report.html import render_html
from slo.report.machines import ReturnedLine, returned, saves, sizes, trainings
from slo.report.markdown import render_markdown
from slo.report.telling_changes import correction_lines
from slo.wording import NOTHING
from tests.unit.test_report import PERIOD, a_report


@pytest.mark.parametrize(
    ("count", "low", "high"), [(0, 0.0, 3.689), (1, 0.0253, 5.572), (10, 4.795, 18.390), (50, 37.111, 65.919)]
)
def test_counts_have_the_bounds_that_garwood_published(count: int, low: float, high: float) -> None:
    assert poisson_bounds(count, confidence=0.95) == pytest.approx((low, high), abs=6e-4)


def test_the_bounds_of_llama_3_lie_around_3_09_hours() -> None:
    assert mttf_bounds_h(54 * 24, 419) == pytest.approx((2.856, 3.357), abs=5e-3)


@given(st.integers(0, 3_000), st.floats(0.5, 0.99))
def test_bounds_hold_the_count_and_widen_with_confidence(count: int, confidence: float) -> None:
    low, high = poisson_bounds(count, confidence=confidence)
    wider = poisson_bounds(count, confidence=(1 + confidence) / 2)
    assert wider[0] <= low <= count <= high <= wider[1]


def test_sizes_begin_where_the_smaller_ones_end_and_without_failures_nothing_bounds_them_from_above() -> None:
    lines = sizes(
        [
            {"up_to": 8, "attempts": 5, "run_ms": 100 * HOUR_MS, "failed": 0},
            {"up_to": 64, "attempts": 2, "run_ms": 40 * HOUR_MS, "failed": 4},
            {"up_to": 0, "attempts": 1, "run_ms": HOUR_MS, "failed": 1},
        ]
    )
    assert [(line.from_gpus, line.to_gpus) for line in lines] == [(1, 8), (9, 64), (4_097, 0)]
    assert (lines[0].mttf_h, lines[0].bounds_h[1]) == (None, math.inf)
    assert lines[0].bounds_h[0] == pytest.approx(100 / 2.996, abs=0.01)
    assert lines[1].mttf_h == 10
    table = view_machines.sizes_table(replace(a_report(), sizes=lines))
    assert table is not None
    assert [row[0] for row in table.rows] == ["1 to 8", "9 to 64", "4,097 and more"]
    assert table.rows[0][4:] == (NOTHING, "33 h", NOTHING)


def test_a_trainings_effective_time_counts_the_wait_and_leaves_out_nothing_but_the_users_own() -> None:
    """Published: above 90 % of a 54-day training was effective, interrupted every 3.09 hours."""
    hours = {"productive_ms": 1_180 * HOUR_MS, "unproductive_ms": 116 * HOUR_MS, "queued_ms": 4 * HOUR_MS}
    row = {"job_id": "llm", "team": "nlp", "gpus": 16_384, "attempts": 420, "interruptions": 419, **hours}
    (line,) = trainings([row])
    assert line.effective == pytest.approx(1_180 / 1_300)
    assert line.between_h == pytest.approx(3.09, abs=5e-3)
    calm = replace(line, interruptions=0, productive_ms=0, unproductive_ms=0, queued_ms=0)
    assert (calm.effective, calm.between_h) == (None, None)
    data = replace(a_report(), trainings=(line, calm))
    table = view_machines.trainings_table(data)
    assert table is not None
    assert [row[4:] for row in table.rows] == [("90.8 %", "419", "3.1 h"), (NOTHING, "0", NOTHING)]
    assert "The largest trainings" in render_html(data)


def saved(job: str, gpus: int, every_min: float, *, write_s: float = 60.0) -> dict[str, object]:
    return {
        "job_id": job, "saves": 9, "write_s": write_s, "gap_ms": round(every_min * MINUTE_MS), "gpus": gpus,
        "gpu_ms": gpus * DAY_MS,
    }  # fmt: skip


def test_a_job_is_told_daly_and_youngs_interval_only_where_its_own_is_off_by_half() -> None:
    """At 6.5 failures in 1,000 node-days, 8 GPUs a node: on 16,000 GPUs sqrt(2 x 1 min x 1,440 / 13) = 14.9 min."""
    jobs = [saved("hourly", 16_000, 60), saved("well", 16_000, 15), saved("often", 16_000, 2)]
    lines = saves(jobs, 13, 13 * 8 / 6.5e-3)
    assert [line.job_id for line in lines] == ["often", "hourly"]
    assert {round(line.best_ms / MINUTE_MS, 1) for line in lines} == {14.9}
    # Hourly: 1/60 + 13 x 30/1,440 = 28.75 %; at best 1/14.9 + 13 x 7.44/1,440 = 13.43 %.
    assert lines[1].gained_gpu_ms / (16_000 * DAY_MS) == pytest.approx(0.2875 - 0.1344, abs=5e-4)


@pytest.mark.parametrize(("failures", "gpu_days", "saves_of_it", "told"), [
    (3, 100.0, 3, True), (2, 100.0, 3, False), (3, 100.0, 2, False), (0, 100.0, 3, False), (3, 0.0, 3, False),
])  # fmt: skip
def test_of_few_failures_or_few_saves_nobody_is_told_how_often_to_save(
    failures: int, gpu_days: float, saves_of_it: int, told: bool
) -> None:
    assert bool(saves([saved("j", 8, 6_000) | {"saves": saves_of_it}], failures, gpu_days)) == told


@given(st.integers(1, 100_000), st.floats(0.1, 10_000), st.floats(0.001, 3_600), st.floats(1.0, 1e6))
def test_advice_never_gains_more_than_a_job_held(gpus: int, every: float, write: float, gpu_days: float) -> None:
    for line in saves([saved("j", gpus, every, write_s=write)], 9, gpu_days):
        assert 0 < line.gained_gpu_ms <= gpus * DAY_MS
        assert line.best_ms >= 0


def test_what_went_back_is_counted_by_the_vendor_of_its_gpus() -> None:
    rows = [
        {"node": "n1", "family": "H100", "what": "replace", "left_ms": 0, "back_ms": 2 * DAY_MS},
        {"node": "n1", "family": "H100", "what": "remove", "left_ms": 5 * DAY_MS, "back_ms": 6 * DAY_MS},
        {"node": "n2", "family": "NVIDIA H100 80GB HBM3", "what": "remove", "left_ms": DAY_MS, "back_ms": 0},
        {"node": "n3", "family": "MI300X", "what": "remove", "left_ms": DAY_MS, "back_ms": 0},
        {"node": "n4", "family": "", "what": "remove", "left_ms": DAY_MS, "back_ms": 0},
    ]
    assert returned(rows, load_families()) == (
        ReturnedLine("AMD", "MI300X", 1, 1, 1, ()),
        ReturnedLine("NVIDIA", "H100", 2, 3, 1, (2 * DAY_MS, DAY_MS)),
        ReturnedLine("unknown", "unknown", 1, 1, 1, ()),
    )


def changed(job: str, status: str, at_ms: int, *, rule: str = "") -> dict[str, object]:
    return {
        "job_id": job, "attempt": 1, "loss": 0, "was_class": "hardware", "was_code": "gpu.off_bus", "was_node": "n1",
        "class": "user", "code": "app.config", "node": "", "status": status, "rule": rule,
        "summary": "Bad configuration (labelled by <b>ann</b>)", "changed_ms": at_ms, "all_changed": 52,
    }  # fmt: skip


def test_a_report_says_what_changed_after_it_was_final_and_what_of_it_after_the_period() -> None:
    rows = [
        changed("late", "amended", PERIOD.to_ms + SECOND_MS, rule="labelled_by_a_person"),
        changed("gone", "withdrawn", PERIOD.to_ms - SECOND_MS),
    ]
    found = corrections(rows)
    assert (found.count, found.left_out) == (52, 50)
    data = replace(a_report(), corrections=found)
    table = view_machines.corrections_table(data)
    assert table is not None
    assert [row[:3] for row in table.rows] == [
        ("late/1", "hardware, gpu.off_bus on n1", "user, app.config"),
        ("gone/1", "hardware, gpu.off_bus on n1", "withdrawn: no failure"),
    ]
    assert correction_lines(data)[0].startswith("1 verdict of this period was changed after it had ended")
    page, text = render_html(data), render_markdown(data)
    assert "a person&#39;s word" in page
    assert "<b>ann" not in page
    assert "Verdicts that changed after they were final" in text


def test_where_nothing_changed_nothing_is_said() -> None:
    assert corrections([]) == Corrections()
    assert view_machines.corrections_table(a_report()) is None
    assert correction_lines(a_report()) == []
    line = Correction("j", 1, 0, ("user", "app.crash", ""), ("user", "app.oom.gpu", ""), "amended", 0, False, "")
    assert correction_lines(replace(a_report(), corrections=Corrections((line,)))) == []
