"""What a worker of the node role takes for a report, and how soon a failure has its first verdict, on a real Kafka.

Run: python bench/live.py [--nodes 100000] [--seconds 30]. Needs Java 17; the broker's jars are fetched once.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep

import confluent_kafka as ck

from faultlens import topics
from faultlens.clock import wall_ms
from faultlens.codec import encode, event_of
from faultlens.events import Check, JobAllocated, JobEnded, JobStarted, JobSubmitted, NodeHealth, Slot
from faultlens.kafka import Connection, producer_config
from faultlens.kafka_progress import LaneProgress
from faultlens.kafka_topics import plans
from faultlens.local_roles import READS
from faultlens.topics import TYPES
from streams.live.changelog import offsets_of
from tests.kafka.cluster import Cluster
from tests.kafka.jars import jars
from tests.kafka.living import Worker, consumed, fresh_topics, until

PARTITIONS = 16
INTERVAL_S = 30
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


def caught_up(progress: LaneProgress) -> bool:
    return progress.behind() is None


def catching_up(cluster: Cluster, directory: Path, nodes: int) -> dict[str, float]:
    """Two reports of every node lie there: what does a worker take to read them all?"""
    fresh_topics(cluster, PARTITIONS)
    producer = ck.Producer(producer_config(Connection(cluster.bootstrap)))
    for turn in range(2):
        for number in range(nodes):
            send(producer, *report(number, turn))
    producer.flush()
    worker = Worker(cluster, "node", directory / "node.log")
    partitions = {plan.name: plan.partitions for plan in plans(PARTITIONS)}
    progress = LaneProgress(Connection(cluster.bootstrap), {"node": READS["node"]}, partitions, offsets_of)
    worker.start()
    until(lambda: "lanes are ours" in worker.said())
    began_s, before_s = monotonic(), cpu_s(worker)
    until(lambda: not any(behind and behind.place[0] == topics.NODE_EVENTS for behind in [progress.behind()]), 600)
    took_s, used_s = monotonic() - began_s, cpu_s(worker) - before_s
    worker.end(signal.SIGKILL)
    began_s = monotonic()
    worker.start()
    until(lambda: worker.said().count("lanes are ours") > 1)
    until(lambda: caught_up(progress), 600)
    loaded_s = monotonic() - began_s
    worker.end()
    return {
        "reports": 2 * nodes,
        "cpu_us_a_report": round(1e6 * used_s / (2 * nodes), 1),
        "reports_a_second": round(2 * nodes / took_s),
        "seconds_from_kill_to_caught_up": round(loaded_s, 1),
    }


def send(producer: ck.Producer, topic: str, key: str, value: bytes) -> None:
    while True:
        try:
            producer.produce(topic, value, key)
        except BufferError:
            producer.poll(0.1)
        else:
            return


def at_load(cluster: Cluster, directory: Path, nodes: int, seconds: int) -> dict[str, float]:
    """All roles run while every node reports every 30 s and a job fails each second."""
    fresh_topics(cluster, PARTITIONS)
    workers = [Worker(cluster, role, directory / f"{role}.log") for role in ("node", "job", "context", "objectives")]
    for worker in workers:
        worker.start()
    until(lambda: all("lanes are ours" in worker.said() for worker in workers))
    producer = ck.Producer(producer_config(Connection(cluster.bootstrap)))
    rate, number, used_s = nodes // INTERVAL_S, 0, [cpu_s(worker) for worker in workers]
    for second in range(seconds):
        due_s = monotonic() + 1.0
        for _ in range(rate):
            send(producer, *report(number % nodes, number // nodes))
            number += 1
        for said in failing_job(second, nodes):
            send(producer, *said)
        producer.flush(10)
        sleep(max(0.0, due_s - monotonic()))
    used_s = [cpu_s(worker) - before for worker, before in zip(workers, used_s, strict=True)]
    until(lambda: len(consumed(cluster, topics.ATTRIBUTIONS)) >= seconds)
    for worker in workers:
        worker.end()
    ended = {
        m.key(): m.timestamp()[1] for m in consumed(cluster, topics.JOB_EVENTS) if b"job.ended" in (m.value() or b"")
    }
    first: dict[bytes, int] = {}
    for message in consumed(cluster, topics.ATTRIBUTIONS):
        first.setdefault(message.key(), message.timestamp()[1])
    waits = sorted(first[key] - ended[key] for key in first)
    return {
        "reports_a_second": rate,
        "verdict_ms_p50": waits[len(waits) // 2],
        "verdict_ms_p99": waits[min(len(waits) - 1, len(waits) * 99 // 100)],
        **{f"{worker.role}_cores": round(used / seconds, 3) for worker, used in zip(workers, used_s, strict=True)},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--seconds", type=int, default=30)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        cluster = Cluster(Path(directory) / "kafka", jars())
        try:
            cluster.start()
            print(json.dumps(catching_up(cluster, Path(directory), chosen.nodes), indent=2))
            print(json.dumps(at_load(cluster, Path(directory), chosen.nodes, chosen.seconds), indent=2))
        finally:
            cluster.close()


if __name__ == "__main__":
    main()
