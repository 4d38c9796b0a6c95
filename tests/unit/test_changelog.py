"""What a lane writes to its changelog is what it reads back, however large, and nothing is left behind."""

from __future__ import annotations

from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultlens import topics
from faultlens.internal import ContextChange
from streams.context import Context, apply_change
from streams.live.changelog import FORMAT, PART_BYTES, Changelog, DamagedError
from streams.runtime.records import LaneRecord, Role
from streams.runtime.state import Kept
from tests.simulation.toy import Tally, Toy

TOY = Role(Toy(), (*Toy.topics, topics.CONTEXT))


class Compacted:
    """A compacted topic: the latest value of every key."""

    def __init__(self) -> None:
        self.kept: dict[bytes, bytes] = {}

    def write(self, changelog: Changelog, changed: dict[str, Kept | None], lane: LaneRecord) -> None:
        for key, value in changelog.changes(changed, lane):
            if value is None:
                self.kept.pop(key, None)
            else:
                self.kept[key] = value

    def read(self) -> tuple[dict[str, Kept], LaneRecord | None]:
        states, lane = Changelog(TOY).restore(self.kept.items())
        return dict(states.items()), lane


def kept(count: int, wake_ms: int | None = None) -> Kept:
    return Kept(Tally(count), wake_ms)


keys = st.text(max_size=8)
changes = st.dictionaries(keys, st.none() | st.builds(kept, st.integers(0, 9), st.none() | st.integers(0, 99)))
lanes = st.builds(LaneRecord, st.integers(0, 1 << 45), st.dictionaries(keys, st.integers(0, 1 << 45)))


@given(st.lists(st.tuples(changes, lanes), min_size=1, max_size=6))
def test_what_was_written_last_is_what_is_read(batches: list[tuple[dict[str, Kept | None], LaneRecord]]) -> None:
    topic, changelog = Compacted(), Changelog(TOY)
    expected: dict[str, Kept] = {}
    for changed, lane in batches:
        topic.write(changelog, changed, lane)
        for key, value in changed.items():
            expected.pop(key, None)
            if value is not None:
                expected[key] = value
    assert topic.read() == (expected, batches[-1][1])


def large(size: int) -> Kept:
    """Return a state whose bytes no compressor makes small."""
    return Kept(Tally(seen=(Random(size).randbytes(size),)))  # noqa: S311 - any bytes will do


@pytest.mark.parametrize("sizes", [(5, 3 * PART_BYTES, 10), (3 * PART_BYTES, PART_BYTES + 9, 2 * PART_BYTES)])
def test_a_large_state_is_cut_into_parts_and_leaves_none_behind_when_it_shrinks(sizes: tuple[int, ...]) -> None:
    topic, changelog = Compacted(), Changelog(TOY)
    for size in sizes:
        topic.write(changelog, {"n": large(size)}, LaneRecord())
        assert topic.read()[0] == {"n": large(size)}
        assert max(map(len, topic.kept.values())) <= PART_BYTES
    after = Changelog(TOY)
    after.restore(topic.kept.items())
    topic.write(after, {"n": None}, LaneRecord())
    assert list(topic.kept) == [b"c", b"l"]


def test_a_large_state_whose_part_is_missing_is_refused() -> None:
    topic = Compacted()
    topic.write(Changelog(TOY), {"n": large(3 * PART_BYTES)}, LaneRecord())
    del topic.kept[next(key for key in topic.kept if key.startswith(b"p"))]
    with pytest.raises(DamagedError, match="a part is missing"):
        topic.read()


def test_nothing_is_there_to_read_before_anything_was_written() -> None:
    assert Compacted().read() == ({}, None)


def test_a_context_is_written_when_it_has_changed() -> None:
    topic, changelog = Compacted(), Changelog(TOY)
    context = apply_change(Context(), ContextChange("", 7, beats=True), arrived_ms=7)
    topic.write(changelog, {}, LaneRecord(1, {}, None, context))
    assert [key for key, _ in changelog.changes({}, LaneRecord(2, {}, None, context))] == [b"l"]
    assert topic.read()[1] == LaneRecord(1, {}, None, context)


def test_a_newer_programs_states_are_refused() -> None:
    newer = {b"l": msgspec.msgpack.encode((1, {}, None, None, FORMAT + 1))}
    with pytest.raises(DamagedError, match="of a newer program"):
        Changelog(TOY).restore(newer.items())


def test_states_that_cannot_be_read_say_whose_they_are() -> None:
    with pytest.raises(DamagedError, match="the state of node-7 cannot be read"):
        Changelog(TOY).restore([(b"snode-7", b"\x93\x01")])
