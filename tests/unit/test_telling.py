"""Which of a report's findings are told first."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from faultlens.causes import class_of, title_of
from faultlens.clock import DAY_MS, HOUR_MS
from slo.report.data import (
    OVERHEAD,
    CauseLine,
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
from slo.report.telling import telling


def cause(code: str, hours: int, failures: int = 2) -> CauseLine:
    return CauseLine(code, class_of(code), title_of(code), failures, 0, hours * HOUR_MS)


def node(name: str, hours: int, failures: int = 2) -> NodeLine:
    return NodeLine(name, "", failures, {"3": failures}, hours * HOUR_MS, 0, 0, ("gpu.off_bus",))


def gpus(*, missing: int, of: int) -> ObjectiveLine:
    good, total = (of - missing) * HOUR_MS, of * HOUR_MS
    return ObjectiveLine(
        "gpu_availability", "GPU availability", "", 0.9995, "gpu_seconds", good, total, good / total, None, None, None,
        None, {"hardware": float(missing * HOUR_MS)},
    )  # fmt: skip


def a_week(**parts: object) -> ReportData:
    nothing = ReportData(
        Period(0, 7 * DAY_MS, "week 1"), "", 7 * DAY_MS, (), (), (), Totals(0, {}, Ledger({})), None, (), Quality({}),
        Reliability(0, 0, 0), Intake({}), {},
    )  # fmt: skip
    return replace(nothing, **parts)  # type: ignore[arg-type]


def ledger(**hours: int) -> Totals:
    return Totals(0, {}, Ledger({name: amount * HOUR_MS for name, amount in hours.items()}))


def test_the_finding_with_most_gpu_time_behind_it_comes_first() -> None:
    week = a_week(
        causes=(cause("gpu.off_bus", 30), cause("app.exception", 20)),
        nodes=(node("node-1", 10), node("node-2", 40)),
        totals=ledger(productive=900, lost_work=35, startup=20),
    )
    node_first, loss_second, cause_third = telling(week)
    assert node_first == (
        "No node cost jobs more than node-2: 2 failures, all on GPU 3; 40.0 GPU-hours lost (gpu.off_bus)."
    )
    assert loss_second == (
        "Work lost to restarts took 35.0 of the 955.0 GPU-hours that jobs held; 94.2 % of those became work that was "
        "kept."
    )
    assert cause_third == (
        f"The dearest cause of failures is “{title_of('gpu.off_bus')}” (gpu.off_bus), charged to hardware: 2 failures, "
        "30.0 GPU-hours."
    )


def test_missing_gpus_are_told_when_the_promise_was_broken() -> None:
    [told] = telling(a_week(objectives=(gpus(missing=10, of=1000),)))
    assert told == (
        "GPUs were available 99.00 % of the time, promised are 99.95 %: 10.0 GPU-hours were missing (hardware 10.0)."
    )
    assert telling(a_week(objectives=(gpus(missing=0, of=1000),))) == []


def test_what_no_failure_is_behind_is_no_cause_of_failures() -> None:
    overhead = CauseLine("", OVERHEAD, "No failure behind it", 0, 0, 99 * HOUR_MS)
    [told] = telling(a_week(causes=(overhead, cause("gpu.off_bus", 1))))
    assert "gpu.off_bus" in told


def test_of_a_quiet_week_nothing_is_told() -> None:
    assert telling(a_week()) == []


@given(st.integers(0, 5), st.integers(0, 500), st.integers(0, 500), st.integers(0, 500))
def test_no_more_are_told_than_asked_for_and_none_that_cost_nothing(most: int, one: int, two: int, lost: int) -> None:
    week = a_week(causes=(cause("gpu.off_bus", one),), nodes=(node("node-1", two),), totals=ledger(lost_work=lost))
    assert len(telling(week, most)) == min(most, sum(hours > 0 for hours in (one, two, lost)))
