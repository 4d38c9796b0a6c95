"""The ledger added up by the hour is exactly what its records say, whenever and however often they are written."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from faultlens.clock import HOUR_MS, MINUTE_MS, parse_moment
from faultlens.store import Store, StoreBusyError, open_store
from sinks.delivery import Delivery, Load
from sinks.hours import LEDGER, AddingUp, add_up, at_once
from sinks.log import Taken
from sinks.migrate import load_migrations, migrate, statements
from sinks.runs import RUNS_TABLE, Run
from sinks.tables import TABLES, GpuTime

pytest.importorskip("chdb", reason="chDB is not installed (extra `store`)")
pytestmark = pytest.mark.store

MON = parse_moment("2026-11-23T00:00:00Z")
COLUMNS = TABLES[GpuTime].columns
KEPT = "SELECT * FROM gpu_hours_latest ORDER BY ALL"
SAID = """
    SELECT hour, cluster, team, category, class, code, sum(gpu_ms) AS gpu_ms, sum(wall_ms) AS wall_ms
    FROM gpu_time_latest GROUP BY hour, cluster, team, category, class, code ORDER BY ALL"""


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with open_store(f"chdb://{tmp_path_factory.mktemp('hours') / 'store'}") as store:
        migrate(store)
        yield store


@pytest.fixture
def store(opened: Store) -> Store:
    for table in (LEDGER, "gpu_hours", "gpu_hours_due"):
        opened.command(f"TRUNCATE TABLE {table}")
    return opened


class Nobody:
    """Nothing is sent and nothing happens to deliveries."""

    def send(self, letters: object) -> None:
        raise AssertionError(letters)

    def retrying(self, error: StoreBusyError, attempt: int, wait_s: float) -> None:
        raise error

    def recovered(self, attempts: int) -> None:
        raise AssertionError(attempts)

    def refused(self, topic: str, error: str) -> None:
        raise AssertionError(error)

    def close(self) -> None:
        pass


def record(revision: int, start_min: int, stop_min: int, category: str, *, job: str = "j", gpus: int = 8) -> GpuTime:
    """A record within the first hour of Monday, or the second; minutes since it began."""
    hour = start_min // 60
    charged = ("hardware", "gpu.off_bus") if category == "lost_work" else ("", "")
    start_ms, stop_ms = MON + start_min * MINUTE_MS, MON + min(stop_min, (hour + 1) * 60) * MINUTE_MS
    return GpuTime(
        job, 1, MON + hour * HOUR_MS, revision, start_ms, stop_ms, "c1", "nlp", category, gpus, *charged,
        MON + revision,
    )  # fmt: skip


def amounts(store: Store) -> dict[str, int]:
    return {row["category"]: row["gpu_ms"] // (8 * MINUTE_MS) for row in store.query(KEPT)}


def test_an_amendment_takes_an_hours_old_rows_out_and_a_repetition_changes_nothing(store: Store) -> None:
    whole = AddingUp(store)
    whole.insert(LEDGER, COLUMNS, [record(1, 0, 30, "productive"), record(2, 30, 60, "productive")])
    whole.settle()
    assert amounts(store) == {"productive": 60}
    late = [record(3, 0, 60, "lost_work")]
    for _ in range(2):
        whole.insert(LEDGER, COLUMNS, late)
        whole.settle()
        assert amounts(store) == {"lost_work": 60}
    assert store.query(KEPT) == store.query(SAID)


def test_only_hours_that_were_written_to_are_added_up_again(store: Store) -> None:
    whole = AddingUp(store)
    whole.insert(LEDGER, COLUMNS, [record(1, 0, 60, "productive"), record(1, 60, 120, "productive")])
    assert add_up(store) == 2
    assert add_up(store) == 0
    whole.insert(LEDGER, COLUMNS, [record(2, 60, 90, "stalled")])
    assert add_up(store) == 1
    assert add_up(store, others_s=3_600) == 2


def test_what_a_writer_left_when_it_was_killed_is_added_up_by_the_next(store: Store) -> None:
    AddingUp(store).insert(LEDGER, COLUMNS, [record(1, 0, 60, "productive")])
    assert amounts(store) == {}
    AddingUp(store).settle()
    assert amounts(store) == {"productive": 60}


def test_a_store_of_before_is_added_up_by_the_first_that_writes(store: Store) -> None:
    store.insert(LEDGER, COLUMNS, [record(1, 0, 60, "productive")])
    marking = [text for text in statements(load_migrations()[5].sql) if text.startswith("INSERT")]
    for statement in marking:
        store.command(statement)
    AddingUp(store).settle()
    assert amounts(store) == {"productive": 60}


def test_beside_a_stream_it_rests_between(store: Store) -> None:
    now = [100.0]
    whole = AddingUp(store, clock_s=lambda: now[0])
    for minute, expected in ((0, {"productive": 1}), (1, {"productive": 1}), (2, {"productive": 3})):
        whole.insert(LEDGER, COLUMNS, [record(minute + 1, minute, minute + 1, "productive")])
        whole.insert(RUNS_TABLE, (), [])
        assert amounts(store) == expected
        now[0] += 20.0


def test_what_the_sink_delivers_is_added_up_after_it(store: Store) -> None:
    class Kept(AddingUp):
        def close(self) -> None:
            self.settle()

    delivery = Delivery(
        lambda: Kept(store, clock_s=lambda: 0.0), Nobody(), Nobody(), pause=lambda _: True, dice=lambda: 0.5
    )
    delivery.open()
    for offset, told in enumerate((record(1, 0, 60, "productive"), record(2, 30, 60, "lost_work"))):
        taken, run = Taken("goodput", 0, offset, MON, b""), Run(("goodput", 0), 1, offset, offset + 1, 0.0, MON, MON)
        load = Load(runs=[run])
        load.batch.put(told, (taken, run))
        delivery.deliver(load)
    assert amounts(store) == {"productive": 60}
    delivery.close()
    assert amounts(store) == {"productive": 30, "lost_work": 30}


def test_hours_are_added_up_in_groups_that_fit_into_memory() -> None:
    assert list(at_once([(1, 4), (2, 4), (3, 4), (4, 30), (5, 1)], 10)) == [[1, 2], [3], [4], [5]]
    assert list(at_once([])) == []


Written = st.tuples(
    st.sampled_from(["a", "b"]), st.integers(0, 119), st.integers(1, 60), st.sampled_from(["productive", "lost_work"]),
    st.integers(0, 9),
)  # fmt: skip


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.lists(Written, min_size=1, max_size=4), min_size=1, max_size=6), st.randoms())
def test_whatever_is_written_in_any_order_both_say_the_same(
    store: Store, told: list[list[tuple[str, int, int, str, int]]], dice: random.Random
) -> None:
    whole = AddingUp(store)
    batches = [
        [
            record(revision, start, start + length, category, job=job, gpus=gpus)
            for job, start, length, category, gpus in batch
        ]
        for revision, batch in enumerate(told, start=1)
    ]
    dice.shuffle(batches)
    for batch in [*batches, batches[0]]:
        whole.insert(LEDGER, COLUMNS, batch)
        if dice.random() < 0.5:
            whole.settle()
    whole.settle()
    assert store.query(KEPT) == store.query(SAID)
