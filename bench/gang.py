"""What the largest jobs cost a replay: a gang on thousands of nodes that fails, and a job of thousands of attempts.

    python bench/gang.py [--nodes 4096] [--attempts 3000]

The gang's last hour: every node reports every five minutes, a GPU falls off the bus, every rank exits, and every node
answers for the end. The other job fails on one node a minute after each start, again and again.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable, Iterator
from operator import itemgetter
from pathlib import Path
from time import process_time

from faultlens.clock import MINUTE_MS, SECOND_MS, parse_moment
from faultlens.codec import encode, event_of
from faultlens.events import (
    Check,
    Data,
    DeviceRef,
    JobAllocated,
    JobEnded,
    JobProgress,
    JobStarted,
    JobSubmitted,
    NodeFault,
    NodeHealth,
    RankExited,
    Slot,
)
from faultlens.local import Places, replay
from faultlens.local_roles import load_roles
from faultlens.recordings import Recording

START_MS = parse_moment("2026-11-23T00:00:00Z")
INTERVAL_MS = 5 * MINUTE_MS
GPUS = tuple(range(8))
CHECKS = (Check("gpu_count", "gpu", "pass"),)
Told = tuple[int, str, Data]


def report(node: str, at_ms: int) -> Told:
    return at_ms, f"agent/{node}", NodeHealth(node, "c1", 300.0, 8, 8, CHECKS, boot_id="b")


def gang(nodes: int) -> Iterator[Told]:
    """Yield what is said of a job on so many nodes in its half an hour, and of the nodes all the time."""
    names = [f"node-{n:05}" for n in range(nodes)]
    for turn in range(16):
        yield from (report(name, START_MS + turn * INTERVAL_MS + 10 * n) for n, name in enumerate(names))
    begin_ms = START_MS + 20 * MINUTE_MS
    end_ms = begin_ms + 31 * MINUTE_MS
    yield begin_ms, "bridge/slurm", JobSubmitted("gang", "c1", "training", 8 * nodes, nodes, user="ann")
    yield begin_ms, "bridge/slurm", JobAllocated("gang", 1, "c1", tuple(Slot(name, GPUS) for name in names))
    yield begin_ms + SECOND_MS, "launcher/gang", JobStarted("gang", 1)
    for step in range(1, 61):
        yield begin_ms + step * 30 * SECOND_MS, "launcher/gang", JobProgress("gang", 1, step, step_time_s=30.0)
    lost = DeviceRef(index=1)
    yield end_ms - 20 * SECOND_MS, "agent/" + names[7], NodeFault(names[7], "c1", "xid", "79", "dcgm", device=lost)
    for rank, name in enumerate(names):
        yield end_ms - 5 * SECOND_MS + rank // 10, "launcher/gang", RankExited("gang", 1, rank, name, exit_code=1)
    yield end_ms, "bridge/slurm", JobEnded("gang", 1, "failed", exit_code=1)


def attempts(count: int) -> Iterator[Told]:
    """Yield what is said of a job that fails so many times, once a minute, and of its node."""
    yield report("node-1", START_MS)
    yield START_MS, "bridge/slurm", JobSubmitted("again", "c1", "training", 8, 1, user="ann")
    for number in range(1, count + 1):
        at_ms = START_MS + number * MINUTE_MS
        if number % 5 == 0:
            yield report("node-1", at_ms)
        yield at_ms, "bridge/slurm", JobAllocated("again", number, "c1", (Slot("node-1", GPUS),))
        yield at_ms + SECOND_MS, "launcher/again", JobStarted("again", number)
        yield at_ms + 20 * SECOND_MS, "launcher/again", RankExited("again", number, 0, "node-1", exit_code=1)
        yield at_ms + 21 * SECOND_MS, "bridge/slurm", JobEnded("again", number, "failed", exit_code=1)


def written(told: Iterator[Told], path: Path) -> None:
    """Write what is told as a recording, in order of time."""
    with path.open("wb") as file:
        for number, (at_ms, source, data) in enumerate(sorted(told, key=itemgetter(0))):
            record = event_of(data, source=source, id_=str(number), time_ms=at_ms, recorded_ms=at_ms)
            file.write(encode(record) + b"\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=4096)
    parser.add_argument("--attempts", type=int, default=3000)
    asked = parser.parse_args()
    cases: dict[str, Callable[[], Iterator[Told]]] = {
        f"a gang of {asked.nodes:,} nodes": lambda: gang(asked.nodes),
        f"{asked.attempts:,} attempts of a job": lambda: attempts(asked.attempts),
    }
    with tempfile.TemporaryDirectory() as directory:
        for name, told in cases.items():
            path = Path(directory) / "events.jsonl"
            written(told(), path)
            roles, cpu = load_roles(), process_time()
            tally = replay([Recording(str(path))], roles, Places(Path(directory) / "out"))
            spent = process_time() - cpu
            print(f"{name}: {tally.events:,} events, {spent:.1f} s of CPU, {sum(tally.verdicts.values()):,} verdicts")
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
