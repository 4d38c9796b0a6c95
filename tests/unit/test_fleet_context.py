"""What concerns everyone is told to every lane once, and the lanes' counts of nodes are told as one."""

from __future__ import annotations

from typing import Any

from faultlens import topics
from faultlens.clock import MINUTE_MS
from faultlens.codec import Event, event_of
from faultlens.events import Data, NodeActed, PlatformIncident, PlatformMaintenance, PlatformRollout
from faultlens.internal import ClusterCensus, ContextChange, LaneCensus
from streams.context import Context
from streams.fleet_context import FleetContextProcessor
from streams.processor import Effects
from tests.unit.scenes import at_ms


def event(data: Data, minute: float, id_: str = "e1") -> Event:
    return event_of(data, source="status/site", id_=id_, time_ms=at_ms(minute))


class Told:
    """Steps one cluster's record and remembers what it sent."""

    def __init__(self) -> None:
        self.state: Any = None
        self.changes: list[ContextChange] = []

    def tell(self, data: Data, minute: float, id_: str = "e1") -> Effects:
        effects = FleetContextProcessor().on_event(event(data, minute, id_), at_ms(minute), Context(), self.state)
        self.state = effects.state
        for emit in effects.emits:
            assert emit.topic == topics.CONTEXT
            assert isinstance(emit.data, ContextChange)
            self.changes.append(emit.data)
        return effects

    def count(self, lane: int, minute: float, covered: int, on_time: int) -> None:
        self.tell(LaneCensus("c1", lane, at_ms(minute), covered, on_time), minute, f"{lane}/{minute}")

    def censuses(self) -> list[ClusterCensus]:
        return [change.census for change in self.changes if change.census is not None]


def test_incidents_rollouts_and_maintenance_are_copied_with_the_time_at_which_they_happened() -> None:
    told = Told()
    incident = PlatformIncident("i", "c1", "storage", "started")
    rollout = PlatformRollout("r", "c1", "driver", "580", "started")
    maintenance = PlatformMaintenance("m", "c1", planned=True, phase="started")
    for number, data in enumerate((incident, rollout, maintenance)):
        told.tell(data, number, f"e{number}")
    assert [(c.incident, c.rollout, c.maintenance) for c in told.changes] == [
        (incident, None, None),
        (None, rollout, None),
        (None, None, maintenance),
    ]
    assert [change.at_ms for change in told.changes] == [at_ms(0), at_ms(1), at_ms(2)]


def test_the_same_record_again_is_told_once() -> None:
    told = Told()
    incident = PlatformIncident("i", "c1", "storage", "started")
    assert not told.tell(incident, 0).duplicate
    assert told.tell(incident, 0).duplicate
    assert len(told.changes) == 1


def test_what_does_not_concern_everyone_is_not_its_business() -> None:
    processor = FleetContextProcessor()
    assert processor.key_of(event(PlatformIncident("i", "c1", "storage", "started"), 0)) == "c1"
    assert processor.key_of(event(NodeActed("n1", "c1", "cordon", "jo", planned=False), 0)) is None


def test_a_count_is_as_old_as_the_oldest_of_its_lanes() -> None:
    told = Told()
    told.count(0, 1, covered=4, on_time=4)
    told.count(1, 1, covered=6, on_time=3)
    told.count(0, 2, covered=4, on_time=2)
    told.count(1, 2, covered=6, on_time=6)
    assert told.censuses() == [
        ClusterCensus("c1", at_ms(1), 4, 4),
        ClusterCensus("c1", at_ms(2), 10, 8),
    ]


def test_a_lane_that_stands_still_holds_the_count_up_and_is_left_out_after_a_quarter_of_an_hour() -> None:
    told = Told()
    for minute in range(1, 20):
        told.count(0, minute, covered=4, on_time=4)
        if minute <= 2:
            told.count(1, minute, covered=6, on_time=6)
    minutes = [(census.at_ms - at_ms(0)) // MINUTE_MS for census in told.censuses()]
    assert minutes == [1, 2, 18, 19]
    assert told.censuses()[-1].covered == 4


def test_the_clock_is_announced_to_every_lane() -> None:
    emits = FleetContextProcessor(beat_every_ms=1000).survey(at_ms(3), (), lane=0)
    assert [emit.data for emit in emits] == [ContextChange("", at_ms(3), beats=True)]
    assert FleetContextProcessor().survey_every_ms is None
