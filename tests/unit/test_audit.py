"""The audit finds every hole in what was taken, and takes nothing else for one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinks.audit import Extent, audited, miscounted
from sinks.runs import RunRow

PLACE = ("job-events", 0)


def run(start: int, stop: int, records: int | None = None) -> RunRow:
    seen = stop - start if records is None else records
    return RunRow(*PLACE, start, stop, seen, seen, 0, 0, seen, 0, 0, 0)


@pytest.mark.parametrize(
    ("runs", "extent", "missing"),
    [
        ([run(0, 5), run(5, 9)], Extent(0, 9, 9), ()),
        ([], Extent(0, 9, None), ()),
        ([], Extent(3, 9, 3), ()),
        ([], Extent(0, 9, 7), ((0, 7),)),
        ([run(0, 5), run(6, 9)], Extent(0, 9, 9), ((5, 6),)),
        ([run(0, 5), run(3, 9)], Extent(0, 9, 9), ()),
        ([run(0, 9), run(3, 5), run(10, 12)], Extent(0, 12, 12), ((9, 10),)),
        ([run(0, 5)], Extent(0, 9, 8), ((5, 8),)),
        ([run(4, 9)], Extent(1, 9, 9), ((1, 4),)),
        ([run(4, 9)], Extent(4, 9, 9), ()),
        ([run(4, 9)], Extent(7, 9, 9), ()),
    ],
)
def test_what_no_run_tells_of_is_missing(
    runs: list[RunRow], extent: Extent, missing: tuple[tuple[int, int], ...]
) -> None:
    assert audited(PLACE, runs, extent, pruned=False).missing == missing


def test_what_the_store_has_dropped_by_age_is_not_missing() -> None:
    assert audited(PLACE, [run(4, 9)], Extent(0, 9, 9), pruned=True).missing == ()


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 12)), min_size=1, max_size=12), st.integers(0, 80))
def test_the_holes_are_exactly_the_offsets_that_no_run_covers(spans: list[tuple[int, int]], committed: int) -> None:
    runs = [run(start, start + length) for start, length in spans]
    found = audited(PLACE, runs, Extent(0, 100, committed), pruned=False)
    covered = {offset for start, length in spans for offset in range(start, start + length)}
    end = max(max(covered) + 1, committed)
    assert {offset for first, behind in found.missing for offset in range(first, behind)} == set(range(end)) - covered
    assert found.again == sum(length for _, length in spans) - len(covered)
    assert found.waiting == 100 - (max(covered) + 1)


def test_records_are_counted_and_not_offsets() -> None:
    offsets = [0, 1, 4, 5, 9]
    assert miscounted([run(0, 2, 2), run(2, 6, 2), run(6, 10, 1)], offsets) == []
    assert miscounted([run(0, 5, 5)], offsets) == [(run(0, 5, 5), 3)]
