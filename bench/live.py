"""What live workers take, beside what others take, and how soon they answer, on a real Kafka.

Run: python bench/live.py [--nodes 100000] [--seconds 60] [--peers build/peers]. Needs Java 17; the broker's jars are
fetched once, and so is what it is compared with, into an environment of its own; `--peers ''` leaves that out.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from threading import Event, Thread
from time import monotonic, sleep
from typing import Self

import confluent_kafka as ck

from bench.peers.beside import beside, environment
from faultlens import topics
from faultlens.clock import wall_ms
from faultlens.codec import encode, event_of
from faultlens.events import Check, JobAllocated, JobEnded, JobStarted, JobSubmitted, NodeHealth, Slot
from faultlens.kafka import Connection, consumer_config, producer_config
from faultlens.kafka_topics import state_topic
from faultlens.local_roles import READS
from faultlens.topics import TYPES
from streams.live.changelog import offsets_of
from tests.kafka.cluster import Cluster
from tests.kafka.jars import jars
from tests.kafka.living import Worker, asked, faultlens, free_port, fresh_topics, running, until

PARTITIONS = 16
INTERVAL_S = 30
TURNS = 2
JOBS_A_SECOND = 2
PATIENCE_S = 600
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
CHECKS = tuple(Check(name, "gpu", "pass") for name in ("gpu_count", "driver_responds", "ecc", "nvlink", "pcie"))


def report(number: int, turn: int) -> tuple[str, str, bytes]:
    """Return a healthy node's report, with its topic and key."""
    node = f"node-{number:06d}"
    health = NodeHealth(
        node=node, cluster="c1", interval_s=INTERVAL_S, gpus_total=8, gpus_allocatable=8, checks=CHECKS,
        boot_id="b1", gpu_family="H100", driver_version="550.54.15", agent_version="1.0",
        domains={"rack": f"r{number // 16}"},
    )  # fmt: skip
    event = event_of(health, source=f"agent/{node}", id_=f"{node}-{turn}", time_ms=wall_ms())
    return topics.NODE_EVENTS, node, encode(event)


def failing_job(number: int, nodes: int) -> Iterator[tuple[str, str, bytes]]:
    """Yield what is said of a job that fails as soon as it has started."""
    job, node = f"job-{number:06d}", f"node-{number * 7 % nodes:06d}"
    for data in (
        JobSubmitted(job, "c1", "training", 8, 1, user="ann", team="nlp"),
        JobAllocated(job, 1, "c1", (Slot(node, devices=tuple(range(8))),)),
        JobStarted(job, 1),
        JobEnded(job, 1, "failed", exit_code=1, log_tail="RuntimeError: CUDA error: device-side assert triggered"),
    ):
        event = event_of(data, source="scheduler/s", id_=f"{job}-{type(data).__name__}", time_ms=wall_ms())
        yield TYPES[event.type].topic, job, encode(event)


