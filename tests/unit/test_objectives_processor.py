"""The objectives processor: exact rolling counters, what it writes and when."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faultlens.clock import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from faultlens.codec import Event
from faultlens.events import FleetTime, SloStatus
from faultlens.internal import Sample, UseSample
from faultlens.objectives import load_objectives
from streams.context import Context
from streams.objectives import ObjectivesProcessor, sample_key
from streams.objectives.counters import Counters, Recent, aged, counted, figures, window_start_ms
from streams.objectives.fleet import FleetHours
from streams.processor import Effects, Emit

PROCESSOR = ObjectivesProcessor(load_objectives())
NOW = 1_795_406_400_000  # a full hour
NOTHING = Context()


def sample(good: int, bad: int = 0, *, cause: str = "hardware", **changes: Any) -> Sample:
    by_cause = {cause: bad} if bad else {}
    whole = Sample("job_success", "c1", NOW, NOW, good, good + bad, by_cause)
    return msgspec.structs.replace(whole, **changes)


class Lane:
    """One lane of the processor, with its keys and its clock."""

    def __init__(self) -> None:
        self.now_ms = NOW
        self.states: dict[str, msgspec.Struct] = {}
        self.wakes: dict[str, int] = {}
        self.emits: list[Emit] = []

    def take(self, data: Sample | UseSample, at_ms: int | None = None) -> None:
        self.advance(self.now_ms if at_ms is None else at_ms)
        event = Event("sample", "test", "id", "subject", self.now_ms, data)
        key = PROCESSOR.key_of(event)
        assert key is not None
        self._apply(key, PROCESSOR.on_event(event, self.now_ms, NOTHING, self.states.get(key)))

    def advance(self, to_ms: int) -> None:
        while self.wakes and min(self.wakes.values()) <= to_ms:
            key = min(self.wakes, key=lambda key: (self.wakes[key], key))
            self.now_ms = max(self.now_ms, self.wakes[key])
            self._apply(key, PROCESSOR.on_time(key, self.now_ms, NOTHING, self.states[key]))
        self.now_ms = max(self.now_ms, to_ms)

    def finish(self) -> None:
        for key, state in sorted(self.states.items()):
            self._apply(key, PROCESSOR.on_end(key, self.now_ms, NOTHING, state))

    def _apply(self, key: str, effects: Effects) -> None:
        state = effects.state
        self.emits += effects.emits
        self.wakes.pop(key, None)
        if state is None:
            self.states.pop(key)
            return
        # What a live worker writes and reads back must be the same state.
        self.states[key] = msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=Counters | FleetHours)
        assert self.states[key] == state
        if effects.wake_ms is not None:
            assert effects.wake_ms > self.now_ms
            self.wakes[key] = effects.wake_ms

    @property
    def statuses(self) -> list[SloStatus]:
        return [emit.data for emit in self.emits if isinstance(emit.data, SloStatus)]

    @property
    def hours(self) -> list[FleetTime]:
        return [emit.data for emit in self.emits if isinstance(emit.data, FleetTime)]


# --- what is written -------------------------------------------------------------------------------------


def test_counts_are_told_as_they_are() -> None:
    lane = Lane()
    lane.take(sample(3))
    lane.take(sample(0, 1, cause="platform"))
    lane.finish()
    status = lane.statuses[-1]
    assert (status.objective, status.unit, status.window) == ("job_success", "attempts", "P28D")
    assert (status.good, status.total, status.attained, status.by_cause) == (3.0, 4.0, 0.75, {"platform": 1.0})
    assert status.budget_remaining == pytest.approx(1 - 1 / (4 * 0.005))
    assert status.burn["PT1H"] == pytest.approx(0.25 / 0.005)
    assert {"PT1H", "PT6H", "P1D", "P3D"} <= set(status.burn)


def test_time_is_told_in_seconds() -> None:
    lane = Lane()
    lane.take(Sample("node_availability", "c1", NOW, NOW + 1500, 1000, 1500, {"driver": 500}, pool="h100"))
    lane.finish()
    status = lane.statuses[-1]
    assert (status.good, status.total, status.by_cause, status.scope.pool) == (1.0, 1.5, {"driver": 0.5}, "h100")


def test_planned_maintenance_leaves_the_worked_example_at_six_sevenths() -> None:
    lane = Lane()
    lane.take(
        Sample("gpu_availability", "c1", NOW, NOW + 4 * HOUR_MS, 48 * HOUR_MS, 56 * HOUR_MS, {"overhead": 8 * HOUR_MS})
    )
    lane.finish()
    assert lane.statuses[-1].attained == pytest.approx(1 - 8 / (64 - 8))


def test_without_anything_that_counts_nothing_is_attained_and_nothing_burns() -> None:
    lane = Lane()
    lane.take(sample(0, assumed_out=1))
    lane.finish()
    status = lane.statuses[-1]
    assert (status.total, status.attained, status.budget_remaining) == (0.0, None, None)
    assert set(status.burn.values()) == {0.0}
    assert (status.bounds and status.bounds.low) == 0.0


def test_bounds_move_what_is_assumed_to_either_side() -> None:
    lane = Lane()
    lane.take(sample(6, 2, assumed_bad=1, assumed_out=4))
    lane.finish()
    bounds = lane.statuses[-1].bounds
    assert bounds is not None
    assert (bounds.low, bounds.high) == (6 / 12, 6 / 7)


def test_the_record_is_keyed_by_objective_and_has_an_id_of_its_own() -> None:
    lane = Lane()
    lane.take(sample(1))
    lane.take(sample(1, team="nlp"))
    lane.finish()
    assert {(emit.topic, emit.key) for emit in lane.emits} == {("slo-status", "job_success")}
    assert len({emit.id for emit in lane.emits}) == 2


def test_samples_of_an_objective_that_nobody_promised_are_not_for_this_processor() -> None:
    event = Event("sample", "test", "id", "latency", NOW, sample(1, objective="latency"))
    assert PROCESSOR.key_of(event) is None


# --- when it is written ----------------------------------------------------------------------------------


def test_a_status_is_written_at_the_next_full_five_minutes_and_not_before() -> None:
    lane = Lane()
    for second in range(0, 300, 10):
        lane.take(sample(1), NOW + second * SECOND_MS)
    assert lane.emits == []
    lane.advance(NOW + 5 * MINUTE_MS)
    assert [(emit.time_ms, status.total) for emit, status in zip(lane.emits, lane.statuses, strict=True)] == [
        (NOW + 5 * MINUTE_MS, 30.0)
    ]


def test_what_does_not_change_is_not_written_again() -> None:
    lane = Lane()
    lane.take(sample(1))
    lane.advance(NOW + 12 * HOUR_MS)
    lane.finish()
    assert len(lane.statuses) == 1


def test_burn_rates_go_down_when_nothing_more_happens() -> None:
    lane = Lane()
    lane.take(sample(9, 1))
    lane.advance(NOW + 4 * DAY_MS)
    assert lane.statuses[0].burn["PT1H"] > 0
    assert lane.statuses[-1].burn == dict.fromkeys(lane.statuses[-1].burn, 0.0)
    assert lane.statuses[-1].by_cause == {"hardware": 1.0}
    times = [emit.time_ms for emit in lane.emits]
    assert all(after - before >= 5 * MINUTE_MS for before, after in pairwise(times))


def test_what_leaves_the_window_leaves_the_status_and_then_the_memory() -> None:
    lane = Lane()
    lane.take(sample(9, 1))
    lane.advance(NOW + 29 * DAY_MS)
    assert lane.statuses[-1].total == 0.0
    assert lane.states == {}


def test_the_end_writes_what_is_known_even_at_the_time_of_a_status() -> None:
    lane = Lane()
    lane.take(sample(1))
    lane.advance(NOW + 5 * MINUTE_MS)
    lane.take(sample(1))
    lane.finish()
    assert [status.total for status in lane.statuses] == [1.0, 2.0]
    assert lane.emits[0].time_ms < lane.emits[1].time_ms
    assert lane.emits[0].id != lane.emits[1].id


def test_one_nodes_trouble_is_measured_against_the_fleet_that_has_not_reported_yet() -> None:
    lane = Lane()
    fleet_ms = 100 * HOUR_MS
    for hour in range(3):
        begin = NOW + hour * HOUR_MS
        lane.take(Sample("node_availability", "c1", begin, begin + HOUR_MS, fleet_ms, fleet_ms), begin + HOUR_MS)
    begin, end = lane.now_ms + 10 * MINUTE_MS, lane.now_ms + 40 * MINUTE_MS
    lane.take(Sample("node_availability", "c1", begin, end, 0, end - begin, {"hardware": end - begin}), end)
    lane.finish()
    assert lane.statuses[-1].burn["PT1H"] == pytest.approx(0.5 / 100 / 0.0005)


# --- exact counters --------------------------------------------------------------------------------------

spans = st.tuples(st.integers(-40 * DAY_MS, DAY_MS), st.integers(0, 3 * HOUR_MS)).map(
    lambda span: (NOW + span[0], NOW + span[0] + span[1])
)
amounts = st.integers(0, 10**9)
samples = st.builds(
    lambda span, good, bad, cause: Sample(
        "goodput", "c1", span[0], span[1], good, good + bad, {cause: bad} if bad else {}
    ),
    spans,
    amounts,
    amounts,
    st.sampled_from(["hardware", "driver", "platform", "user", "overhead"]),
)


def negative(said: Sample) -> Sample:
    by_cause = {name: -amount for name, amount in said.by_cause.items()}
    return msgspec.structs.replace(said, good=-said.good, total=-said.total, by_cause=by_cause)


def fed(told: Sequence[Sample], nows: Sequence[int]) -> Counters:
    counters = Counters("goodput", "c1")
    for said, now_ms in zip(told, nows, strict=True):
        counters = counted(counters, said, now_ms, 28 * DAY_MS)
    return counters


@given(st.lists(samples, max_size=12), st.lists(st.integers(0, 12 * HOUR_MS), min_size=12, max_size=12))
def test_counters_hold_exactly_what_lies_in_the_window(told: list[Sample], steps: list[int]) -> None:
    nows = [NOW + DAY_MS + sum(steps[: index + 1]) for index in range(len(told))]
    counters = aged(fed(told, nows), NOW + 10 * DAY_MS, 28 * DAY_MS)
    start_ms = window_start_ms(NOW + 10 * DAY_MS, 28 * DAY_MS)
    good, by_cause = 0, Counter[str]()
    for said in told:
        span_ms = said.to_ms - said.from_ms
        ahead_ms = min(span_ms, max(0, start_ms - said.from_ms))
        if span_ms == 0:
            if said.from_ms >= start_ms:
                good += said.good
                by_cause.update(said.by_cause)
            continue
        good += said.good - said.good * ahead_ms // span_ms
        for name, amount in said.by_cause.items():
            by_cause[name] += amount - amount * ahead_ms // span_ms
    found = figures(counters)
    assert (found.good, found.by_cause) == (good, +by_cause)
    assert Recent(counters, 0).since(0) == (found.total, found.bad)


@given(st.lists(samples, max_size=8), st.data())
def test_taking_back_what_was_said_leaves_nothing_whenever_it_is_done(told: list[Sample], data: st.DataObject) -> None:
    back = data.draw(st.permutations([negative(said) for said in told]))
    nows = sorted(data.draw(st.lists(st.integers(0, 9 * DAY_MS), min_size=2 * len(told), max_size=2 * len(told))))
    counters = fed([*told, *back], [NOW + DAY_MS + now_ms for now_ms in nows])
    last_ms = NOW + DAY_MS + (nows[-1] if nows else 0)
    counters = aged(counters, last_ms, 28 * DAY_MS)
    assert (counters.sums, counters.minutes, counters.hours) == ((), {}, {})


@given(st.lists(samples, max_size=10))
def test_good_never_exceeds_the_total_and_causes_add_up_in_every_status(told: list[Sample]) -> None:
    lane = Lane()
    for number, said in enumerate(told):
        lane.take(said, NOW + DAY_MS + number * 7 * MINUTE_MS)
    lane.finish()
    for status in lane.statuses:
        assert 0 <= status.good <= status.total
        assert sum(status.by_cause.values()) == pytest.approx(status.total - status.good)
        assert status.attained is None or 0 <= status.attained <= 1


@settings(max_examples=20)
@given(st.lists(samples, min_size=1, max_size=6), st.permutations(range(6)))
def test_the_order_of_samples_does_not_matter(told: list[Sample], order: list[int]) -> None:
    now_ms = NOW + DAY_MS
    shuffled = [told[index] for index in order if index < len(told)]
    one, other = fed(told, [now_ms] * len(told)), fed(shuffled, [now_ms] * len(told))
    assert (one.sums, one.minutes, one.hours) == (other.sums, other.minutes, other.hours)


def test_a_full_window_of_a_large_fleet_fits_into_its_record() -> None:
    counters = Counters("gpu_availability", "a-cluster-with-a-name", pool="a-pool-with-a-name")
    gpus = 30_000
    causes = dict.fromkeys(("hardware", "driver", "platform", "user", "overhead"), gpus * HOUR_MS // 10)
    for hour in range(28 * 24 + 7):
        begin = NOW + hour * HOUR_MS
        said = Sample("gpu_availability", "c", begin, begin + HOUR_MS, gpus * HOUR_MS // 2, gpus * HOUR_MS, causes)
        counters = counted(counters, said, begin + HOUR_MS, 28 * DAY_MS)
    assert len(msgspec.msgpack.encode(counters)) < 64 * 1024
    assert len(counters.hours) <= 28 * 24 + 1
    assert len(counters.minutes) <= 7 * 60


# --- the fleet's hours -----------------------------------------------------------------------------------


def use(from_ms: int, to_ms: int, pool: str | None = None, **gpus: int) -> UseSample:
    return UseSample("c1", from_ms, to_ms, {name: count * (to_ms - from_ms) for name, count in gpus.items()}, pool)


def test_an_hour_is_told_soon_after_its_end_with_every_gpu_second() -> None:
    lane = Lane()
    lane.take(use(NOW, NOW + HOUR_MS, allocated=6, idle_healthy=2), NOW + HOUR_MS)
    lane.take(use(NOW, NOW + HOUR_MS, allocated=8))
    assert lane.hours == []
    lane.advance(NOW + HOUR_MS + 5 * MINUTE_MS)
    assert [hour.gpu_seconds for hour in lane.hours] == [{"allocated": 14 * 3600.0, "idle_healthy": 2 * 3600.0}]
    assert (lane.emits[0].topic, lane.emits[0].key) == ("fleet-time", "c1")
    assert (lane.hours[0].stop - lane.hours[0].start).total_seconds() == 3600


def test_a_late_word_replaces_the_hour_and_the_end_tells_the_unfinished_one() -> None:
    lane = Lane()
    lane.take(use(NOW, NOW + HOUR_MS, "h100", allocated=6), NOW + HOUR_MS)
    lane.advance(NOW + HOUR_MS + 10 * MINUTE_MS)
    lane.take(use(NOW + 30 * MINUTE_MS, NOW + HOUR_MS + 10 * MINUTE_MS, "h100", down=1))
    lane.finish()
    assert [(hour.pool, hour.gpu_seconds) for hour in lane.hours] == [
        ("h100", {"allocated": 6 * 3600.0}),
        ("h100", {"allocated": 6 * 3600.0, "down": 1800.0}),
        ("h100", {"down": 600.0}),
    ]
    assert len({emit.id for emit in lane.emits}) == 3


def test_hours_that_are_no_longer_kept_are_only_counted() -> None:
    lane = Lane()
    lane.take(use(NOW - 60 * HOUR_MS, NOW - 59 * HOUR_MS, allocated=8))
    lane.finish()
    assert lane.hours == []
    state = lane.states[sample_key(use(0, 1))]
    assert isinstance(state, FleetHours)
    assert state.late == 1


@given(st.lists(st.tuples(st.integers(0, 6 * HOUR_MS), st.integers(1, 5 * HOUR_MS), st.integers(1, 16)), max_size=8))
def test_the_hours_add_up_to_what_was_told(told: list[tuple[int, int, int]]) -> None:
    lane = Lane()
    for begin, span, gpus in told:
        lane.take(use(NOW + begin, NOW + begin + span, allocated=gpus))
    lane.advance(NOW + 12 * HOUR_MS)
    last = {hour.start: hour.gpu_seconds["allocated"] for hour in lane.hours}
    assert sum(last.values()) == pytest.approx(sum(span * gpus for _, span, gpus in told) / 1000)
