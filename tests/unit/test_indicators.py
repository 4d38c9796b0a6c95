"""Indicators against the numbers that others published."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slo.indicators import (
    Decomposition,
    ResourceTime,
    SuccessCount,
    TrainingPlan,
    best_checkpoint_interval_min,
    effective_time_ratio,
    expected_effective_time_ratio,
    failure_rate,
    goodput,
    mean_time_between_h,
    mttf_h,
    overall_availability,
    success_bounds,
    success_ratio,
    unplanned_availability,
)

AMOUNTS = st.integers(min_value=0, max_value=10**15)


def test_availability_of_princeton_della_is_98_39_percent() -> None:
    time = ResourceTime(up=3_536_774 + 1_013_627 + 4_030_057, down=140_182)
    assert time.reported == 8_720_640
    assert unplanned_availability(time) == pytest.approx(0.9839, abs=5e-5)
    assert overall_availability(time) == unplanned_availability(time)


def test_availability_of_picotte_is_99_2255_percent() -> None:
    time = ResourceTime(up=13_033_854 + 227_783_998, down=1_879_748)
    assert time.reported == 242_697_600
    assert unplanned_availability(time) == pytest.approx(0.992255, abs=5e-7)


def test_availability_of_tara_is_100_percent() -> None:
    time = ResourceTime(up=3_084_213 + 2_047_833 + 1_203_954, down=0)
    assert time.reported == 6_336_000
    assert unplanned_availability(time) == 1.0


def test_planned_maintenance_leaves_the_unplanned_number_but_not_the_overall_one() -> None:
    """Eight of 64 GPU-hours down, eight in planned maintenance."""
    time = ResourceTime(up=48, down=8, planned_down=8)
    assert unplanned_availability(time) == pytest.approx(1 - 8 / 56)
    assert overall_availability(time) == pytest.approx(1 - 16 / 64)


def test_without_any_reported_time_availability_is_unknown() -> None:
    assert unplanned_availability(ResourceTime(0, 0)) is None
    assert overall_availability(ResourceTime(0, 0)) is None
    assert unplanned_availability(ResourceTime(0, 0, planned_down=5)) is None


@given(AMOUNTS, AMOUNTS, AMOUNTS)
def test_overall_availability_is_never_above_the_unplanned_one(up: int, down: int, planned: int) -> None:
    time = ResourceTime(up, down, planned)
    unplanned, overall = unplanned_availability(time), overall_availability(time)
    if unplanned is not None and overall is not None:
        assert -1e-12 <= overall <= unplanned + 1e-12 <= 1 + 2e-12


def test_a_job_of_16384_gpus_fails_every_1_80_hours_at_the_rate_of_rsc_1() -> None:
    assert mttf_h(16_384 / 8, 6.5e-3) == pytest.approx(1.80, abs=0.005)
    assert mttf_h(131_072 / 8, 6.5e-3) == pytest.approx(0.225, abs=0.0005)
    assert mttf_h(100, 0) == math.inf


def test_the_measured_times_to_failure_of_rsc_1_do_not_follow_from_its_failure_rate() -> None:
    """The paper's 7.9 h at 1,024 GPUs and 47.7 d at 8 agree with each other; its rate predicts 28.8 h."""
    assert mttf_h(1024 / 8, 6.5e-3) == pytest.approx(28.8, abs=0.05)
    assert mttf_h(1024 / 8, 1 / 47.7) == pytest.approx(8.94, abs=0.005)


def test_mean_time_between_errors_of_delta_is_1_45_and_1_92_hours() -> None:
    assert mean_time_between_h(895 * 24, 14_821) == pytest.approx(1.45, abs=0.005)
    assert mean_time_between_h(146 * 24, 1_821) == pytest.approx(1.92, abs=0.005)


def test_time_between_uncorrectable_errors_per_gpu_of_delta_is_283031_and_88768_hours() -> None:
    a100 = mean_time_between_h(21_480, 34, units=448)
    h100 = mean_time_between_h(3_504, 24, units=608)
    assert a100 == pytest.approx(283_031, abs=1)
    assert h100 == pytest.approx(88_768, abs=0.5)
    assert a100 is not None
    assert h100 is not None
    assert a100 / h100 == pytest.approx(3.19, abs=0.005)


def test_llama_3_was_interrupted_every_3_09_hours_and_3_79_times_in_1000_node_days() -> None:
    assert mean_time_between_h(54 * 24, 419) == pytest.approx(3.09, abs=0.005)
    rate = failure_rate(419, 54 * 2048)
    assert rate is not None
    assert rate * 1000 == pytest.approx(3.79, abs=0.005)


