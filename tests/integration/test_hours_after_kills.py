"""Sinks that are killed at each point of a delivery: the ledger's hours say what its records say, each counted once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, TypeVar

import pytest

pytest.importorskip("chdb", reason="chDB is not installed (extra `store`)")

from faultlens.clock import HOUR_MS, MINUTE_MS, moment_of, parse_moment
from faultlens.codec import encode, event_of
from faultlens.events import Category, Cause, JobTime
from faultlens.meters import SinkMeters
from faultlens.store import Store, open_store
from sinks.delivery import Delivery
from sinks.hours import AddingUp
from sinks.intake import Intake
from sinks.memory_log import MemoryBroker, MemoryLetters, MemoryLog
from sinks.migrate import migrate
from sinks.sink import Limits, Sink
from tests.clickhouse.front import Server
from tests.simulation.sinking import Inline, KilledError, Silent

pytestmark = pytest.mark.store

MON = parse_moment("2026-11-23T00:00:00Z")
KEPT = "SELECT * FROM gpu_hours_latest ORDER BY ALL"
SAID = """
    SELECT hour, cluster, team, category, class, code, sum(gpu_ms) AS gpu_ms, sum(wall_ms) AS wall_ms
    FROM gpu_time_latest GROUP BY hour, cluster, team, category, class, code ORDER BY ALL"""
FIRST_DELIVERY = 5
GPU_MIN_MS = 8 * MINUTE_MS
Dies = Callable[[int], bool]
Answer = TypeVar("Answer")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    server = Server(tmp_path_factory.mktemp("server") / "engine")
    server.begin()
    with open_store(f"clickhouse://127.0.0.1:{server.server_port}") as store:
        migrate(store)
        yield store
    server.end()


class Mortal:
    """The store as a process reaches it that is killed when one of its calls was carried out."""

    def __init__(self, store: Store, dies: Dies) -> None:
        self._store = store
        self._dies = dies
        self.calls = 0

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[object]], token: str = "") -> int:
        return self._carried_out(lambda: self._store.insert(table, columns, rows, token))

    def command(self, sql: str, params: Mapping[str, object] | None = None) -> None:
        self._carried_out(lambda: self._store.command(sql, params))

    def query(self, sql: str, params: Mapping[str, object] | None = None) -> list[dict[str, Any]]:
        return self._carried_out(lambda: self._store.query(sql, params))

    def close(self) -> None:
        """Leave it open for the next one."""

    def _carried_out(self, work: Callable[[], Answer]) -> Answer:
        self.calls += 1
        done = work()
        if self._dies(self.calls):
            raise KilledError
        return done


def ledger(begins_ms: int, revision: int, from_min: int, to_min: int, category: Category) -> bytes:
    cause = Cause("hardware", "gpu.off_bus") if category == "lost_work" else None
    start, stop = (moment_of(begins_ms + minute * MINUTE_MS) for minute in (from_min, to_min))
    data = JobTime(f"j{begins_ms}", 1, revision, "c1", category, start, stop, 8, "nlp", cause)
    return encode(event_of(data, source="faultlens/job", id_=f"r{revision}", time_ms=begins_ms + to_min * MINUTE_MS))


def taken_by_a_sink(broker: MemoryBroker, store: Mortal) -> None:
    """Let a sink take what there is, add it up, and end well, unless it dies."""
    log = MemoryLog(broker, ["goodput"], "sink")
    ticks = count(step=3_600)
    delivery = Delivery(
        lambda: AddingUp(store, clock_s=lambda: float(next(ticks))), MemoryLetters(), Silent(),
        pause=lambda _: True, dice=lambda: 0.5,
    )  # fmt: skip
    try:
        sink = Sink(log, delivery, Inline(), SinkMeters(), limits=Limits(age_s=0.0), intake=Intake())
        for now_s in range(4):
            sink.turn(float(now_s))
        delivery.close()
    finally:
        log.close()


def story(store: Store, number: int, dies: Dies, between: Callable[[], None] = lambda: None) -> int:
    """Write two hours of their own, then an amendment of them, by a sink that may die; return how often it called."""
    broker, mortal, begins_ms = MemoryBroker({"goodput": 1}), Mortal(store, dies), MON + number * 2 * HOUR_MS
    first = [ledger(begins_ms, 1, 0, 60, "productive"), ledger(begins_ms, 2, 60, 120, "productive")]
    for values in (first, [ledger(begins_ms, 3, 30, 90, "lost_work")]):
        for value in values:
            broker.append(("goodput", 0), value, at_ms=begins_ms + 2 * HOUR_MS)
        try:
            taken_by_a_sink(broker, mortal)
        except KilledError:
            between()
            taken_by_a_sink(broker, mortal)
    return mortal.calls


def assert_each_counts_once(store: Store, number: int) -> None:
    kept = store.query(KEPT)
    assert kept == store.query(SAID)
    hours = [moment_of(MON + (number * 2 + hour) * HOUR_MS) for hour in (0, 1)]
    told = [(row["category"], row["gpu_ms"] // GPU_MIN_MS) for row in kept if row["hour"] in hours]
    assert sorted(told) == [("lost_work", 30), ("lost_work", 30), ("productive", 30), ("productive", 30)]


def test_killed_after_any_call_to_the_store_the_next_one_makes_the_hours_right(store: Store) -> None:
    calls = story(store, 0, lambda _call: False)
    assert_each_counts_once(store, 0)
    # All of the first delivery: marked, rows in, runs noted, what is due asked, added up; and the next one's first.
    assert calls > FIRST_DELIVERY
    for fatal in range(1, FIRST_DELIVERY + 2):
        story(store, fatal, lambda call, fatal=fatal: call == fatal)  # type: ignore[misc]
        assert_each_counts_once(store, fatal)


def test_what_another_sink_added_up_between_does_not_stay(store: Store) -> None:
    def other() -> None:
        AddingUp(store, clock_s=lambda: 0.0).settle()

    # Dead with the hours marked, with the rows in, with the runs noted.
    for fatal in (1, 2, 3):
        story(store, 100 + fatal, lambda call, fatal=fatal: call == fatal, other)  # type: ignore[misc]
        assert_each_counts_once(store, 100 + fatal)
