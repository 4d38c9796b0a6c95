"""8,152 pods of a real cluster: the processors' figures are those that SQL makes of the raw file, without our code.

The adapter takes a pod for a job with one attempt: it is allocated when it is created, runs when it is scheduled, and
ends when it is deleted, as its phase says; one that was deleted while it ran or waited was cancelled.
"""

from __future__ import annotations

import csv
import json
import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from faultlens.clock import DAY_MS, HOUR_MS, SECOND_MS, parse_moment
from faultlens.codec import Event, encode, event_of
from faultlens.events import JobAllocated, JobEnded, JobStarted, Outcome, Slot
from faultlens.local import Places, replay
from faultlens.local_roles import load_roles
from faultlens.recordings import Recording

TRACE = Path(__file__).parents[3] / "shared" / "data" / "alibaba_gpu_v2023" / "openb_pod_list_default.csv"
pytestmark = pytest.mark.skipif(not TRACE.exists(), reason="the trace (shared/data) is not here")

START_MS = parse_moment("2026-01-01T00:00:00Z")
OUTCOMES: dict[str, Outcome] = {
    "Succeeded": "succeeded",
    "Failed": "failed",
    "Running": "cancelled",
    "Pending": "cancelled",
}
WINDOW_MS = 28 * DAY_MS
STARTS = """
SELECT
    SUM(scheduled_s - creation_s <= 600) AS good,
    SUM(scheduled_s - creation_s > 600) AS late,
    (
        SELECT COUNT(*) FROM pods
        WHERE scheduled_s IS NULL AND deletion_s IS NULL AND creation_s + 600 BETWEEN :begins AND :ends
    ) AS waiting
FROM pods
WHERE scheduled_s BETWEEN :begins AND :ends
"""
SUCCESSES = "SELECT COUNT(*) FROM pods WHERE pod_phase = 'Succeeded' AND deletion_s BETWEEN :begins AND :ends"


def pods() -> list[dict[str, str]]:
    with TRACE.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def told(pod: dict[str, str]) -> Iterator[Event]:
    name = pod["name"]

    def said(seconds: str, kind: str, data: JobAllocated | JobStarted | JobEnded) -> Event:
        at_ms = START_MS + int(float(seconds)) * SECOND_MS
        return event_of(data, source="bridge/kubernetes", id_=f"{name}-{kind}", time_ms=at_ms)

    yield said(pod["creation_time"], "a", JobAllocated(name, 1, "c1", (Slot(f"node-{int(name[-4:]) % 20}"),)))
    if pod["scheduled_time"]:
        yield said(pod["scheduled_time"], "s", JobStarted(name, 1))
    if pod["deletion_time"]:
        yield said(pod["deletion_time"], "e", JobEnded(name, 1, OUTCOMES[pod["pod_phase"]]))


def seconds(text: str) -> int | None:
    return int(float(text)) if text else None


def raw_file() -> sqlite3.Connection:
    base = sqlite3.connect(":memory:")
    base.execute("CREATE TABLE pods (pod_phase TEXT, creation_s INTEGER, scheduled_s INTEGER, deletion_s INTEGER)")
    columns = ("creation_time", "scheduled_time", "deletion_time")
    rows = [(pod["pod_phase"], *(seconds(pod[column]) for column in columns)) for pod in pods()]
    base.executemany("INSERT INTO pods VALUES (?, ?, ?, ?)", rows)
    return base


def test_job_start_and_job_success_are_those_of_the_raw_file(tmp_path: Path) -> None:
    events = sorted((event for pod in pods() for event in told(pod)), key=lambda event: event.time_ms)
    (tmp_path / "events.jsonl").write_bytes(b"".join(encode(event) + b"\n" for event in events))
    replay([Recording(str(tmp_path / "events.jsonl"))], load_roles(), Places(tmp_path / "out"))
    last: dict[str, dict[str, object]] = {}
    now_ms = 0
    for line in (tmp_path / "out" / "slo-status.jsonl").read_text().splitlines():
        record = json.loads(line)
        now_ms = max(now_ms, parse_moment(record["time"]))
        if set(record["data"]["scope"]) == {"cluster"}:
            last[record["data"]["objective"]] = record["data"]
    begins_ms = (now_ms - WINDOW_MS) // HOUR_MS * HOUR_MS
    window = {"begins": (begins_ms - START_MS) // SECOND_MS, "ends": (now_ms - START_MS) // SECOND_MS}
    base = raw_file()
    good, late, waiting = base.execute(STARTS, window).fetchone()
    (succeeded,) = base.execute(SUCCESSES, window).fetchone()
    assert good > 0
    assert succeeded > 0
    assert (last["job_start"]["good"], last["job_start"]["total"]) == (good, good + late + waiting)
    assert last["job_success"]["good"] == succeeded
    phases = Counter(pod["pod_phase"] for pod in pods())
    assert sum(phases.values()) == 8_152
