"""Events per second and core of `faultlens replay` without a store, over the health reports of a fleet.

    python bench/replay.py [--nodes 200] [--hours 24] [--interval-s 30] [--profile]

Reports dominate what a fleet says, so that is what is measured: every node reports at its interval, jobs come and go.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter, process_time

from faultlens.clock import SECOND_MS, parse_moment
from faultlens.codec import Event, encode
from faultlens.events import (
    Check,
    Data,
    JobAllocated,
    JobEnded,
    JobProgress,
    JobStarted,
    JobSubmitted,
    NodeHealth,
    Slot,
)
from faultlens.local import Places, replay
from faultlens.local_roles import load_roles
from faultlens.recordings import Recording
from faultlens.topics import TYPE_OF

START_MS = parse_moment("2026-11-23T00:00:00Z")
CHECKS = tuple(
    Check(name, component, "pass", duration_ms=12.0)  # type: ignore[arg-type]
    for name, component in (
        ("gpu_count", "gpu"), ("driver_responds", "driver"), ("ecc", "gpu"), ("nvlink", "gpu"), ("efa_links", "nic"),
        ("kernel_log", "kernel"),
    )
)  # fmt: skip


def event(source: str, number: int, at_ms: int, data: Data) -> Event:
    kind = TYPE_OF[type(data)]
    sent_ms, recorded_ms = at_ms + 30, at_ms + 80
    return Event(kind.name, source, f"01{number:024}", getattr(data, kind.subject), at_ms, data, sent_ms, recorded_ms)


def fleet(nodes: int, hours: float, interval_s: int) -> Iterator[Event]:
    """Yield what a healthy fleet says, in order of arrival: reports, and a two-node job per node and day."""
    reports = [
        NodeHealth(
            f"node-{n:04}", "c1", float(interval_s), 8, 8, CHECKS, pool="h100", boot_id=f"b-{n:x}",
            domains={"rack": f"r{n // 4}", "switch": f"leaf-{n // 16}"}, gpu_family="H100",
            driver_version="570.133.20", agent_version="0.4.2",
        )
        for n in range(nodes)
    ]  # fmt: skip
    number = 0
    gap_ms = interval_s * SECOND_MS / nodes
    for turn in range(int(hours * 3600 / interval_s)):
        for n, report in enumerate(reports):
            number += 1
            yield event(
                f"agent/{report.node}", number, int(START_MS + turn * interval_s * SECOND_MS + n * gap_ms), report
            )
        at_ms = START_MS + (turn + 1) * interval_s * SECOND_MS - 1
        for data in jobs(turn, nodes, interval_s):
            number += 1
            yield event("bridge/slurm", number, at_ms, data)


def jobs(turn: int, nodes: int, interval_s: int) -> Iterator[Data]:
    """Yield what is said of jobs in one turn; each holds two nodes for as long as it takes to go round the fleet."""
    length = nodes // 2
    slots = tuple(Slot(f"node-{(2 * turn + i) % nodes:04}", tuple(range(8))) for i in range(2))
    if turn >= length:
        yield JobEnded(f"job-{turn - length}", 1, "succeeded", exit_code=0)
    yield JobSubmitted(f"job-{turn}", "c1", "training", 16, 2, user="ann", team="llm")
    yield JobAllocated(f"job-{turn}", 1, "c1", slots)
    yield JobStarted(f"job-{turn}", 1)
    for running in range(max(0, turn - length + 1), turn, 8):
        yield JobProgress(f"job-{running}", 1, turn, step_time_s=float(interval_s))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--hours", type=float, default=6.0)
    parser.add_argument("--interval-s", type=int, default=30)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--file", type=Path, help="measure this recording instead")
    parser.add_argument("--without", action="append", default=[], metavar="ROLE", help="leave a processor out")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        path = asked.file or Path(directory) / "events.jsonl"
        if asked.file is None:
            with path.open("wb") as file:
                file.writelines(encode(e) + b"\n" for e in fleet(asked.nodes, asked.hours, asked.interval_s))
        roles = [role for role in load_roles() if role.name not in asked.without]
        profile = cProfile.Profile()
        if asked.profile:
            profile.enable()
        began, cpu = perf_counter(), process_time()
        tally = replay([Recording(str(path))], roles, Places(Path(directory) / "out"))
        seconds, cpu_seconds = perf_counter() - began, process_time() - cpu
        profile.disable()
    rate = tally.events / cpu_seconds
    took = f"{seconds:.2f} s, {cpu_seconds:.2f} s of CPU"
    print(f"{tally.events:,} events, {took}: {rate:,.0f} events/s, {1e6 / rate:.1f} us each")
    print(", ".join(f"{topic} {count:,}" for topic, count in sorted(tally.written.items())))
    if asked.profile:
        pstats.Stats(profile).sort_stats("tottime").print_stats(45)


if __name__ == "__main__":
    main()
