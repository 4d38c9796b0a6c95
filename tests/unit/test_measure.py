"""Objectives from the store's rows: what counts, what does not, and whom it is charged to."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slo.measure import (
    Measure,
    by_window,
    class_or_overhead,
    goodput,
    gpu_availability,
    job_start,
    job_success,
    node_availability,
)


def node_time(state: str, hours: int, *, planned: bool = False, cause: str = "", healthy: int = 8) -> dict[str, Any]:
    """Node time of a node with eight GPUs."""
    return {
        "state": state,
        "planned": planned,
        "cause": cause,
        "node_ms": hours,
        "gpu_ms": hours * 8,
        "allocatable_ms": hours * healthy,
    }


def attempts(outcome: str, count: int, *, blame: str = "", basis: str = "", **more: Any) -> dict[str, Any]:
    """Attempts that ended alike, of eight GPU-milliseconds each."""
    row = {"outcome": outcome, "attempts": count, "class": blame, "basis": basis, "gpu_ms": count * 8}
    return row | {"started": True, "serving": False} | more


def starts(how: str, count: int, *, blame: str = "", basis: str = "") -> dict[str, Any]:
    return {"how": how, "attempts": count, "class": blame, "basis": basis}


def test_an_hour_blocked_and_an_hour_in_planned_maintenance_of_eight_give_85_7_percent() -> None:
    rows = [
        node_time("available", 6),
        node_time("blocked", 1),
        node_time("maintenance", 1, planned=True, cause="platform.maintenance"),
    ]
    for measure in (node_availability(rows), gpu_availability(rows)):
        assert measure.attained == pytest.approx(6 / 7)
        assert measure.also[0][1] == pytest.approx(6 / 8)
        assert measure.by_class == {"overhead": measure.bad}


def test_a_degraded_node_is_available_but_its_unhealthy_gpus_are_not() -> None:
    rows = [node_time("degraded", 10, cause="gpu.off_bus", healthy=7)]
    assert node_availability(rows).attained == 1.0
    assert gpu_availability(rows).attained == 7 / 8
    assert gpu_availability(rows).by_class == {"hardware": 10}


@pytest.mark.parametrize("state", ["blocked", "draining", "down", "silent", "maintenance"])
def test_each_way_to_be_out_counts_as_down_unless_it_was_planned(state: str) -> None:
    out, up = node_time(state, 1, cause="host.lost.silent"), node_time("available", 9)
    assert node_availability([out, up]).attained == 0.9
    assert node_availability([out, up]).by_class == {"hardware": 1}
    planned = node_availability([out | {"planned": True}, up])
    assert planned.attained == 1.0
    assert planned.also[0][1] == 0.9


def test_a_removed_node_is_nobodys_time() -> None:
    assert node_availability([node_time("removed", 5)]) == Measure(also=((node_availability([]).also[0][0], None),))


def test_job_start_counts_in_time_against_late_waiting_and_failed() -> None:
    measure = job_start(
        [
            starts("in_time", 90),
            starts("late", 2),
            starts("waiting", 1),
            starts("failed", 7, blame="hardware", basis="established"),
            starts("out", 50),
            starts("out", 10, blame="user", basis="assumed"),
        ]
    )
    assert (measure.good, measure.total) == (90, 100)
    assert measure.by_class == {"platform": 3, "hardware": 7}
    assert measure.bounds == (90 / 110, 90 / 97)


def test_job_success_leaves_out_users_cancels_preemptions_services_and_what_never_started() -> None:
    measure = job_success(
        [
            attempts("succeeded", 95),
            attempts("failed", 3, blame="platform", basis="supported"),
            attempts("failed", 2, blame="driver", basis="assumed"),
            attempts("failed", 40, blame="user", basis="established"),
            attempts("failed", 5, blame="user", basis="assumed"),
            attempts("timed_out", 9, blame="user", basis="established"),
            attempts("cancelled", 30),
            attempts("preempted", 11),
            attempts("never_started", 6, blame="platform", basis="established", started=False),
            attempts("failed", 8, blame="hardware", basis="established", serving=True),
        ]
    )
    assert (measure.good, measure.total) == (95, 100)
    assert measure.by_class == {"platform": 3, "driver": 2}
    assert measure.bounds == (95 / 105, 95 / 98)
    assert measure.also == (("weighted by GPU time", 0.95),)


def test_job_success_by_gpu_time_weighs_large_jobs_more() -> None:
    large = attempts("failed", 1, blame="hardware", basis="established", gpu_ms=900)
    measure = job_success([attempts("succeeded", 9, gpu_ms=100), large])
    assert measure.attained == 0.9
    assert measure.also[0][1] == 0.1


def test_goodput_charges_losses_to_their_class_and_the_rest_to_nobody() -> None:
    rows = [
        {"category": "productive", "class": "", "gpu_ms": 900},
        {"category": "lost_work", "class": "hardware", "gpu_ms": 60},
        {"category": "startup", "class": "", "gpu_ms": 40},
        {"category": "queued", "class": "", "gpu_ms": 0},
    ]
    assert goodput(rows) == Measure(900, 1000, {"hardware": 60, "overhead": 40})


def test_without_any_rows_nothing_is_measured() -> None:
    for measure in (node_availability([]), job_start([]), job_success([]), goodput([])):
        assert measure.attained is None
        assert not measure.by_class


def test_an_unknown_cause_is_charged_to_nobody() -> None:
    assert class_or_overhead("gpu.memory") == "hardware"
    assert class_or_overhead("") == class_or_overhead("astrology.mercury") == "overhead"


def test_rows_find_their_window() -> None:
    rows = [{"window": 2, "x": 1}, {"window": 1, "x": 2}, {"window": 2, "x": 3}]
    assert by_window(rows, 3) == [[rows[1]], [rows[0], rows[2]], []]


STATES = st.sampled_from(["available", "degraded", "blocked", "draining", "down", "silent", "maintenance", "removed"])
NODE_ROWS = st.lists(
    st.builds(
        node_time,
        STATES,
        st.integers(0, 10**9),
        planned=st.booleans(),
        cause=st.sampled_from(["", "gpu.off_bus", "driver.hang", "platform.power", "nonsense"]),
        healthy=st.integers(0, 8),
    ),
    max_size=20,
)


@given(NODE_ROWS)
def test_good_never_passes_total_and_the_rest_is_charged_to_the_last_millisecond(rows: list[dict[str, Any]]) -> None:
    for measure in (node_availability(rows), gpu_availability(rows)):
        assert 0 <= measure.good <= measure.total
        assert sum(measure.by_class.values()) == measure.bad
