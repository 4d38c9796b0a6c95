"""What the node agent takes of its node: CPU and memory with its own probes, delivering to Kafka.

    python bench/agent.py [--minutes 5] [--role gpu]

The agent runs as it would on a node, at its interval of 30 s, with a spool on disk and librdkafka's mock of a broker in
this process. CPU is that of the agent, its server of probes and all probes that ended, from its second report on;
memory is the peak of what they have to themselves and their share of the rest (PSS), looked at every second.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import monotonic, sleep

sys.path.insert(0, str(Path(__file__).parents[1]))

from faultlens import topics
from tests.kafka.mock import MockCluster

TICKS = os.sysconf("SC_CLK_TCK")
SETTLES_S = 35.0


def family(pid: int) -> list[int]:
    """Return a process and all that descend from it."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()
    except OSError:
        return [pid]
    return [pid, *(found for child in children for found in family(int(child)))]


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process and of all that it has waited for."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(int(field) for field in fields[11:15]) / TICKS


def pss_mib(pid: int) -> float:
    """Return a process's own memory and its share of what it has in common with others."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1_024


def measure(pid: int, minutes: float) -> tuple[float, float]:
    """Return the share of a core, in percent, and the peak of memory, in MiB."""
    peak, began, used = 0.0, monotonic(), 0.0
    settled: tuple[float, float] | None = None
    while monotonic() - began < minutes * 60 + SETTLES_S:
        sleep(1)
        pids = family(pid)
        used = max(used, sum(map(cpu_s, pids)))
        peak = max(peak, sum(map(pss_mib, pids)))
        if settled is None and monotonic() - began >= SETTLES_S:
            settled = monotonic(), used
    since, before = settled or (began, 0.0)
    return 100 * (used - before) / (monotonic() - since), peak


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--role", default="gpu")
    asked = parser.parse_args()
    broker = MockCluster()
    broker.topic(topics.NODE_EVENTS, 4)
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "agent.yaml"
        config.write_text(f"cluster: c1\nrole: {asked.role}\nstate: {folder}/state\n", "utf-8")
        command = [
            sys.executable,
            "-m",
            "faultlens.cli",
            "agent",
            "--config",
            str(config),
            "--brokers",
            broker.bootstrap,
        ]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
            share, peak = measure(process.pid, asked.minutes)
            process.terminate()
    broker.close()
    print(f"role {asked.role}, {asked.minutes:g} min at load {os.getloadavg()[1]:.0f}: ", end="")
    print(f"{share:.2f} % of a core, peak {peak:.0f} MiB")


if __name__ == "__main__":
    main()
