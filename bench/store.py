"""What the writer costs beside a bare insert of the same rows, in one run: `python bench/store.py`."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from faultlens.codec import Decoder, Event, encode, event_of
from faultlens.events import Check, NodeHealth
from faultlens.store import Store, open_store
from sinks.migrate import migrate
from sinks.tables import TABLES, RawEvent
from sinks.writer import MAX_ROWS, StoreWriter

EVENTS = 100_000
NODES = 1_000
ROUNDS = 5
CHECKS = ("gpu_count", "driver_responds", "ecc", "nvlink", "efa_links", "kernel_log", "thermal", "local_disk")
START_MS = 1_795_000_000_000


def reports() -> list[tuple[Event, bytes]]:
    """Return reports of a fleet as they are read from a recording: decoded, with their bytes."""
    decoder = Decoder()
    records = []
    for number in range(EVENTS):
        node = f"node-{number % NODES:04}"
        checks = tuple(Check(name, "gpu", "pass", duration_ms=12.5) for name in CHECKS)
        data = NodeHealth(
            node,
            "c1",
            30.0,
            8,
            8,
            checks,
            pool="train",
            boot_id=f"boot-{node}",
            domains={"rack": node[:7]},
            gpu_family="H100",
        )
        at_ms = START_MS + number // NODES * 30_000
        raw = encode(event_of(data, source=f"agent/{node}", id_=f"{node}-{at_ms}", time_ms=at_ms, recorded_ms=at_ms))
        records.append((decoder.decode(raw), raw))
    return records


def timed(work: Callable[[], None]) -> tuple[float, float]:
    """Return the elapsed and the processor's microseconds per event."""
    elapsed, busy = time.perf_counter(), time.process_time()
    work()
    scale = 1e6 / EVENTS
    return (time.perf_counter() - elapsed) * scale, (time.process_time() - busy) * scale


def bare(store: Store, rows: list[RawEvent]) -> None:
    """Insert ready rows in the writer's batches."""
    table = TABLES[RawEvent]
    for first in range(0, len(rows), MAX_ROWS):
        store.insert(table.name, table.columns, rows[first : first + MAX_ROWS])


def written(store: Store, records: list[tuple[Event, bytes]]) -> None:
    """Write the same events from their decoded form."""
    with StoreWriter(store) as writer:
        for event, raw in records:
            writer.add(event, event.time_ms, raw)


def main() -> None:
    """Print both, by turns, and the ratio of the best."""
    records = reports()
    rows = [
        RawEvent(event.type, event.source, event.id, event.subject, event.time_ms, event.time_ms, raw.decode())
        for event, raw in records
    ]
    best = {"bare": float("inf"), "writer": float("inf")}
    with tempfile.TemporaryDirectory() as directory, open_store(str(Path(directory) / "store")) as store:
        migrate(store)
        for _ in range(ROUNDS):
            for name, work in (("bare", lambda: bare(store, rows)), ("writer", lambda: written(store, records))):
                elapsed_us, busy_us = timed(work)
                best[name] = min(best[name], elapsed_us)
                print(f"{name:7} {elapsed_us:6.2f} us/event elapsed, {busy_us:6.2f} us/event of processor")
    print(
        f"best: bare {1e6 / best['bare']:,.0f} rows/s, writer {1e6 / best['writer']:,.0f} events/s, "
        f"ratio {best['writer'] / best['bare']:.2f}, the writer adds {best['writer'] - best['bare']:.1f} us/event"
    )


if __name__ == "__main__":
    main()
