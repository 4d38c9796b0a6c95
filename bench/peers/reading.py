"""What others take to read a topic: `python reading.py PEER BROKERS TOPIC RECORDS`; prints JSON. Needs no faultlens."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import uuid
from collections.abc import Callable
from time import perf_counter
from typing import Any

GROUP = f"peer-{uuid.uuid4().hex[:8]}"
AT_ONCE = 500


class Meter:
    """Times what lies between the first records and the last: on the wall, and the CPU of the whole process."""

    def __init__(self, records: int) -> None:
        self._left = records
        self._counted = 0
        self._began_s = self._used_s = 0.0

    def saw(self, count: int) -> None:
        """Count records; the process ends with the last one."""
        if not self._began_s:
            # What came first was fetched before: it is what the clock starts with.
            self._began_s, self._used_s = perf_counter(), cpu_s()
            self._left -= count
            return
        self._left -= count
        self._counted += count
        if self._left <= 0:
            self._tell()

    def _tell(self) -> None:
        took_s, used_s = perf_counter() - self._began_s, cpu_s() - self._used_s
        said = {
            "records_a_second": round(self._counted / took_s),
            "cpu_us_a_record": round(1e6 * used_s / self._counted, 1),
        }
        sys.stdout.write(json.dumps(said) + "\n")
        sys.stdout.flush()
        # Nobody is to leave a group, flush or commit any more: that is not what is timed.
        os._exit(0)


def cpu_s() -> float:
    """Return the processor time of this process so far, all threads, in seconds."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def confluent(brokers: str, topic: str, meter: Meter) -> None:
    """Read by librdkafka's client, 500 records at once."""
    from confluent_kafka import Consumer

    consumer = Consumer({"bootstrap.servers": brokers, "group.id": GROUP, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    while True:
        messages = consumer.consume(AT_ONCE, 1.0)
        if messages:
            meter.saw(len(messages))


def aiokafka(brokers: str, topic: str, meter: Meter) -> None:
    """Read by aiokafka, 500 records at once."""
    from aiokafka import AIOKafkaConsumer

    async def read() -> None:
        consumer = AIOKafkaConsumer(topic, bootstrap_servers=brokers, group_id=GROUP, auto_offset_reset="earliest")
        await consumer.start()
        while True:
            fetched = await consumer.getmany(timeout_ms=1000, max_records=AT_ONCE)
            if fetched:
                meter.saw(sum(map(len, fetched.values())))

    asyncio.run(read())


def faust(brokers: str, topic: str, meter: Meter) -> None:
    """Count the records of each key in a table, one event after the other, as Faust's guide does."""
    import faust as stock

    app = stock.App(
        GROUP,
        broker=f"kafka://{brokers}",
        store="memory://",
        key_serializer="raw",
        value_serializer="raw",
        consumer_auto_offset_reset="earliest",
        topic_partitions=int(os.environ["PEER_PARTITIONS"]),
        topic_replication_factor=1,
        web_enabled=False,
    )
    counts = app.Table("counts", default=int, key_type=str, value_type=int)

    async def count(stream: Any) -> None:
        async for event in stream.events():
            counts[event.key.decode()] += 1
            meter.saw(1)

    app.agent(app.topic(topic))(count)
    stock.Worker(app, quiet=True, redirect_stdouts=False, loglevel="ERROR").execute_from_commandline()


def quix(brokers: str, topic: str, meter: Meter) -> None:
    """Hand each record through a data frame that leaves it as it is."""
    from quixstreams import Application

    app = Application(broker_address=brokers, consumer_group=GROUP, auto_offset_reset="earliest", loglevel="ERROR")
    frame = app.dataframe(app.topic(topic, key_deserializer="bytes", value_deserializer="bytes"))
    frame.apply(lambda value: value).update(lambda _: meter.saw(1))
    app.run()


def bytewax(brokers: str, topic: str, meter: Meter) -> None:
    """Hand each batch through a flow that leaves it as it is."""
    import bytewax.operators as op
    from bytewax.connectors.kafka import KafkaSource
    from bytewax.dataflow import Dataflow
    from bytewax.outputs import DynamicSink, StatelessSinkPartition
    from bytewax.testing import run_main

    class Counted(StatelessSinkPartition[Any]):  # type: ignore[misc]
        def write_batch(self, items: list[Any]) -> None:
            meter.saw(len(items))

    class Counting(DynamicSink[Any]):  # type: ignore[misc]
        def build(self, step_id: str, worker_index: int, worker_count: int) -> Counted:
            return Counted()

    flow = Dataflow("peer")
    records = op.input("read", flow, KafkaSource([brokers], [topic], tail=False, batch_size=AT_ONCE))
    op.output("count", op.map("pass", records, lambda record: record), Counting())
    run_main(flow)


PEERS: dict[str, Callable[[str, str, Meter], None]] = {
    "aiokafka": aiokafka,
    "confluent": confluent,
    "faust": faust,
    "quix": quix,
    "bytewax": bytewax,
}

if __name__ == "__main__":
    peer, brokers_, topic_, records_ = sys.argv[1:]
    PEERS[peer](brokers_, topic_, Meter(int(records_)))
