"""What counts for the objectives, against the contract's rules."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultlens.clock import HOUR_MS, MINUTE_MS
from faultlens.events import NodeStateName
from faultlens.internal import Sample, UseSample
from streams.goodput import Change
from streams.samples import (
    NOTHING,
    Amount,
    Blame,
    NodeTime,
    Place,
    Start,
    count_samples,
    goodput_samples,
    node_samples,
    sample_emits,
    sample_key,
    scopes,
    serving_samples,
    start_amount,
    start_due_ms,
    success_amount,
    use_samples,
)

WITHIN_MS, LIMIT_MS = 10 * MINUTE_MS, 30 * MINUTE_MS
HARDWARE, USER, GUESS = Blame("hardware", "established"), Blame("user", "supported"), Blame("user", "assumed")


def node(state: NodeStateName, **changes: Any) -> dict[str, Sample]:
    facts: dict[str, Any] = {
        "cluster": "c1",
        "pool": None,
        "from_ms": 0,
        "to_ms": HOUR_MS,
        "planned": False,
        "gpus_total": 8,
        "gpus_allocatable": 8,
        "cause": None,
        "covered": True,
        "late_ms": 0,
    }
    return {sample.objective: sample for sample in node_samples(NodeTime(state=state, **{**facts, **changes}))}


def started(**known: Any) -> Amount:
    now_ms = known.pop("now_ms", 10 * HOUR_MS)
    return start_amount(Start(**known), now_ms, within_ms=WITHIN_MS, pending_limit_ms=LIMIT_MS)


# --- scopes ----------------------------------------------------------------------------------------------


def test_a_sample_counts_for_its_cluster_and_for_each_known_part_of_it() -> None:
    assert [sample_key_of(place) for place in scopes(Place("c1", "h100", "nlp", "training"))] == [
        "goodput|c1|||",
        "goodput|c1|h100||",
        "goodput|c1||nlp|",
        "goodput|c1|||training",
    ]
    assert scopes(Place("c1", pool="", team=None)) == (Place("c1"),)


def sample_key_of(place: Place) -> str:
    return sample_key(Sample("goodput", place.cluster, 0, 1, 0, 0, {}, place.pool, place.team, place.workload))


def test_use_goes_by_cluster_and_pool() -> None:
    samples = use_samples(cluster="c1", pool="h100", from_ms=0, to_ms=5, gpu_ms={"allocated": 40})
    assert [sample_key(sample) for sample in samples] == ["fleet_time|c1|", "fleet_time|c1|h100"]
    assert samples[0] == UseSample("c1", 0, 5, {"allocated": 40})


def test_records_of_one_sample_in_several_scopes_have_ids_of_their_own() -> None:
    samples = goodput_samples(Place("c1", "h100", "nlp", "training"), [Change(0, 10, 10, {})])
    emits = sample_emits(samples, about="j/1/1", time_ms=7)
    assert len({emit.id for emit in emits}) == len(emits) == 4
    assert {emit.time_ms for emit in emits} == {7}
    assert emits[0].id != sample_emits(samples, about="j/1/2", time_ms=7)[0].id


# --- nodes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["available", "degraded"])
def test_a_node_that_takes_work_is_available(state: NodeStateName) -> None:
    assert (node(state)["node_availability"].good, node(state)["node_availability"].total) == (HOUR_MS, HOUR_MS)


def test_a_degraded_nodes_unhealthy_gpus_are_not_available() -> None:
    sample = node("degraded", gpus_allocatable=7, cause="gpu.off_bus")["gpu_availability"]
    assert (sample.good, sample.total, sample.by_cause) == (7 * HOUR_MS, 8 * HOUR_MS, {"hardware": HOUR_MS})


@pytest.mark.parametrize("state", ["blocked", "draining", "down", "silent", "maintenance"])
def test_unplanned_down_time_is_bad_for_node_and_gpus(state: NodeStateName) -> None:
    samples = node(state, cause="driver.hang")
    assert (samples["node_availability"].good, samples["node_availability"].by_cause) == (0, {"driver": HOUR_MS})
    assert (samples["gpu_availability"].good, samples["gpu_availability"].by_cause) == (0, {"driver": 8 * HOUR_MS})


@pytest.mark.parametrize("state", ["blocked", "draining", "down", "silent", "maintenance"])
def test_planned_down_time_leaves_the_totals(state: NodeStateName) -> None:
    samples = node(state, planned=True, late_ms=HOUR_MS // 2)
    assert set(samples) == {"coverage"}
    assert (samples["coverage"].good, samples["coverage"].total) == (HOUR_MS // 2, HOUR_MS // 2)


def test_a_persons_cordon_is_nobodys_failure() -> None:
    assert node("blocked")["node_availability"].by_cause == {"overhead": HOUR_MS}
    assert node("blocked", cause="no.such_cause")["node_availability"].by_cause == {"overhead": HOUR_MS}


def test_coverage_is_time_that_a_report_vouched_for() -> None:
    sample = node("available", late_ms=MINUTE_MS)["coverage"]
    assert (sample.good, sample.total) == (HOUR_MS - MINUTE_MS, HOUR_MS)
    assert "coverage" not in node("available", covered=False)


def test_removed_nodes_and_nodes_without_gpus_are_not_counted() -> None:
    assert node("removed") == {}
    assert "gpu_availability" not in node("available", gpus_total=0)


# --- job start -------------------------------------------------------------------------------------------


def test_a_start_within_ten_minutes_of_the_allocation_is_good() -> None:
    assert started(allocated_ms=0, started_ms=WITHIN_MS) == Amount(good=1)


def test_a_long_wait_before_the_allocation_does_not_make_a_start_late() -> None:
    assert started(allocated_ms=5 * HOUR_MS, started_ms=5 * HOUR_MS + MINUTE_MS) == Amount(good=1)


def test_a_late_start_is_charged_to_what_was_open_then_else_to_the_scheduler() -> None:
    late: dict[str, Any] = {"allocated_ms": 0, "started_ms": WITHIN_MS + 1}
    assert started(**late, blame=HARDWARE) == Amount(by_cause={"hardware": 1})
    assert started(**late) == Amount(by_cause={"platform": 1}, assumed_bad=1)
    assert started(**late, blame=USER) == Amount(by_cause={"platform": 1}, assumed_bad=1)


def test_a_failure_before_the_start_counts_unless_it_is_the_users() -> None:
    assert started(allocated_ms=0, outcome="failed", blame=HARDWARE) == Amount(by_cause={"hardware": 1})
    assert started(outcome="never_started", blame=USER) == NOTHING
    assert started(outcome="never_started", blame=GUESS) == Amount(assumed_out=1)


@pytest.mark.parametrize("outcome", ["cancelled", "preempted"])
def test_what_was_called_off_before_the_start_does_not_count(outcome: str) -> None:
    assert started(allocated_ms=0, outcome=outcome) == NOTHING


def test_an_allocated_attempt_that_does_not_start_is_bad_when_its_time_is_over() -> None:
    assert started(allocated_ms=0, now_ms=WITHIN_MS) == NOTHING
    assert started(allocated_ms=0, now_ms=WITHIN_MS + 1) == Amount(by_cause={"platform": 1}, assumed_bad=1)


def test_waiting_is_bad_only_for_lost_capacity_and_after_the_limit() -> None:
    assert started(now_ms=LIMIT_MS + 1) == NOTHING
    waits = {"waits_for_lost_capacity_since_ms": 0}
    assert started(**waits, now_ms=LIMIT_MS) == NOTHING
    assert started(**waits, now_ms=LIMIT_MS + 1, blame=HARDWARE) == Amount(by_cause={"hardware": 1})


@given(
    st.none() | st.integers(0, HOUR_MS),
    st.none() | st.integers(0, HOUR_MS),
    st.none() | st.integers(0, HOUR_MS),
    st.sampled_from([None, "failed", "cancelled"]),
)
def test_between_events_a_start_changes_only_when_it_is_said_to(
    allocated_ms: int | None, started_ms: int | None, waits_ms: int | None, outcome: Any
) -> None:
    start = Start(
        allocated_ms=allocated_ms,
        started_ms=started_ms,
        outcome=outcome,
        waits_for_lost_capacity_since_ms=waits_ms,
    )
    due_ms = start_due_ms(start, within_ms=WITHIN_MS, pending_limit_ms=LIMIT_MS)

    def amount(now_ms: int) -> Amount:
        return start_amount(start, now_ms, within_ms=WITHIN_MS, pending_limit_ms=LIMIT_MS)

    if due_ms is None:
        assert amount(0) == amount(1_000 * HOUR_MS)
    else:
        assert amount(0) == amount(due_ms - 1) != amount(due_ms) == amount(1_000 * HOUR_MS)


# --- job success -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "blame", "expected"),
    [
        ("succeeded", None, Amount(good=1)),
        ("failed", HARDWARE, Amount(by_cause={"hardware": 1})),
        ("failed", Blame("platform", "assumed"), Amount(by_cause={"platform": 1}, assumed_bad=1)),
        ("failed", USER, NOTHING),
        ("failed", GUESS, Amount(assumed_out=1)),
        ("timed_out", HARDWARE, Amount(by_cause={"hardware": 1})),
        ("timed_out", USER, NOTHING),
        ("cancelled", HARDWARE, NOTHING),
        ("preempted", None, NOTHING),
        ("failed", None, NOTHING),
        (None, None, NOTHING),
    ],
)
def test_success_counts_by_outcome_and_verdict(outcome: Any, blame: Blame | None, expected: Amount) -> None:
    assert success_amount(started=True, outcome=outcome, blame=blame, workload="training") == expected


def test_attempts_that_never_started_and_replicas_are_not_counted_as_successes() -> None:
    assert success_amount(started=False, outcome="failed", blame=HARDWARE, workload="training") == NOTHING
    assert success_amount(started=True, outcome="failed", blame=HARDWARE, workload="inference") == NOTHING


def test_a_verdict_that_changes_its_mind_moves_one_count() -> None:
    before, after = Amount(by_cause={"hardware": 1}), Amount(assumed_out=1)
    samples = count_samples("job_success", Place("c1"), 5, before, after)
    assert [(s.good, s.total, s.by_cause, s.assumed_out) for s in samples] == [(0, -1, {"hardware": -1}, 1)]
    assert count_samples("job_success", Place("c1"), 5, before, before) == []


@given(st.lists(st.sampled_from([NOTHING, Amount(1), Amount(0, {"driver": 1}, 1), Amount(assumed_out=1)]), max_size=9))
def test_corrections_always_add_up_to_the_last_word(said: list[Amount]) -> None:
    good = total = 0
    before = NOTHING
    for after in said:
        for sample in count_samples("job_success", Place("c1"), 5, before, after):
            good, total = good + sample.good, total + sample.total
        before = after
    assert (good, total) == (before.good, before.total)


# --- time of jobs ----------------------------------------------------------------------------------------


def test_goodput_samples_carry_the_ledgers_changes() -> None:
    sample = goodput_samples(Place("c1"), [Change(0, 10, -80, {"hardware": 80})])[0]
    assert (sample.good, sample.total, sample.by_cause) == (-80, 0, {"hardware": 80})


def test_serving_capacity_is_ready_over_wanted_replicas() -> None:
    sample = serving_samples(Place("c1"), 0, 10, ready=3, missing={"hardware": 1})[0]
    assert (sample.good, sample.total, sample.by_cause) == (30, 40, {"hardware": 10})
    assert serving_samples(Place("c1"), 0, 10, ready=0, missing={}) == []
