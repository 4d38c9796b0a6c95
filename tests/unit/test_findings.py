"""Findings: what is trouble of a job that has not failed, and what only looks like it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultlens.clock import MINUTE_MS, SECOND_MS
from faultlens.events import Quantiles
from faultlens.internal import Observation
from streams.findings import (
    MAX_SLOW_RANKS,
    Crash,
    SlowRanks,
    crash_loop,
    hang_since,
    low_bandwidth,
    observe_ranks,
    pending_names_lost_capacity,
    persistent,
)
from streams.goodput import Ledger, on_progress, on_stalled, on_started, open_ledger

# --- slow ranks ------------------------------------------------------------------------------------------


def watched(reports: int, ranks: dict[str, float], quantiles: Quantiles | None = None) -> SlowRanks:
    known: SlowRanks = ()
    for minute in range(reports):
        known = observe_ranks(known, minute * MINUTE_MS, ranks, quantiles)
    return known


def test_a_rank_that_stays_slow_is_told_with_its_ratio() -> None:
    slow = persistent(watched(5, {"0": 1.0, "1": 1.0, "2": 1.5, "3": 1.0}))
    assert [(rank.rank, rank.ratio, rank.since_ms) for rank in slow] == [(2, 1.5, 0)]


def test_four_reports_are_not_enough() -> None:
    assert persistent(watched(4, {"0": 1.0, "1": 1.0, "2": 1.5})) == ()


def test_five_reports_within_a_minute_are_not_enough() -> None:
    known: SlowRanks = ()
    for second in range(20):
        known = observe_ranks(known, second * SECOND_MS, {"0": 1.0, "1": 1.0, "2": 1.5})
    assert known[0].reports == 20
    assert persistent(known) == ()


def test_one_report_among_the_others_starts_the_count_anew() -> None:
    known = watched(4, {"0": 1.0, "1": 1.0, "2": 1.5})
    known = observe_ranks(known, 4 * MINUTE_MS, {"0": 1.0, "1": 1.0, "2": 1.0})
    known = observe_ranks(known, 5 * MINUTE_MS, {"0": 1.0, "1": 1.0, "2": 1.5})
    assert [(rank.reports, rank.since_ms) for rank in known] == [(1, 5 * MINUTE_MS)]


def test_the_middle_of_a_large_job_is_told_by_its_quantiles() -> None:
    outliers_only = {"517": 2.0, "9": 1.9}
    assert [r.rank for r in persistent(watched(6, outliers_only, Quantiles(p50=1.0)))] == [517, 9]
    assert watched(6, outliers_only) == ()


def test_ranks_that_vary_by_nature_are_not_slow() -> None:
    assert watched(6, {"0": 1.0, "1": 1.5, "2": 2.0, "3": 1.25, "4": 1.75}) == ()


def test_a_repeated_report_counts_once() -> None:
    ranks = {"0": 1.0, "1": 1.0, "2": 1.5}
    once = observe_ranks((), MINUTE_MS, ranks)
    assert observe_ranks(once, MINUTE_MS, ranks) == once


@given(st.dictionaries(st.integers(0, 4000).map(str), st.floats(0, 1e6), max_size=60))
def test_what_is_kept_of_slow_ranks_is_bounded(ranks: dict[str, float]) -> None:
    known = observe_ranks((), 0, ranks, Quantiles(p50=0.001))
    assert len(known) <= MAX_SLOW_RANKS
    assert all(rank.ratio > 1 for rank in known)


# --- hangs and slow links --------------------------------------------------------------------------------


def stepping(minutes: int, *, step_s: float = 60.0) -> Ledger:
    ledger = on_started(open_ledger(1, 0, 8), 0)
    for minute in range(1, minutes + 1):
        ledger = on_progress(ledger, minute * MINUTE_MS, minute, step_s)
    return ledger


def test_silence_for_many_steps_is_a_hang_since_the_last_step() -> None:
    ledger = stepping(10)
    assert hang_since(ledger, 16 * MINUTE_MS) == 10 * MINUTE_MS
    assert hang_since(ledger, 14 * MINUTE_MS) is None


def test_a_reported_stall_is_a_hang_at_once_and_the_next_step_ends_it() -> None:
    ledger = on_stalled(stepping(10), 10 * MINUTE_MS + 20 * SECOND_MS)
    assert hang_since(ledger, 11 * MINUTE_MS) == 10 * MINUTE_MS + 20 * SECOND_MS
    assert hang_since(on_progress(ledger, 12 * MINUTE_MS, 11), 12 * MINUTE_MS + 1) is None


def test_a_job_that_never_reports_steps_is_not_taken_to_hang() -> None:
    assert hang_since(on_started(open_ledger(1, 0, 8), 0), 600 * MINUTE_MS) is None


def link_down(*, open_: bool = True, cause: str = "network.link") -> Observation:
    return Observation(
        "o1", "agent/n1", "n1", "nic", "links_missing", 0, 0, "hardware", cause, "root", 60, "links missing", open_
    )


def slowed() -> Ledger:
    ledger = stepping(10)
    for index in range(1, 6):
        ledger = on_progress(ledger, 10 * MINUTE_MS + index * 90 * SECOND_MS, 10 + index)
    return ledger


def test_all_ranks_slow_while_a_link_is_out_of_order_is_low_bandwidth() -> None:
    found = low_bandwidth(slowed(), (), [link_down()])
    assert found is not None
    assert found.ratio == 1.5
    assert found.link.node == "n1"


@pytest.mark.parametrize("link", [link_down(open_=False), link_down(cause="gpu.thermal")])
def test_without_an_open_condition_of_a_link_slowness_is_not_blamed_on_bandwidth(link: Observation) -> None:
    assert low_bandwidth(slowed(), (), [link]) is None


def test_a_single_slow_rank_explains_the_slowness_of_all() -> None:
    slow = watched(6, {"0": 1.0, "1": 1.0, "2": 1.5})
    assert low_bandwidth(slowed(), slow, [link_down()]) is None


def test_a_job_at_its_normal_pace_has_bandwidth_enough() -> None:
    assert low_bandwidth(stepping(15), (), [link_down()]) is None


# --- crash loops -----------------------------------------------------------------------------------------


def crash(attempt: int, signature: str = "app.config", ran_min: int = 60) -> Crash:
    return Crash(attempt, attempt * 100 * MINUTE_MS, ran_min * MINUTE_MS, "failed", signature)


def test_three_failures_alike_in_a_row_are_a_loop() -> None:
    loop = crash_loop([crash(1, "gpu.off_bus"), crash(2), crash(3), crash(4)])
    assert loop is not None
    assert (loop.attempts, loop.since_ms, loop.same) == ((2, 3, 4), 200 * MINUTE_MS, True)


def test_short_lived_attempts_loop_however_they_end() -> None:
    loop = crash_loop([crash(n, f"other{n}", ran_min=2) for n in (1, 2, 3)])
    assert loop is not None
    assert loop.same is False


@pytest.mark.parametrize(
    "ends",
    [
        [],
        [crash(1), crash(2)],
        [crash(1), crash(2, "gpu.off_bus"), crash(3)],
        [crash(1), crash(2), Crash(3, 0, 0, "succeeded", ""), crash(4)],
        [crash(n, "") for n in (1, 2, 3)],
    ],
)
def test_two_or_different_or_interrupted_failures_are_no_loop(ends: list[Crash]) -> None:
    assert crash_loop(ends) is None


def test_a_preemption_in_between_says_nothing_of_the_job() -> None:
    ends = [crash(1), crash(2), Crash(3, 0, 0, "preempted", ""), crash(4)]
    loop = crash_loop(ends)
    assert loop is not None
    assert loop.attempts == (1, 2, 4)


# --- waits for lost capacity -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        (
            "FailedScheduling",
            (
                "0/1 nodes of pool h200 are available: cannot allocate all claims, "
                "8 device(s) had untolerated taint gpu.nvidia.com/gpu-lost"
            ),
        ),
        (
            "FailedScheduling",
            "0/3 nodes are available: 3 node(s) had untolerated taint {node.kubernetes.io/unreachable: }",
        ),
        ("FailedScheduling", "0/3 nodes are available: 3 node(s) were unschedulable."),
        (
            "FailedScheduling",
            "0/1 nodes are available: 1 node(s) had untolerated taint {example.com/gpu-unhealthy: xid}",
        ),
        (
            "UnexpectedAdmissionError",
            "Allocate failed due to no healthy devices present; cannot allocate unhealthy devices nvidia.com/gpu",
        ),
        ("FailedBinding", "binding conditions failed: device attach timed out"),
        ("NodeDown", None),
        ("ReqNodeNotAvail", "UnavailableNodes:gpu[03-04]"),
        ("ReqNodeNotAvail, UnavailableNodes:gpu03", None),
        ("Resources", "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions"),
        ("PartitionDown", None),
    ],
)
def test_lost_capacity_is_recognised(reason: str, message: str | None) -> None:
    assert pending_names_lost_capacity(reason, message)


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("FailedScheduling", "0/8 nodes are available: 8 Insufficient nvidia.com/gpu."),
        ("FailedScheduling", "0/8 nodes are available: 1 node(s) were unschedulable, 7 Insufficient nvidia.com/gpu."),
        ("FailedScheduling", "0/1 nodes are available: 1 node(s) had untolerated taint {nvidia.com/gpu: present}"),
        ("FailedScheduling", "1 node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }"),
        ("FailedScheduling", "cannot allocate all claims"),
        ("QuotaReserved", "couldn't assign flavors: insufficient unused quota for nvidia.com/gpu in flavor h100"),
        ("FailedBinding", "no persistent volumes available for this claim and no storage class is set"),
        ("Resources", None),
        ("Priority", None),
        ("AssocGrpGRES", None),
        ("QOSMaxGRESPerUser", None),
        ("JobHeldUser", None),
        ("BeginTime", None),
        ("ReqNodeNotAvail", "UnavailableNodes:"),
        ("ReqNodeNotAvail", "Reserved for maintenance"),
        ("BadConstraints", None),
    ],
)
def test_busy_capacity_quota_and_holds_are_not_lost_capacity(reason: str, message: str | None) -> None:
    assert not pending_names_lost_capacity(reason, message)


@given(st.text(max_size=300), st.none() | st.text(max_size=10_000))
def test_no_text_breaks_the_judgement(reason: str, message: str | None) -> None:
    assert pending_names_lost_capacity(reason, message) in (True, False)
