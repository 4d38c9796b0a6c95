"""The shipped tables of the simulation fit together."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultlens.clock import parse_moment
from producers.simulation.chance import pick, sample, stream
from producers.simulation.delivery import Stamps
from producers.simulation.logs import Texts
from producers.simulation.tables import (
    SHIPPED_MIXES,
    Happenings,
    Sign,
    load_happenings,
    load_log_texts,
    load_mix,
)

KNOWN = {"rank": 3, "node": "node-0001", "device": 5, "peer": "node-0002", "timeout": 600_000, "over": 600_017}
SEEN_BY_AGENT = {"node": "n", "pci": "0000:1b:00", "gpu": 1, "pid": 7, "process": "python3", "port": 2, "left": 7}


def signs_of(happenings: Happenings) -> Iterator[Sign]:
    for kind in happenings.node_faults.values():
        yield from kind.signs
    for fault in happenings.user_faults.values():
        yield from fault.signs
    for herring in happenings.herrings.values():
        yield from herring.signs


def test_every_log_template_can_be_filled_in() -> None:
    groups = load_log_texts()
    texts = Texts(groups, stream(1, "test"))
    for templates in groups.values():
        for template in templates:
            assert "{" not in texts.line(template, **KNOWN).replace("{'", ""), template


def test_templates_of_a_group_are_told_apart_by_more_than_their_blanks() -> None:
    groups = load_log_texts()
    for name, templates in groups.items():
        assert len(set(templates)) == len(templates), name
    assert sum(map(len, groups.values())) > 150


def test_every_message_of_a_record_can_be_filled_in() -> None:
    for sign in signs_of(load_happenings()):
        assert sign.text.format(**SEEN_BY_AGENT)


def test_every_group_of_texts_that_a_table_names_exists() -> None:
    groups = load_log_texts().keys()
    happenings = load_happenings()
    for fault in happenings.node_faults.values():
        assert set(fault.telling_texts) <= set(fault.texts) <= groups
    for incident in happenings.incidents.values():
        assert set(incident.telling_texts) <= set(incident.texts) <= groups
    for own in happenings.user_faults.values():
        assert set(own.texts) <= groups


@pytest.mark.parametrize("name", SHIPPED_MIXES)
def test_a_shipped_mix_leaves_nothing_out(name: str) -> None:
    happenings = load_happenings()
    mix = load_mix(name, happenings)
    assert mix.node_faults.keys() == happenings.node_faults.keys()
    assert mix.user_faults.keys() == happenings.user_faults.keys()
    assert mix.incidents_per_day.keys() == happenings.incidents.keys()
    assert mix.herrings.keys() == happenings.herrings.keys()
    assert mix.sources


def test_what_shows_nothing_but_its_silence_switches_the_node_off() -> None:
    for name, kind in load_happenings().node_faults.items():
        shown = kind.checks or any(sign.tells for sign in kind.signs) or kind.recurs
        assert shown or set(kind.manners) == {"node_lost"}, name


# --- chance and time --------------------------------------------------------------------------------------


@given(st.dictionaries(st.text(min_size=1), st.floats(0, 1e6), min_size=1), st.integers())
def test_a_pick_is_one_of_those_that_have_weight(weights: dict[str, float], seed: int) -> None:
    if sum(weights.values()) == 0:
        with pytest.raises(ValueError, match="every weight is 0"):
            pick(stream(seed, "test"), weights)
    else:
        assert weights[pick(stream(seed, "test"), weights)] > 0


def test_picks_come_as_often_as_their_weights_say() -> None:
    rng = stream(4, "test")
    picks = [pick(rng, {"a": 3.0, "b": 1.0, "c": 0.0}) for _ in range(4_000)]
    assert 0.72 < picks.count("a") / 4_000 < 0.78


@given(st.lists(st.integers(), unique=True), st.integers(0, 20), st.integers())
def test_a_sample_keeps_order_and_holds_as_many_as_there_are_up_to_the_limit(
    items: list[int], most: int, seed: int
) -> None:
    chosen = sample(stream(seed, "test"), items, most)
    assert len(chosen) == min(len(items), most)
    assert [item for item in items if item in chosen] == chosen


def test_streams_of_one_seed_are_independent_of_each_other() -> None:
    first, other = stream(1, "jobs"), stream(1, "faults")
    assert first.random() != other.random()
    assert stream(1, "jobs").random() == stream(1, "jobs").random() != stream(2, "jobs").random()


@given(st.lists(st.integers(0, 4_102_444_800_000), min_size=1))
def test_a_stamp_is_the_time_to_the_millisecond(times_ms: list[int]) -> None:
    stamp = Stamps()
    for at_ms in times_ms:
        assert parse_moment(stamp(at_ms)) == at_ms
