"""Error budgets and burn rates against published numbers, and against the published mistakes."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultlens.budget import (
    Slice,
    attained,
    budget_allowed,
    budget_remaining,
    budget_used_in,
    burn_factor,
    burn_rate,
    highest_burn,
    lowest_target_that_fires,
    occurrences,
    ratio_time_slices,
    time_slices,
    time_to_exhaustion_ms,
)
from faultlens.clock import DAY_MS, HOUR_MS, MINUTE_MS
from slo.budget import bad_time_allowed_ms

SHARES_AND_WINDOWS = [(0.02, HOUR_MS), (0.05, 6 * HOUR_MS), (0.10, 24 * HOUR_MS), (0.10, 3 * DAY_MS)]


@pytest.mark.parametrize(
    ("period_days", "factors"), [(30, [14.4, 6, 3, 1]), (28, [13.44, 5.6, 2.8, 0.933])], ids=["30 d", "28 d"]
)
def test_factors_follow_from_budget_share_and_window(period_days: int, factors: list[float]) -> None:
    computed = [burn_factor(share, period_ms=period_days * DAY_MS, window_ms=w) for share, w in SHARES_AND_WINDOWS]
    assert computed == pytest.approx(factors, abs=5e-4)


def test_below_93_06_percent_the_fast_page_and_below_83_3_percent_the_slow_one_cannot_fire() -> None:
    assert lowest_target_that_fires(14.4) == pytest.approx(0.9306, abs=5e-5)
    assert lowest_target_that_fires(6) == pytest.approx(0.833, abs=5e-4)
    assert highest_burn(0.90) == pytest.approx(10)
    assert highest_burn(0.93) < 14.4 < highest_burn(0.931)


def test_at_90_percent_a_total_outage_burns_1_4_percent_of_the_budget_an_hour() -> None:
    assert budget_used_in(highest_burn(0.90), period_ms=30 * DAY_MS, window_ms=HOUR_MS) == pytest.approx(
        0.0139, abs=5e-5
    )


def test_burning_at_14_4_exhausts_a_month_in_2_08_days() -> None:
    assert time_to_exhaustion_ms(14.4, period_ms=30 * DAY_MS) / DAY_MS == pytest.approx(2.083, abs=5e-4)
    assert time_to_exhaustion_ms(14.4, period_ms=30 * DAY_MS, remaining=0.5) / DAY_MS == pytest.approx(1.042, abs=5e-4)
    assert time_to_exhaustion_ms(0, period_ms=DAY_MS) == math.inf
    assert time_to_exhaustion_ms(3, period_ms=DAY_MS, remaining=-0.2) == 0.0


def test_one_failure_of_ten_requests_an_hour_is_13_9_percent_of_the_budget_and_burns_at_100() -> None:
    """The often quoted rate of 1,000 is a mistake: 10 % over 0.1 % is 100."""
    allowed = budget_allowed(10 * 24 * 30, 0.999)
    assert allowed == pytest.approx(7.2)
    assert 1 / allowed == pytest.approx(0.139, abs=5e-4)
    assert burn_rate(1, 10, 0.999) == pytest.approx(100)


def test_15_percent_of_errors_for_ten_minutes_page_within_6_and_stop_within_5_of_their_end() -> None:
    """At 99.9 % over 30 days: the short window (5 min) is over at once, the long one (1 h) after 5.76 min."""

    def burns(minute: float, window_min: float) -> float:
        bad_min = max(0.0, min(minute, 10) - max(0.0, minute - window_min))
        return burn_rate(0.15 * bad_min, window_min, 0.999)

    def warns(minute: float) -> bool:
        return burns(minute, 5) >= 14.4 and burns(minute, 60) >= 14.4

    assert burns(0.5, 5) >= 14.4 > burns(0.5, 60)
    warning = [second / 60 for second in range(3_600) if warns(second / 60)]
    assert (warning[0], warning[-1]) == pytest.approx((5.76, 14.52), abs=1 / 60)
    assert time_to_exhaustion_ms(burn_rate(0.15, 1, 0.999), period_ms=30 * DAY_MS) == pytest.approx(4.8 * HOUR_MS)


def test_a_week_at_99_95_percent_may_be_bad_for_5_minutes_and_2_4_seconds() -> None:
    assert bad_time_allowed_ms(7 * DAY_MS, 0.9995) == pytest.approx(5 * MINUTE_MS + 2_400)


def attack(minutes: int) -> list[Slice]:
    """Two weeks of one-minute slices, 24,000 requests a day, 99 % good, but 1 % during the attack."""
    requests = 24_000 / 1440
    return [Slice(requests * (0.01 if minute < minutes else 0.99), requests) for minute in range(20_160)]


def test_two_weeks_of_requests_at_95_percent_allow_16800_failures() -> None:
    assert budget_allowed(24_000 * 14, 0.95) == pytest.approx(16_800)
    assert budget_allowed(24_000 * 14, 0.95) * 0.99 == pytest.approx(16_632)


def test_time_slices_at_95_percent_allow_16_hours_and_48_minutes_of_attack() -> None:
    assert bad_time_allowed_ms(14 * DAY_MS, 0.95) == pytest.approx(16 * HOUR_MS + 48 * MINUTE_MS)
    allowed = 16 * 60 + 48
    held, broken = (time_slices(attack(m), slice_target=0.95) for m in (allowed, allowed + 1))
    assert held is not None
    assert broken is not None
    assert broken < 0.95 <= held


def test_ratio_time_slices_at_95_percent_allow_about_13_hours_45_minutes_of_attack() -> None:
    held, broken = (ratio_time_slices(attack(m)) for m in (13 * 60 + 42, 13 * 60 + 45))
    assert held is not None
    assert broken is not None
    assert broken < 0.95 <= held


def test_occurrences_weigh_busy_slices_more_than_ratio_slices_do() -> None:
    slices = [Slice(1, 10), Slice(990, 990)]
    assert occurrences(slices) == 0.991
    assert ratio_time_slices(slices) == 0.55
    assert time_slices(slices, slice_target=0.99) == 0.5


def test_slices_without_traffic_count_neither_way() -> None:
    assert occurrences([Slice(0, 0)]) is None
    assert time_slices([Slice(0, 0), Slice(1, 1)], slice_target=0.9) == 1.0
    assert ratio_time_slices([]) is None


def test_no_traffic_burns_nothing_and_has_no_budget_to_speak_of() -> None:
    assert attained(0, 0) is None
    assert burn_rate(0, 0, 0.99) == 0.0
    assert budget_remaining(0, 0, 0.99) is None


def test_the_budget_goes_from_whole_to_overspent() -> None:
    assert budget_remaining(1000, 1000, 0.99) == 1.0
    assert budget_remaining(995, 1000, 0.99) == pytest.approx(0.5)
    assert budget_remaining(980, 1000, 0.99) == pytest.approx(-1.0)
    assert budget_remaining(9, 10, 1.0) == -math.inf


COUNTS = st.integers(min_value=0, max_value=10**12)
TARGETS = st.floats(min_value=0.5, max_value=0.99999)


@given(COUNTS, COUNTS, TARGETS)
def test_an_objective_is_missed_exactly_when_its_budget_is_overspent(good: int, bad: int, target: float) -> None:
    total = good + bad
    ratio, left = attained(good, total), budget_remaining(good, total, target)
    if ratio is not None and left is not None and abs(ratio - target) > 1e-9:
        assert (ratio < target) == (left < 0)


@given(COUNTS, COUNTS, TARGETS)
def test_burn_and_budget_say_the_same_over_a_whole_period(good: int, bad: int, target: float) -> None:
    left = budget_remaining(good, good + bad, target)
    if left is not None:
        assert left == pytest.approx(1 - burn_rate(bad, good + bad, target), rel=1e-6, abs=1e-6)
