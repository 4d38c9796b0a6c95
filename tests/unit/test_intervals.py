"""Union of outages, against counting millisecond by millisecond."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from slo.intervals import Interval, covered_ms, union

SMALL = st.builds(Interval, st.integers(0, 40), st.integers(0, 40))
LISTS = st.lists(SMALL, max_size=12)


def milliseconds(intervals: list[Interval]) -> set[int]:
    return {ms for interval in intervals for ms in range(interval.from_ms, interval.to_ms)}


def test_touching_outages_are_one() -> None:
    assert union([Interval(5, 9), Interval(0, 5), Interval(20, 21)]) == [Interval(0, 9), Interval(20, 21)]


def test_time_outside_the_window_does_not_count() -> None:
    assert covered_ms([Interval(0, 10), Interval(5, 30)], Interval(8, 20)) == 12
    assert covered_ms([Interval(0, 5)], Interval(8, 20)) == 0


@given(LISTS)
def test_the_union_covers_each_millisecond_once(intervals: list[Interval]) -> None:
    joined = union(intervals)
    assert milliseconds(joined) == milliseconds(intervals)
    assert covered_ms(intervals) == len(milliseconds(intervals))
    assert all(a.to_ms < b.from_ms for a, b in pairwise(joined))