def test_titan_lost_a_gpu_every_138808_gpu_hours() -> None:
    assert mean_time_between_h(883.8e6, 6_367) == pytest.approx(138_808, rel=1e-4)


def test_without_events_or_node_days_nothing_is_divided() -> None:
    assert mean_time_between_h(100, 0) is None
    assert failure_rate(3, 0) is None


def test_expected_effective_time_of_2000_nodes_is_0_684_with_hourly_checkpoints_and_0_932_with_5_minutes() -> None:
    hourly = TrainingPlan(2000, 6.5e-3, restart_min=5, checkpoint_every_min=60)
    often = TrainingPlan(2000, 6.5e-3, restart_min=5, checkpoint_every_min=5)
    assert expected_effective_time_ratio(hourly) == pytest.approx(0.684, abs=0.0005)
    assert expected_effective_time_ratio(often) == pytest.approx(0.932, abs=0.0005)


def test_expected_effective_time_is_never_below_nothing() -> None:
    hopeless = TrainingPlan(100_000, 6.5e-3, restart_min=60, checkpoint_every_min=600, queue_min=60)
    assert expected_effective_time_ratio(hopeless) == 0.0


def test_effective_time_is_productive_over_all_wall_time() -> None:
    assert effective_time_ratio(90, 7, 3) == 0.9
    assert effective_time_ratio(0, 0, 0) is None


@given(st.floats(0.1, 60), st.integers(1, 20_000), st.floats(1e-4, 1e-1))
def test_no_other_checkpoint_interval_loses_less_than_daly_and_youngs(write: float, nodes: int, rate: float) -> None:
    def lost_share(interval: float) -> float:
        return write / interval + nodes * rate / 1440 * interval / 2

    best = best_checkpoint_interval_min(write, nodes=nodes, failures_per_node_day=rate)
    assert lost_share(best) <= lost_share(best * 0.9)
    assert lost_share(best) <= lost_share(best * 1.1)


def test_goodput_with_a_slow_start_is_60_percent() -> None:
    """Start-up 5 s, five steps of 3 s, the first 5 s longer."""
    assert goodput(5 * 3, 5 + 5 * 3 + 5) == 0.60


def test_progress_wasted_by_a_disruption_is_12_24_percent() -> None:
    first = 1 + 2 + 2 + 5 + 5 * 3
    second = 1 + 2 + 2 + 5 + 3 * 3
    job = Decomposition(first + 5 + second, {"lost_work": 2 * 3, "recovery": 5})
    assert job.total == 49
    assert job.share("lost_work") == pytest.approx(0.1224, abs=5e-5)
    assert job.other == 49 - 11
    assert job.share("other") == pytest.approx(38 / 49)


def test_goodput_with_an_excluded_interval_is_60_percent() -> None:
    """30 s, steps end at 10 s and 20 s, [10 s, 15 s) is excluded from numerator and denominator."""
    assert goodput(20, 30, excluded=5, productive_excluded=5) == 0.60


def test_goodput_of_no_time_is_unknown() -> None:
    assert goodput(0, 0) is None
    assert goodput(5, 5, excluded=5, productive_excluded=5) is None
    assert Decomposition(0, {}).share("lost_work") is None


@given(st.dictionaries(st.sampled_from("abcd"), AMOUNTS), AMOUNTS)
def test_the_parts_and_the_rest_add_up_exactly(parts: dict[str, int], rest: int) -> None:
    whole = Decomposition(sum(parts.values()) + rest, parts)
    assert sum(parts.values()) + whole.other == whole.total
    assert whole.other == rest


def test_infrastructure_success_of_rsc_1_depends_on_the_weighting() -> None:
    """0.2 % of the jobs, but 18.7 % of the GPU time: both numbers are needed."""
    assert success_ratio(SuccessCount(good=998, bad=2)) == 0.998
    assert success_ratio(SuccessCount(good=813, bad=187)) == 0.813


def test_assumed_verdicts_move_the_bounds_to_either_side() -> None:
    count = SuccessCount(good=90, bad=10, assumed_bad=4, assumed_out=20)
    assert success_bounds(count) == (90 / 120, 90 / 96)
    assert success_bounds(SuccessCount(0, 0)) is None
    assert success_bounds(SuccessCount(0, 3, assumed_bad=3)) == (0.0, 1.0)


@given(AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS)
def test_the_ratio_lies_within_its_bounds(good: int, bad: int, assumed: int, out: int) -> None:
    count = SuccessCount(good, bad + assumed, assumed_bad=assumed, assumed_out=out)
    ratio, bounds = success_ratio(count), success_bounds(count)
    if ratio is not None and bounds is not None:
        assert 0 <= bounds[0] <= ratio <= bounds[1] <= 1
