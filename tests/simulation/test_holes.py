"""A hole between two ticks is our own blindness: what seems silent after it was perhaps only not heard."""

from __future__ import annotations

import pytest

from faultlens.clock import SECOND_MS
from faultlens.codec import Event, encode, event_of
from faultlens.events import JobAttributed, NodeState
from faultlens.internal import ClusterCensus, ContextChange
from faultlens.topics import CONTEXT, TYPES
from streams.runtime.records import Record, Role
from streams.runtime.task import Task
from tests.simulation.playing import all_roles
from tests.simulation.stories import T0, Story

HOLE_MS = 3 * SECOND_MS


class Lane:
    """A lane fed by hand: a tick each second, and what arrived before it."""

    def __init__(self, name: str) -> None:
        role: Role = next(role for role in all_roles() if role.name == name)
        self.task = Task(role, ticking=True, hole_ms=HOLE_MS)
        self.sent: list[Event] = []
        self._next: dict[str, int] = {}

    def take(self, topic: str, at_ms: int, value: bytes = b"") -> None:
        offset = self._next[topic] = self._next.get(topic, -1) + 1
        self.task.take(Record(topic, offset, at_ms, value=value))
        self.sent += [sent.event for sent in self.task.seal().sent]

    def tick(self, from_s: int, until_s: int, told: tuple[Event, ...] = ()) -> None:
        """Let seconds go by, one tick each, with the events that happen in them."""
        left = sorted(told, key=lambda event: event.time_ms)
        for second in range(from_s, until_s):
            while left and left[0].time_ms <= T0 + second * SECOND_MS:
                event = left.pop(0)
                self.take(TYPES[event.type].topic, event.time_ms, encode(event))
            self.take(self.task.role.topics[0], T0 + second * SECOND_MS)


def census(at_ms: int) -> bytes:
    """A count by which all but one of ten nodes reported on time."""
    change = ContextChange("c1", at_ms, census=ClusterCensus("c1", at_ms, 10, 9))
    return encode(event_of(change, source="faultlens/context", id_=f"c{at_ms}", time_ms=at_ms))


def silent(lane: Lane) -> bool:
    return "silent" in [event.data.state for event in lane.sent if isinstance(event.data, NodeState)]


def counted(lane: Lane, at_s: int) -> Lane:
    """Let a count arrive and a minute go by after it."""
    lane.take(CONTEXT, T0 + at_s * SECOND_MS, census(T0 + (at_s - 1) * SECOND_MS))
    lane.tick(at_s, at_s + 61)
    return lane


@pytest.mark.parametrize("hole_s", [0, 2, 80])
def test_a_node_is_not_silent_for_what_nobody_was_there_to_hear(hole_s: int) -> None:
    lane = Lane("node")
    lane.tick(0, 300, tuple(arrival.event for arrival in Story().healthy("n1", until_min=5).told()))
    lane.tick(300 + hole_s, 430)
    assert silent(counted(lane, 430)) == (hole_s < 3)
    lane.tick(491, 580)
    assert silent(counted(lane, 580))


@pytest.mark.parametrize("hole_s", [0, 120])
def test_a_launcher_is_not_lost_for_what_nobody_was_there_to_hear(hole_s: int) -> None:
    lane = Lane("job")
    story = Story().job("gone", 1, "n1").alive("gone", 2, 5)
    lane.tick(0, 300, tuple(arrival.event for arrival in story.told()))
    lane.tick(300 + hole_s, 300 + 3_600)
    ended = [event for event in lane.sent if isinstance(event.data, JobAttributed)]
    assert bool(ended) == (hole_s == 0)
    lane.tick(300 + 3_600, 300 + 3_600 + 200)
    assert [event.data.rule for event in lane.sent if isinstance(event.data, JobAttributed)]
