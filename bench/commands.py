"""How soon a fatal fault becomes a command to keep work away, live, on a real Kafka.

Run: python bench/commands.py [--clusters 400] [--seconds 60]. Needs Java 17; the jars are fetched once. Each cluster
has ten nodes and loses a GPU once, so that no cap and no common cause holds anything back, and nothing is tolerated.
It says where the time goes, too: from one station of the way to the next.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Final, NamedTuple

from bench.live import CHECKS, INTERVAL_S, PARTITIONS, PATIENCE_S, Reached, Sender, Watch, share, tell
from faultlens import topics
from faultlens.clock import wall_ms
from faultlens.codec import Decoder, encode, event_of
from faultlens.events import Data, DeviceRef, NodeFault, NodeHealth
from faultlens.internal import Condition
from tests.kafka.cluster import Cluster
from tests.kafka.jars import jars
from tests.kafka.living import Worker, fresh_topics, running, until

NODES = 10  # one of ten may be out
ROLES = ("node", "context", "remediation")
_PIECES = 10
_decode: Final = Decoder().decode


class Fleet(NamedTuple):
    """So many clusters of ten nodes, and the driver that their GPUs have."""

    clusters: int
    driver: str


def said(data: Data, node: str) -> tuple[str, str, bytes]:
    """Return what a node's agent says now, with its topic and key."""
    event = event_of(data, source=f"agent/{node}", id_=f"{node}-{type(data).__name__}-{wall_ms()}", time_ms=wall_ms())
    return topics.NODE_EVENTS, node, encode(event)


def report(number: int, driver: str) -> tuple[str, str, bytes]:
    """Return a healthy node's report."""
    node = f"node-{number:06d}"
    health = NodeHealth(
        node=node, cluster=f"c{number // NODES}", interval_s=INTERVAL_S, gpus_total=8, gpus_allocatable=8,
        checks=CHECKS, boot_id="b1", gpu_family="H100", driver_version=driver,
    )  # fmt: skip
    return said(health, node)


def lost_gpu(number: int, driver: str) -> tuple[str, str, bytes]:
    """Return the word that a GPU fell off its bus: fatal, so that nothing is tolerated."""
    node = f"node-{number:06d}"
    fault = NodeFault(
        node, f"c{number // NODES}", "xid", "79", "kmsg", boot_id="b1", gpu_family="H100", driver_version=driver,
        device=DeviceRef(index=3),
    )  # fmt: skip
    return said(fault, node)


def play(sender: Sender, fleet: Fleet, seconds: int, broke_ms: dict[str, int] | None) -> None:
    """Let every node report each interval for so many seconds, and meanwhile one node of each cluster lose a GPU."""
    nodes, began_s, reports, faults = fleet.clusters * NODES, monotonic(), 0, 0
    for piece in range(1, seconds * _PIECES + 1):
        while reports < nodes * piece // (INTERVAL_S * _PIECES):
            sender.send(*report(reports % nodes, fleet.driver))
            reports += 1
        while broke_ms is not None and faults < fleet.clusters * piece // (seconds * _PIECES):
            topic, node, value = lost_gpu(faults * NODES + faults % NODES, fleet.driver)
            sender.send(topic, node, value)
            broke_ms[node] = wall_ms()
            faults += 1
        sleep(max(0.0, began_s + piece / _PIECES - monotonic()))
    sender.flush()


def lost(value: bytes) -> str:
    """Return the node that an event says has lost its GPU, on whichever topic; empty: it says no such thing."""
    event = _decode(value) if value else None
    data: Any = None if event is None else event.data
    if isinstance(data, NodeFault) or (isinstance(data, Condition) and data.observation.code == "79"):
        return data.node
    return ""


def measured(cluster: Cluster, directory: Path, fleet: Fleet, seconds: int) -> dict[str, Any]:
    """Return how long it took from a fault's hand-over to Kafka until its command could be read, in milliseconds."""
    workers = [Worker(cluster, role, directory / f"{role}.log") for role in ROLES]
    sender, broke_ms = Sender(cluster), dict[str, int]()
    faults, conditions = Watch(cluster, topics.NODE_EVENTS, lost), Watch(cluster, topics.CONDITIONS, lost)
    with running(workers), faults, conditions, Watch(cluster, topics.REMEDIATION_COMMANDS) as commands:
        until(lambda: all("lanes are ours" in worker.said() for worker in workers))
        play(sender, fleet, INTERVAL_S, None)
        with closing(Reached(cluster)) as reached:
            reached.wait(sender.ends)
        play(sender, fleet, seconds, broke_ms)
        until(lambda: broke_ms.keys() <= commands.heard_ms.keys(), PATIENCE_S)
    way = {
        "handed over": broke_ms,
        "the fault is there": faults.appended_ms,
        "the condition is sent": conditions.appended_ms,
        "and committed": conditions.heard_ms,
        "the command is sent": commands.appended_ms,
        "and committed: read": commands.heard_ms,
    }
    steps = {
        f"{before} → {after}": _shares([way[after][node] - way[before][node] for node in broke_ms])
        for before, after in pairwise(way)
    }
    waits = [commands.heard_ms[node] - broke for node, broke in broke_ms.items()]
    found = {
        "faults": len(waits),
        "reports_a_second": fleet.clusters * NODES // INTERVAL_S,
        "command_ms": _shares(waits),
    }
    return found | {"load": round(os.getloadavg()[0], 1), "steps_ms": steps}


def _shares(waits: list[int]) -> dict[str, int]:
    ordered = sorted(waits)
    return {"p50": share(ordered, 0.5), "p90": share(ordered, 0.9), "p99": share(ordered, 0.99), "max": ordered[-1]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clusters", type=int, default=400)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--driver", default="550.54.15", help="from 565 on, drivers announce what a GPU needs")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        cluster = Cluster(directory / "kafka", jars())
        try:
            cluster.start()
            fresh_topics(cluster, PARTITIONS)
            tell("commands", measured(cluster, directory, Fleet(chosen.clusters, chosen.driver), chosen.seconds))
        finally:
            cluster.close()


if __name__ == "__main__":
    main()