def cpu_s(worker: Worker) -> float:
    """Return the processor time of a worker so far, in seconds."""
    assert worker.pid is not None
    fields = Path(f"/proc/{worker.pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_A_SECOND


class Sender:
    """Sends events, and knows up to where each partition has reports: ticks of workers follow behind them."""

    def __init__(self, cluster: Cluster) -> None:
        self._producer = ck.Producer(producer_config(Connection(cluster.bootstrap)))
        self.ends: dict[int, int] = {}

    def send(self, topic: str, key: str, value: bytes) -> None:
        """Send without waiting, but for room."""
        while True:
            try:
                self._producer.produce(topic, value, key, on_delivery=self._delivered)
            except BufferError:
                self._producer.poll(0.1)
            else:
                self._producer.poll(0)
                return

    def flush(self) -> None:
        """Wait until all is there."""
        assert self._producer.flush(60) == 0

    def _delivered(self, error: object, message: ck.Message) -> None:
        assert error is None
        if message.topic() == topics.NODE_EVENTS:
            self.ends[message.partition() or 0] = (message.offset() or 0) + 1


class Watch:
    """Hears of verdicts (or of another topic) as somebody does who waits for them: `heard_ms` has each key's first.

    `appended_ms` says when its broker had it, which shows it once it is committed. `about` names what a value is about,
    in place of its key; what is about nothing is not heard.
    """

    def __init__(
        self, cluster: Cluster, topic: str = topics.ATTRIBUTIONS, about: Callable[[bytes], str] | None = None
    ) -> None:
        self.heard_ms: dict[str, int] = {}
        self.appended_ms: dict[str, int] = {}
        self._about = about
        self._consumer = ck.Consumer(consumer_config(Connection(cluster.bootstrap), "bench") | {"fetch.wait.max.ms": 5})
        self._consumer.assign([ck.TopicPartition(topic, n, 0) for n in range(PARTITIONS)])
        self._over = Event()
        self._thread = Thread(target=self._hear, name="watch")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._consumer.close()

    def _hear(self) -> None:
        while not self._over.is_set():
            message = self._consumer.poll(0.05)
            if message is not None and message.error() is None:
                now_ms = wall_ms()
                about = self._about(message.value() or b"") if self._about else (message.key() or b"").decode()
                if about:
                    self.heard_ms.setdefault(about, now_ms)
                    self.appended_ms.setdefault(about, message.timestamp()[1])


class Reached:
    """Follows how far the node role's lanes say they are with the reports, in what they write of themselves."""

    def __init__(self, cluster: Cluster) -> None:
        self._consumer = ck.Consumer(consumer_config(Connection(cluster.bootstrap), "bench-reached"))
        self._consumer.assign([ck.TopicPartition(state_topic("node"), n, 0) for n in range(PARTITIONS)])
        self._next = dict.fromkeys(range(PARTITIONS), 0)

    def wait(self, ends: Mapping[int, int]) -> None:
        """Wait until all up to these offsets is done with."""
        until(lambda: all(self._read()[number] >= end for number, end in ends.items()), PATIENCE_S)

    def _read(self) -> dict[int, int]:
        for message in self._consumer.consume(100_000, 0.05):
            told = offsets_of(message.key(), message.value()) if message.error() is None else None
            if told:
                self._next[message.partition() or 0] = told.get(topics.NODE_EVENTS, 0)
        return self._next

    def close(self) -> None:
        self._consumer.close()


# --- from nothing ----------------------------------------------------------------------------------------


def from_nothing(cluster: Cluster, directory: Path) -> dict[str, float]:
    """A cluster without a topic: how long until a failure that is told as soon as it can be has its first verdict?"""
    began_s = monotonic()
    faultlens("topics", "create", "--partitions", str(PARTITIONS), "--brokers", cluster.bootstrap)
    made_s = monotonic() - began_s
    sender = Sender(cluster)
    workers = [Worker(cluster, "all", directory / "first.log")]
    with running(workers), Watch(cluster) as watch:
        for said in failing_job(0, 1):
            sender.send(*said)
        sender.flush()
        until(lambda: watch.heard_ms, PATIENCE_S, pause_s=0.02)
        took_s = monotonic() - began_s
    return {"topics_s": round(made_s, 1), "first_verdict_s": round(took_s, 1)}


# --- catching up, and being started anew -----------------------------------------------------------------


def catching_up(cluster: Cluster, directory: Path, nodes: int, lie_there: Mapping[int, int]) -> dict[str, float]:
    """What does a worker take for reports that lie there, a node's first ones and later ones; and until it is back?"""
    port = free_port()
    worker = Worker(cluster, "node", directory / "node.log", "--metrics", f"127.0.0.1:{port}", "--session-s", "6")
    found: dict[str, float] = {}
    with closing(Reached(cluster)) as reached:
        worker.start()
        until(lambda: "lanes are ours" in worker.said())
        for which in ("first", "later"):
            began_s, before_s = monotonic(), cpu_s(worker)
            reached.wait(lie_there if which == "first" else fill(cluster, nodes, TURNS))
            took_s, used_s, records = monotonic() - began_s, cpu_s(worker) - before_s, TURNS * nodes
            found[f"{which}_cpu_us_a_record"] = round(1e6 * used_s / records, 1)
            found[f"{which}_records_a_second"] = round(records / took_s)
    for how in (signal.SIGTERM, signal.SIGKILL):
        worker.end(how)
        began_s = monotonic()
        worker.start()
        until(lambda: asked(port, "/readyz") == "ok\n", PATIENCE_S)
        found[f"ready_s_after_{how.name.lower()}"] = round(monotonic() - began_s, 1)
        found["ready_cpu_s"] = round(cpu_s(worker), 1)
    worker.end()
    return found


def fill(cluster: Cluster, nodes: int, first: int = 0) -> dict[int, int]:
    """Let every node report twice, the `first` time and the one after it; return up to where partitions have them."""
    sender = Sender(cluster)
    for turn in range(first, first + TURNS):
        for number in range(nodes):
            sender.send(*report(number, turn))
    sender.flush()
    return sender.ends


# --- under load ------------------------------------------------------------------------------------------


def at_load(cluster: Cluster, directory: Path, nodes: int, seconds: int) -> dict[str, float]:
    """All roles run while every node reports every 30 s and jobs fail: what do they take, and how soon do they say?"""
    workers = [Worker(cluster, role, directory / f"{role}.log") for role in READS]
    sender = Sender(cluster)
    ended_ms: dict[str, int] = {}
    with running(workers), Watch(cluster) as watch:
        until(lambda: all("lanes are ours" in worker.said() for worker in workers))
        # Once every node has reported they are all known, as on any day but the first.
        play(sender, nodes, INTERVAL_S, {})
        with closing(Reached(cluster)) as reached:
            reached.wait(sender.ends)
        before_s = [cpu_s(worker) for worker in workers]
        play(sender, nodes, seconds, ended_ms)
        used_s = [cpu_s(worker) - before for worker, before in zip(workers, before_s, strict=True)]
        until(lambda: ended_ms.keys() <= watch.heard_ms.keys(), PATIENCE_S)
    waits = sorted(watch.heard_ms[job] - ended for job, ended in ended_ms.items())
    return {
        "reports_a_second": nodes // INTERVAL_S,
        "failures": len(waits),
        "verdict_ms_p50": share(waits, 0.5),
        "verdict_ms_p99": share(waits, 0.99),
        **{f"{worker.role}_cores": round(used / seconds, 3) for worker, used in zip(workers, used_s, strict=True)},
        "all_cores": round(sum(used_s) / seconds, 3),
    }


def share(waits: Sequence[int], part: float) -> int:
    return waits[min(len(waits) - 1, int(len(waits) * part))]


def play(sender: Sender, nodes: int, seconds: int, ended_ms: dict[str, int]) -> None:
    """Send what a fleet says in so many seconds, spread over each; `ended_ms`: when each failing job ended."""
    rate = nodes // INTERVAL_S
    pieces = 10
    began_s, number = monotonic(), 0
    for piece in range(seconds * pieces):
        while number < rate * (piece + 1) // pieces:
            sender.send(*report(number % nodes, wall_ms()))
            number += 1
        if seconds != INTERVAL_S and piece % (pieces // JOBS_A_SECOND) == 0:
            fail(sender, piece, nodes, ended_ms)
        sleep(max(0.0, began_s + (piece + 1) / pieces - monotonic()))
    sender.flush()


def fail(sender: Sender, piece: int, nodes: int, ended_ms: dict[str, int]) -> None:
    for topic, job, value in failing_job(piece, nodes):
        sender.send(topic, job, value)
        ended_ms[job] = wall_ms()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--peers", default="build/peers")
    chosen = parser.parse_args()
    python = environment(Path(chosen.peers).absolute()) if chosen.peers else None
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        cluster = Cluster(directory / "kafka", jars())
        try:
            cluster.start()
            tell("from nothing", from_nothing(cluster, directory))
            fresh_topics(cluster, PARTITIONS)
            lie_there = fill(cluster, chosen.nodes)
            records = TURNS * chosen.nodes
            if python is not None:
                place = (python, cluster.bootstrap, topics.NODE_EVENTS)
                tell("peers", beside(*place, records=records, partitions=PARTITIONS))
            tell("the node role", catching_up(cluster, directory, chosen.nodes, lie_there))
            fresh_topics(cluster, PARTITIONS)
            tell("at load", at_load(cluster, directory, chosen.nodes, chosen.seconds))
        finally:
            cluster.close()


def tell(what: str, found: object) -> None:
    print(json.dumps({what: found, "load": os.getloadavg()[0]}), flush=True)


if __name__ == "__main__":
    main()
