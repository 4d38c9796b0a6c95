"""A storm of kernel lines, read as the agent reads them: CPU, what is told, and what stays in memory.

    python bench/kernel_log.py [--lines 800000]

Four storms: one line over and over, lines of one fault that differ in an address, lines whose fault is known by their
words, and lines that tell of no fault. Times are CPU times of this process, without making the lines.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from time import process_time

from faultlens.catalogue import load_catalogue
from faultlens.codec import Event
from faultlens.events import NodeFault
from producers.agent.kernel import AT_ONCE, Cursor, KernelWatch
from producers.kernel_log.folding import Folder, Node
from producers.kernel_log.patterns import load_patterns
from producers.kernel_log.scanning import Scanner
from producers.kernel_log.stamps import LogClock

BOOT_MS = 1_795_000_000_000
STORMS = {
    "the same line": "NVRM: Xid (PCI:0000:3b:00): 94, pid=1234, name=python, Contained: SM. RST: No, D-RST: No",
    "differing lines": "NVRM: Xid (PCI:0000:3b:00): 31, pid=1234, name=python, MMU Fault: faulted @ 0x7f0a_{:08x}",
    "known by words": "pcieport 0000:00:01.0: AER: Corrected error message received from 0000:3b:00.0",
    "no fault": 'audit: type=1400 apparmor="DENIED" operation="open" pid={} comm="x"',
}


class Storm:
    """A kernel's log that is full of one text; each read takes what the kernel would hand out at once."""

    overwritten = 0

    def __init__(self, text: str, lines: int) -> None:
        self._text = text
        self._numbers = iter(range(lines))
        self._made: list[str] = []

    def make(self) -> bool:
        """Make the next lines; False: there are none."""
        numbers = islice(self._numbers, AT_ONCE)
        self._made = [f"3,{number},{number * 200},-;{self._text.format(number)}" for number in numbers]
        return bool(self._made)

    def records(self) -> Iterator[str]:
        """Yield the lines that were made."""
        yield from self._made


def resident_mib() -> float:
    """Return the memory of this process."""
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def run(text: str, lines: int) -> tuple[float, int, int, float]:
    """Return CPU seconds, events, faults counted in them, and by how much memory grew after the first lines."""
    storm = Storm(text, lines)
    scanner = Scanner(load_catalogue(), load_patterns(), LogClock(BOOT_MS), gpus={}, boot_id="b1")
    watch = KernelWatch(storm, scanner, Folder(Node("n1", "c1", "H100")), Cursor("b1"))
    events: list[Event] = []
    used_s, first_mib = 0.0, 0.0
    while storm.make():
        began = process_time()
        events += watch.poll(BOOT_MS)
        used_s += process_time() - began
        first_mib = first_mib or resident_mib()
    events += watch.rest()
    faults = sum(event.data.count for event in events if isinstance(event.data, NodeFault))
    return used_s, len(events), faults, resident_mib() - first_mib


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--lines", type=int, default=800_000)
    lines = parser.parse_args().lines
    run(STORMS["no fault"], AT_ONCE)
    for name, text in STORMS.items():
        used_s, events, faults, grown_mib = run(text, lines)
        each_us = used_s / lines * 1e6
        told = f"{faults:,} faults in {events} events"
        print(f"{name:16} {used_s:6.1f} s of CPU, {each_us:5.1f} µs a line; {told}; memory {grown_mib:+.1f} MiB")


if __name__ == "__main__":
    main()
