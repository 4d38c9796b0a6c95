"""Figures are said as exactly as their data allow, and nothing is concluded from too little."""

import math

from hypothesis import given
from hypothesis import strategies as st

from faultlens.clock import DAY_MS, HOUR_MS, MINUTE_MS
from slo.backing import TOO_LITTLE, attained_words, digits_of, is_enough, known_words, mean_words, rough, share_words
from slo.wording import NOTHING, digits_for


def test_a_few_attempts_have_no_decimals_and_many_have_as_many_as_the_target() -> None:
    assert [digits_of(0.995, attempts, of_time=False) for attempts in (0, 5, 999, 1_000, 100_000, 10**9)] == [
        0, 0, 0, 1, 2, 2,
    ]  # fmt: skip


def test_four_nodes_over_24_minutes_are_no_reason_for_decimals_and_a_fleets_month_is() -> None:
    assert digits_of(0.9995, 4 * 24 * MINUTE_MS, of_time=True) == 0
    assert digits_of(0.9995, 1_000 * 28 * DAY_MS, of_time=True) == digits_for(0.9995)


@given(st.integers(1, 10**7), st.sampled_from([0.9, 0.99, 0.995, 0.9995]))
def test_one_attempt_more_or_less_moves_no_figure_by_less_than_its_last_decimal_but_one(
    total: int, target: float
) -> None:
    digits = digits_of(target, total, of_time=False)
    assert digits == 0 or 100 / total <= 10**-digits


def test_what_is_not_whole_is_never_said_to_be() -> None:
    assert share_words(0.999871, digits=0) == "> 99 %"
    assert share_words(0.99999, digits=2) == "> 99.99 %"
    assert share_words(0.9987, digits=1) == "99.9 %"
    assert share_words(1.0, digits=0) == "100 %"


def test_a_miss_never_looks_like_the_target() -> None:
    assert attained_words(0.9899, 0.99, digits=0) == "98.99 %"
    assert attained_words(0.9912, 0.99, digits=0) == "99 %"
    assert attained_words(None, 0.99, digits=0) == NOTHING


def test_a_target_is_called_kept_only_after_a_day_and_by_twenty_attempts() -> None:
    month = 28 * DAY_MS
    assert not is_enough(10**9, of_time=True, known_ms=24 * MINUTE_MS, window_ms=month)
    assert is_enough(10**9, of_time=True, known_ms=DAY_MS, window_ms=month)
    assert not is_enough(19, of_time=False, known_ms=month, window_ms=month)
    assert is_enough(20, of_time=False, known_ms=month, window_ms=month)
    assert is_enough(20, of_time=False, known_ms=HOUR_MS, window_ms=HOUR_MS)


def test_what_is_known_of_a_window_is_said_unless_it_is_all() -> None:
    assert known_words(24 * MINUTE_MS, 28 * DAY_MS) == "24 min of it known"
    assert known_words(0, 28 * DAY_MS) == "nothing of it known"
    assert known_words(28 * DAY_MS, 28 * DAY_MS) == ""


def test_a_mean_needs_three_events_and_has_two_digits() -> None:
    assert mean_words(12_345_678.0, 2) == TOO_LITTLE
    assert mean_words(12_345_678.0, 3) == "3.4 h"
    assert (rough(37.2 * HOUR_MS), rough(138.6 * DAY_MS), rough(math.inf)) == ("37 h", "140 d", "never")
