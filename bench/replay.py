"""Events per second and core of `faultlens replay`, and the memory it takes, over the health reports of a fleet.

    python bench/replay.py [--nodes 200] [--hours 6] [--interval-s 30] [--store] [--profile]
    python bench/replay.py --events 10000000        # as many as that, made as they are read: memory must not grow
    python bench/replay.py --file events.jsonl.zst  # your own recording, or that of a simulation with jobs

Reports dominate what a fleet says, so that is what is measured: every node reports at its interval, checks take a
little longer or shorter each time, jobs come and go. Memory is the peak of the process.

On a machine that others use too the same work takes two to three times the CPU time. So a fixed piece of work is timed
after every thousand lines, and what the replay took is also given as if that had always taken as little as at its best.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import resource
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from time import perf_counter, process_time

import msgspec
from msgspec.structs import replace

from faultlens.clock import DAY_MS, SECOND_MS, parse_moment
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
from faultlens.recordings import LongLine, Recording
from faultlens.store import open_store
from faultlens.topics import TYPE_OF
from sinks.migrate import migrate
from sinks.writer import StoreWriter

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
            took = tuple(replace(check, duration_ms=12.0 + number % (7 + at) / 10) for at, check in enumerate(CHECKS))
            at_ms = int(START_MS + turn * interval_s * SECOND_MS + n * gap_ms)
            yield event(f"agent/{report.node}", number, at_ms, replace(report, checks=took))
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


class Yardstick:
    """A fixed piece of work, timed again and again: what its times differ by is the machine, not the program."""

    def __init__(self) -> None:
        self._document = msgspec.json.encode({"rows": [{"number": n, "text": "x" * 20} for n in range(60)]})
        self.times: list[float] = []

    def measure(self) -> None:
        """Do the work once: dictionaries, tuples and JSON, as in a replay."""
        began = process_time()
        kept: dict[int, object] = {}
        for n in range(2_500):
            kept[n % 97] = (n, n // 7)
            if n % 25 == 0:
                kept[n % 31] = msgspec.json.decode(self._document)
        self.times.append(process_time() - began)

    @property
    def slowdown(self) -> float:
        """How many times as long it took on average as at its best; 1 where it was never measured."""
        return sum(self.times) / len(self.times) / min(self.times) if self.times else 1.0


def resident_mib() -> float:
    """Return the memory that this process holds now."""
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


class Made(Recording):
    """A recording that is made as it is read: ten million events would fill a disk.

    `mib_by_day`: what the process held at the end of each day of the recording.
    """

    def __init__(self, events: Iterator[Event]) -> None:
        self.name, self.size, self.bytes_read, self.lines_unpacked = "made", None, 0, 0
        self.mib_by_day: list[float] = []
        self._events = events

    def lines(self) -> Iterator[bytes | LongLine]:
        """Yield every event as a line."""
        for event in self._events:
            if event.time_ms >= START_MS + (len(self.mib_by_day) + 1) * DAY_MS:
                self.mib_by_day.append(resident_mib())
            yield encode(event)


def recording(asked: argparse.Namespace, directory: Path) -> Recording:
    """Return what is asked to be replayed; a fleet's events are made beforehand unless they are too many."""
    if asked.file is not None:
        return Recording(str(asked.file))
    if asked.events is not None:
        return Made(islice(fleet(asked.nodes, hours=1e6, interval_s=asked.interval_s), asked.events))
    path = directory / "events.jsonl"
    with path.open("wb") as file:
        file.writelines(encode(e) + b"\n" for e in fleet(asked.nodes, asked.hours, asked.interval_s))
    return Recording(str(path))


def places(asked: argparse.Namespace, stack: ExitStack, directory: Path) -> Places:
    """Return where answers go: files, and a new store if one is asked for."""
    if not asked.store:
        return Places(directory / "out")
    store = stack.enter_context(open_store(str(directory / "store")))
    migrate(store)
    return Places(directory / "out", StoreWriter(store))


def arguments() -> argparse.Namespace:
    """Return what is asked for on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--hours", type=float, default=6.0)
    parser.add_argument("--interval-s", type=int, default=30)
    parser.add_argument("--events", type=int, help="so many events instead of hours, made as they are read")
    parser.add_argument("--file", type=Path, help="measure this recording instead")
    parser.add_argument("--store", action="store_true", help="write into a new embedded store, too")
    parser.add_argument("--without", action="append", default=[], metavar="ROLE", help="leave a processor out")
    parser.add_argument("--profile", action="store_true")
    return parser.parse_args()


def main() -> None:
    asked = arguments()
    profile, yardstick = cProfile.Profile(), Yardstick()
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        read = recording(asked, Path(directory))
        roles = [role for role in load_roles() if role.name not in asked.without]
        written = places(asked, stack, Path(directory))
        if asked.profile:
            profile.enable()
        began, cpu = perf_counter(), process_time()
        tally = replay([read], roles, written, progress=yardstick.measure)
        seconds, cpu_seconds = perf_counter() - began, process_time() - cpu - sum(yardstick.times)
        profile.disable()
    rate, best = tally.events / cpu_seconds, cpu_seconds / yardstick.slowdown
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    took = f"{seconds:.2f} s, {cpu_seconds:.2f} s of CPU"
    print(f"{tally.events:,} events, {took}: {rate:,.0f} events/s and core, {1e6 / rate:.1f} us each")
    slower = f"the yardstick took {yardstick.slowdown:.2f} times its best"
    print(
        f"{slower}; scaled by it: {tally.events / best:,.0f} events/s and core, {1e6 * best / tally.events:.1f} us each"
    )
    print(f"peak {peak_mib:,.0f} MiB, load {os.getloadavg()[0]:.1f}")
    if isinstance(read, Made):
        print("MiB at the end of each day:", ", ".join(f"{mib:,.0f}" for mib in read.mib_by_day))
    print(", ".join(f"{topic} {count:,}" for topic, count in sorted(tally.written.items())))
    if asked.profile:
        pstats.Stats(profile).sort_stats("tottime").print_stats(45)


if __name__ == "__main__":
    main()
