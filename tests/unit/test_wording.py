"""How figures and untrusted words are written for people."""

import math
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultlens.clock import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from slo.wording import (
    digits_for,
    duration,
    listed,
    many,
    of_tenths,
    percent,
    points,
    printable,
    share_of_budget,
    signed,
    target_percent,
    tenths_that_add_up,
    whole_hours,
)


def test_what_could_move_a_cursor_or_turn_text_around_is_only_printed() -> None:
    assert printable("a\x1b[2Jb\r\n\u202ec\x00\u2028") == r"a\x1b[2Jb\x0d\x0a\u202ec\x00\u2028"


@given(st.text(max_size=300))
def test_nothing_printable_is_a_control_or_formatting_character(text: str) -> None:
    categories = {unicodedata.category(character) for character in printable(text)}
    assert not categories & {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}


def test_text_beyond_the_limit_is_cut_and_said_to_be() -> None:
    assert printable("x" * 1000, limit=10) == "xxxxxxxxxx … (990 more characters)"


@pytest.mark.parametrize(
    ("ratio", "digits", "text"),
    [
        (None, 1, "\N{EN DASH}"),
        (0.995, 2, "99.50 %"),
        (1.0, 3, "100.000 %"),
        (0.99999, 1, "99.9 %"),
        (0.0, 1, "0.0 %"),
        (0.0000001, 1, "< 0.1 %"),
        (-5.1, 0, "\N{MINUS SIGN}510 %"),
        (math.inf, 0, "∞ %"),
        (-math.inf, 0, "\N{MINUS SIGN}∞ %"),
    ],
)
def test_percentages_are_never_rounded_to_all_or_nothing(ratio: float | None, digits: int, text: str) -> None:
    assert percent(ratio, digits=digits) == text


def test_a_stricter_target_gets_more_decimals() -> None:
    assert [digits_for(target) for target in (0.5, 0.9, 0.99, 0.995, 0.9995, 0.99999999)] == [1, 1, 2, 2, 3, 4]


def test_targets_are_written_as_people_write_them() -> None:
    assert [target_percent(target) for target in (0.9995, 0.9, 0.995)] == ["99.95 %", "90 %", "99.5 %"]


def test_changes_carry_their_sign() -> None:
    assert [signed(n) for n in (12, -1234, 0)] == ["+12", "\N{MINUS SIGN}1,234", "±0"]
    assert signed(-0.04, digits=1) == "±0.0"
    assert points(-0.012) == "\N{MINUS SIGN}1.2 points"


def test_a_budget_is_left_or_used_several_times() -> None:
    assert [share_of_budget(left) for left in (None, 0.2, 0.0, -5.1, -math.inf)] == [
        "\N{EN DASH}",
        "20 %",
        "0 %",
        "used 6.1x",
        "used up",
    ]


@pytest.mark.parametrize(
    ("span_ms", "text"),
    [
        (12, "12 ms"),
        (15 * MINUTE_MS, "15 min"),
        (2 * DAY_MS + 4 * HOUR_MS + 59 * MINUTE_MS, "2 d 4 h"),
        (HOUR_MS + SECOND_MS, "1 h"),
        (5 * MINUTE_MS + 2_400, "5 min 2 s"),
        (math.inf, "never"),
        (0, "0 ms"),
    ],
)
def test_spans_are_told_in_their_two_largest_units(span_ms: float, text: str) -> None:
    assert duration(span_ms) == text


def test_nouns_follow_their_number() -> None:
    assert (many(1, "failure"), many(1200, "failure")) == ("1 failure", "1,200 failures")
    assert (many(1, "GPU hour", "GPU hours"), many(0, "day", "days")) == ("1 GPU hour", "0 days")


def test_words_are_listed_as_in_a_sentence() -> None:
    assert (listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c"])) == ("a", "a and b", "a, b and c")


def test_large_amounts_lose_their_decimals() -> None:
    assert whole_hours(36 * MINUTE_MS * 10) == "6.0"
    assert whole_hours(12_345 * HOUR_MS + 1) == "12,345"
    assert [whole_hours(ms) for ms in (0, 1, 36_000, 200_000)] == ["0.0", "< 0.001", "0.010", "0.1"]
    assert of_tenths(12_345) == "1,234.5"


@given(st.dictionaries(st.text(min_size=1, max_size=3), st.integers(0, 10**13), max_size=12))
def test_rounded_parts_add_up_to_the_rounded_whole_and_none_is_off_by_a_tenth_or_more(parts: dict[str, int]) -> None:
    unit = HOUR_MS // 10
    tenths = tenths_that_add_up(parts)
    assert tenths.keys() == parts.keys()
    assert sum(tenths.values()) == round(sum(parts.values()) / unit)
    assert all(abs(tenths[name] * unit - amount) <= unit for name, amount in parts.items())
