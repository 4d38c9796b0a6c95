"""What the sink costs beside a bare consumer and a bare insert, on a real Kafka, in one run: `python bench/sink.py`."""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from faultlens.codec import encode, event_of
from faultlens.events import Check, NodeHealth
from faultlens.kafka import Connection, client_config, consumer_config, producer_config
from faultlens.meters import SinkMeters
from faultlens.store import Store, open_store
from faultlens.topics import NODE_EVENTS
from sinks.intake import SUNK
from sinks.kafka import KafkaLetters, KafkaLog
from sinks.migrate import migrate
from sinks.running import Plan, run
from sinks.tables import TABLES, RawEvent
from sinks.writer import MAX_ROWS

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.kafka.cluster import Cluster
from tests.kafka.jars import jars

EVENTS: Final = 100_000
NODES: Final = 2_000
PARTITIONS: Final = 8
ROUNDS: Final = 3
CHECKS: Final = ("gpu_count", "driver_responds", "ecc", "nvlink", "efa_links", "kernel_log", "thermal", "local_disk")
START_MS: Final = 1_795_000_000_000


def fill(connection: Connection) -> int:
    """Make the topics, write a fleet's reports, and return the bytes of one."""
    administrator = AdminClient(client_config(connection))
    stamped = {"message.timestamp.type": "LogAppendTime"}
    wanted = [NewTopic(name, PARTITIONS, 1, config=stamped) for name in SUNK]
    for made in administrator.create_topics(wanted).values():
        made.result(30)
    producer = Producer(producer_config(connection))
    now_ms = int(time.time_ns() // 1_000_000)
    checks = tuple(Check(name, "gpu", "pass", duration_ms=12.5) for name in CHECKS)
    size = 0
    for number in range(EVENTS):
        node = f"node-{number % NODES:04}"
        data = NodeHealth(
            node, "c1", 30.0, 8, 8, checks, pool="train", boot_id=f"boot-{node}", domains={"rack": node[:7]},
            gpu_family="H100",
        )  # fmt: skip
        event = event_of(data, source=f"agent/{node}", id_=f"{node}-{number}", time_ms=now_ms + number // NODES)
        value = encode(event)
        size = len(value)
        producer.produce(NODE_EVENTS, value, node)
        if number % 1_000 == 0:
            producer.poll(0)
    producer.flush(60)
    return size


def consume(connection: Connection, group: str) -> Iterator[list[Any]]:
    """Yield the topic's messages as a bare consumer gets them."""
    consumer = Consumer(consumer_config(connection, group) | {"fetch.wait.max.ms": 100})
    consumer.subscribe([NODE_EVENTS])
    left = EVENTS
    while left:
        messages = consumer.consume(min(5_000, left), 0.5)
        left -= len(messages)
        yield messages
    consumer.close()


def bare_consume(connection: Connection, _: Store, group: str) -> None:
    """Read all, do nothing."""
    for _messages in consume(connection, group):
        pass


def bare_pass(connection: Connection, store: Store, group: str) -> None:
    """Read all and insert the bytes as they are: no check, no key, no commit."""
    table, rows = TABLES[RawEvent], []
    for messages in consume(connection, group):
        rows += [
            RawEvent("t", "s", f"{each.partition()}-{each.offset()}", "n", START_MS, START_MS, each.value().decode())
            for each in messages
        ]
        if len(rows) >= MAX_ROWS:
            store.insert(table.name, table.columns, rows)
            rows = []
    store.insert(table.name, table.columns, rows)


def sink(connection: Connection, store: Store, group: str) -> None:
    """Read, decode, check, insert with tokens and runs, commit."""
    meters = SinkMeters()
    done = run(
        KafkaLog(connection, SUNK, group),
        KafkaLetters(connection),
        lambda: Shared(store),
        meters,
        plan=Plan(until_caught_up=True),
        stopping=threading.Event(),
    )
    assert done
    assert meters.records[NODE_EVENTS] == EVENTS


class Shared:
    """A store that is not closed by who used it."""

    def __init__(self, store: Store) -> None:
        self.insert = store.insert

    def close(self) -> None:
        """Leave it open."""


def timed(work: Callable[[], None]) -> tuple[float, float]:
    """Return the elapsed and the processor's microseconds per event."""
    elapsed, busy = time.perf_counter(), time.process_time()
    work()
    scale = 1e6 / EVENTS
    return (time.perf_counter() - elapsed) * scale, (time.process_time() - busy) * scale


@contextmanager
def world() -> Iterator[tuple[Connection, Store]]:
    """Start a broker and open a store."""
    with tempfile.TemporaryDirectory() as directory:
        cluster = Cluster(Path(directory), jars())
        try:
            cluster.start()
            with open_store(str(Path(directory) / "store")) as store:
                migrate(store)
                yield Connection(cluster.bootstrap), store
        finally:
            cluster.close()


def main() -> None:
    """Print all by turns, and the ratios of the best."""
    ways = {"consume": bare_consume, "consume + insert": bare_pass, "sink": sink}
    best = dict.fromkeys(ways, (float("inf"), float("inf")))
    with world() as (connection, store):
        print(f"{EVENTS:,} reports of {fill(connection):,} bytes in {PARTITIONS} partitions")
        for turn in range(ROUNDS):
            for name, way in ways.items():
                store.command("TRUNCATE TABLE events_raw")
                figures = timed(lambda way=way, name=name, turn=turn: way(connection, store, f"{name}-{turn}"))  # type: ignore[misc]
                best[name] = min(best[name], figures)
                print(f"{name:18} {figures[0]:6.2f} us/event elapsed, {figures[1]:6.2f} us/event of processor")
    bare, ours = best["consume + insert"], best["sink"]
    print(
        f"best: {', '.join(f'{name} {1e6 / figures[0]:,.0f} records/s' for name, figures in best.items())}; "
        f"the sink takes {ours[0] / bare[0]:.2f} times the time of bare consume + insert, "
        f"{ours[1] / bare[1]:.2f} times the processor"
    )


if __name__ == "__main__":
    main()
