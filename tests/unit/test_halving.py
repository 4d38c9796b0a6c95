"""Finding bad rows by halving: the good ones go in once, each bad one is found, whatever interrupts it."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from sinks.halving import Halving


def settle(halving: Halving, bad: set[int], answers: int | None = None) -> tuple[list[int], list[int], int]:
    """Answer until all is settled or `answers` were given; return what went in, what was refused, and the answers."""
    accepted: list[int] = []
    refused: list[int] = []
    given_ = 0
    while (run := halving.run) is not None and given_ != answers:
        given_ += 1
        rows = range(*run)
        if bad.isdisjoint(rows):
            accepted += rows
            halving.accepted()
        elif (alone := halving.refused()) is not None:
            refused.append(alone)
    return accepted, refused, given_


counts = st.integers(0, 200)


@given(count=counts, bad=st.sets(st.integers(0, 199)))
def test_every_good_row_goes_in_once_and_in_order_and_every_bad_one_is_found(count: int, bad: set[int]) -> None:
    accepted, refused, _ = settle(Halving(count), bad)
    assert accepted == [row for row in range(count) if row not in bad]
    assert refused == [row for row in range(count) if row in bad]


@given(count=st.integers(1, 10_000), data=st.data())
def test_few_bad_rows_cost_few_attempts(count: int, data: st.DataObject) -> None:
    bad = data.draw(st.sets(st.integers(0, count - 1), max_size=5))
    _, _, attempts = settle(Halving(count), bad)
    assert attempts <= 2 * len(bad) * math.ceil(math.log2(count) + 1) + 1


@given(count=counts, more=counts, bad=st.sets(st.integers(0, 399)), answers=st.integers(0, 50))
def test_rows_that_come_in_between_follow_all_others(count: int, more: int, bad: set[int], answers: int) -> None:
    halving = Halving(count)
    before, refused_before, _ = settle(halving, bad, answers)
    halving.grow(count + more)
    after, refused_after, _ = settle(halving, bad)
    assert before + after == [row for row in range(count + more) if row not in bad]
    assert refused_before + refused_after == [row for row in range(count + more) if row in bad]
