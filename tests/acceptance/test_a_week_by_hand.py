"""A week of twelve jobs on four nodes, reckoned by hand and held against all that tells of it, to the second.

Every node has 8 GPUs, every job holds one node whole, takes 5 minutes to start and 10 minutes a step. All
times are of week 48 of 2026 (Monday is 23 November), in UTC.

    job  node  from       to         what becomes of it                                        seconds of its node
    a1   n1    Mon 00:00  Mon 02:05  succeeds                                 300 startup, 7,200 productive
    a2   n1    Tue 00:00  Tue 01:05  Python raises; saved Tue 00:35           300 startup, 1,800 productive, 1,800 lost
    a3   n2    Mon 00:00  Mon 01:05  GPU 5 falls off its bus; nothing saved   300 startup, 3,600 lost
    a4   n2    Wed 00:00  Wed 01:05  succeeds                                 300 startup, 3,600 productive
    a5   n3    Mon 00:00  Mon 02:05  succeeds                                 300 startup, 7,200 productive
    a6   n3    Tue 00:00  Tue 01:05  is cancelled by its user                 300 startup, 3,600 productive
    a7   n3    Wed 00:00  Wed 02:05  succeeds                                 300 startup, 7,200 productive
    a8   n4    Mon 00:00  Mon 01:05  the shared storage is gone (incident)    300 startup, 3,600 lost
    a9   n4    Tue 00:00  Tue 02:05  succeeds                                 300 startup, 7,200 productive
    a10  n4    Wed 00:00  Wed 01:05  Python raises; nothing saved             300 startup, 3,600 lost
    a11  n1    Wed 00:00  Wed 01:05  succeeds                                 300 startup, 3,600 productive
    a12  n1    Thu 00:00  Thu 02:05  succeeds, but 25 minutes late            1,800 startup, 5,700 productive

Sums of node-seconds: startup 11 x 300 + 1,800 = 5,100; productive 7,200 x 4 (a1, a5, a7, a9) + 1,800 (a2) + 3,600 x 3
(a4, a6, a11) + 5,700 (a12) = 47,100; lost 1,800 + 3,600 x 3 = 12,600; in all 64,800 = 18 h, times 8 GPUs.

Nodes: n3 is cordoned by a person on Fri 06:00 for 2 h; n4 is drained as planned on Fri 06:00 for 3 h. The reports of n2
say 7 of 8 GPUs on Mon 01:00 and 02:00: one GPU for 2 h.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from faultlens.cli import main
from faultlens.clock import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, parse_moment
from faultlens.codec import Event, encode, event_of
from faultlens.events import (
    Data,
    DeviceRef,
    JobAllocated,
    JobCheckpoint,
    JobEnded,
    JobProgress,
    JobStarted,
    JobSubmitted,
    NodeActed,
    NodeFault,
    NodeHealth,
    Outcome,
    PlatformIncident,
    RankExited,
    Slot,
)
from faultlens.store import open_store
from tests.clickhouse.grafana import shown

pytest.importorskip("chdb", reason="chDB is not installed (extra `store`)")
pytestmark = pytest.mark.store

MON, TUE, WED, THU, FRI = (parse_moment("2026-11-23T00:00:00Z") + day * DAY_MS for day in range(5))
END_MS = MON + 7 * DAY_MS
GPUS = 8
RAISED = 'Traceback (most recent call last):\n  File "train.py", line 7, in <module>\nValueError: bad shape\n'
OFF_BUS = "torch.distributed.DistBackendError: NCCL error: unhandled cuda error\n"
STALE = "OSError: [Errno 116] Stale file handle: '/mnt/shared/data'\n"


@dataclass(frozen=True)
class Job:
    name: str
    node: str
    began_ms: int
    minutes: int
    outcome: Outcome = "succeeded"
    tail: str = ""
    saved_min: int | None = None
    late_min: int = 0

    def told(self) -> Iterator[Event]:
        """Everything that is told of it."""
        devices = tuple(range(GPUS))
        yield self._said("scheduler/s", -1, JobSubmitted(self.name, "c1", "training", GPUS, 1, user="ann", team="nlp"))
        yield self._said("scheduler/s", 0, JobAllocated(self.name, 1, "c1", (Slot(self.node, devices),)))
        yield self._said("launcher/l", 5 + self.late_min, JobStarted(self.name, 1))
        for step, minute in enumerate(range(15 + self.late_min, self.minutes + 1, 10), start=1):
            yield self._said("launcher/l", minute, JobProgress(self.name, 1, step))
        if self.saved_min is not None:
            step = (self.saved_min - 5) // 10
            yield self._said("launcher/l", self.saved_min, JobCheckpoint(self.name, 1, step, 0.0, ok=True))
        if self.tail:
            gone = RankExited(self.name, 1, 0, self.node, exit_code=1, log_tail=self.tail)
            yield self._said("launcher/l", self.minutes, gone)
        yield self._said("scheduler/s", self.minutes, JobEnded(self.name, 1, self.outcome))

    def _said(self, source: str, minute: int, data: Data) -> Event:
        at_ms = self.began_ms + minute * MINUTE_MS
        return event_of(data, source=source, id_=f"{self.name}-{type(data).__name__}-{minute}", time_ms=at_ms)


JOBS = (
    Job("a1", "n1", MON, 125),
    Job("a2", "n1", TUE, 65, "failed", RAISED, saved_min=35),
    Job("a3", "n2", MON, 65, "failed", OFF_BUS),
    Job("a4", "n2", WED, 65),
    Job("a5", "n3", MON, 125),
    Job("a6", "n3", TUE, 65, "cancelled"),
    Job("a7", "n3", WED, 125),
    Job("a8", "n4", MON, 65, "failed", STALE),
    Job("a9", "n4", TUE, 125),
    Job("a10", "n4", WED, 65, "failed", RAISED),
    Job("a11", "n1", WED, 65),
    Job("a12", "n1", THU, 125, late_min=25),
)


def told_of_nodes() -> Iterator[Event]:
    """Hourly reports of the four, one fault and its cure, a person's cordon, a planned drain, an incident."""
    for node in ("n1", "n2", "n3", "n4"):
        for hour in range(7 * 24 + 1):
            at_ms = MON + hour * HOUR_MS
            lacks = node == "n2" and 1 <= hour < 3
            health = NodeHealth(
                node, "c1", 3_600.0, GPUS, GPUS - lacks, (), boot_id="b2" if node == "n2" and hour >= 3 else "b1",
                gpu_family="H100", driver_version="570.1",
            )  # fmt: skip
            yield event_of(health, source=f"agent/{node}", id_=f"{node}-{hour}", time_ms=at_ms)
    device = DeviceRef(index=5)
    fault = NodeFault(
        "n2", "c1", "xid", "79", "kmsg", boot_id="b1", gpu_family="H100", driver_version="570.1", device=device
    )
    yield event_of(fault, source="agent/n2", id_="xid", time_ms=MON + HOUR_MS - SECOND_MS)
    for node, hours, planned, verbs in (
        ("n3", 2, False, ("cordon", "uncordon")),
        ("n4", 3, True, ("drain", "uncordon")),
    ):
        for verb, at_ms in zip(verbs, (FRI + 6 * HOUR_MS, FRI + (6 + hours) * HOUR_MS), strict=True):
            acted = NodeActed(node, "c1", verb, "bob", planned=planned)  # type: ignore[arg-type]
            yield event_of(acted, source="operator/bob", id_=f"{node}-{verb}", time_ms=at_ms)
    for phase, minute in (("started", 55), ("ended", 90)):
        incident = PlatformIncident("INC-1", "c1", "storage", phase)  # type: ignore[arg-type]
        yield event_of(incident, source="status/s", id_=phase, time_ms=MON + minute * MINUTE_MS)


def called(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return int(ended.value.code or 0)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp("week")
    events = [*told_of_nodes(), *(event for job in JOBS for event in job.told())]
    lines = [encode(event) for event in sorted(events, key=lambda event: event.time_ms)]
    (directory / "events.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    dsn = f"chdb://{directory / 'store'}"
    assert called("replay", str(directory / "events.jsonl"), "--store", dsn) == 0
    return dsn


@pytest.fixture
def asked(store: str, capsys: pytest.CaptureFixture[str]) -> Any:
    def ask(*arguments: str) -> Any:
        capsys.readouterr()
        called(*arguments, "--store", store, "--json")
        return json.loads(capsys.readouterr().out)

    return ask


def figures(said: Any, name: str) -> Any:
    entry = next(entry for entry in said["objectives"] if entry["objective"] == name)
    assert entry["agreement"] == "same", entry
    counted = entry["recomputed"]
    return counted["good"], counted["total"], counted["by_cause"]


def test_every_second_of_the_week_is_where_it_was_reckoned_to_be(asked: Any) -> None:
    report = asked("report", "--week", "2026-W48")
    seconds = {name: amount / SECOND_MS / GPUS for name, amount in report["totals"]["gpu_ms"].items()}
    assert seconds == {"startup": 5_100, "productive": 47_100, "lost_work": 12_600}
    assert report["totals"]["attempts"] == 12
    assert [(week["from"][:10], week["totals"]["attempts"]) for week in report["weeks"]] == [("2026-11-23", 12)]
    assert report["totals"]["failures"] == {"hardware": 1, "platform": 1, "user": 2}
    lost = {cause["code"]: cause["gpu_ms"] / SECOND_MS / GPUS for cause in report["causes"] if cause["failures"]}
    assert lost == {"gpu.off_bus": 3_600, "platform.storage.mount": 3_600, "app.exception": 1_800 + 3_600}
    worst = {node["node"]: (node["failures"], node["devices"]) for node in report["nodes"] if node["failures"]}
    assert worst == {"n2": (1, {"5": 1})}


def test_the_objectives_are_what_was_reckoned_both_ways(asked: Any) -> None:
    said = asked("slo")
    assert figures(said, "job_start") == (11, 12, {"platform": 1})
    assert figures(said, "job_success") == (7, 9, {"hardware": 1, "platform": 1})
    good, total, by_cause = figures(said, "goodput")
    assert (good / GPUS, total / GPUS) == (47_100, 64_800)
    assert {name: amount / GPUS for name, amount in by_cause.items()} == {
        "hardware": 3_600,
        "platform": 3_600,
        "user": 5_400,
        "overhead": 5_100,
    }
    # From the first report to the end of what was told, less the planned drain; the cordon is nobody's class.
    known_s = (END_MS - MON) / SECOND_MS
    good, total, by_cause = figures(said, "node_availability")
    tail_s = total - (4 * known_s - 3 * 3_600)
    assert 0 <= tail_s <= 4 * 6 * 60
    assert (total - good, by_cause) == (7_200, {"overhead": 7_200})
    good, total, by_cause = figures(said, "gpu_availability")
    assert by_cause == {"overhead": 7_200 * GPUS, "hardware": 2 * 3_600}


# What is not productive once all of it is corrected; a10, being cancelled, keeps its 3,600 s.
LOST = {"hardware": 1_800, "platform": 3_600, "user": 3_600, "overhead": 5_100}


@pytest.fixture(scope="module")
def corrected(store: str) -> str:
    """On the Monday after: a3 is overruled by a person, a10 turns out to have been cancelled, and n1's GPU 3 to have
    been off its bus when a2 failed.
    """
    late_ms = END_MS + 10 * MINUTE_MS
    ended_ms = {job.name: job.began_ms + job.minutes * MINUTE_MS for job in JOBS}
    gone = NodeFault(
        "n1", "c1", "xid", "79", "kmsg", boot_id="b1", gpu_family="H100", driver_version="570.1",
        device=DeviceRef(index=3),
    )  # fmt: skip
    told = (
        ("agent/n1", ended_ms["a2"] - SECOND_MS, gone),
        ("scheduler/s", ended_ms["a10"], JobEnded("a10", 1, "cancelled")),
    )
    said = [event_of(data, source=by, id_="late", time_ms=at_ms, recorded_ms=late_ms) for by, at_ms, data in told]
    path = Path(store.removeprefix("chdb://")).parent / "late.jsonl"
    path.write_bytes(b"".join(encode(event) + b"\n" for event in said))
    assert called("replay", str(path), "--store", store) == 0
    word = ("--class", "user", "--code", "app.config", "--why", "it asked for it", "--by", "jo")
    assert called("label", "a3", *word, "--store", store) == 0
    return store


@pytest.mark.usefixtures("corrected")
def test_what_changes_after_the_week_closed_is_corrected_in_the_report_and_as_counted_live(asked: Any) -> None:
    report, standing = asked("report", "--week", "2026-W48"), asked("slo")
    assert report["totals"]["failures"] == {"hardware": 1, "platform": 1, "user": 1}
    shown = report["corrections"]["shown"]
    assert {line["job_id"]: (line["was"][:2], line["now"][:2], line["status"]) for line in shown} == {
        "a2": (["user", "app.exception"], ["hardware", "gpu.off_bus"], "amended"),
        "a3": (["hardware", "gpu.off_bus"], ["user", "app.config"], "amended"),
        "a10": (["user", "app.exception"], ["user", "app.exception"], "withdrawn"),
    }
    success = next(line for line in report["objectives"] if line["name"] == "job_success")
    assert (success["good"], success["total"], success["by_class"]) == (7, 9, {"hardware": 1, "platform": 1})
    assert figures(standing, "job_success") == (7, 9, {"hardware": 1, "platform": 1})
    good, total, by_cause = figures(standing, "goodput")
    assert (good / GPUS, total / GPUS) == (47_100 + 3_600, 64_800)
    assert {name: amount / GPUS for name, amount in by_cause.items()} == LOST
    assert [line["status"] for line in asked("why", "a3")["revisions"]][-1] == "amended"
    assert asked("labels")["rules"][0]["overruled"] == 1


def test_what_changes_after_the_week_closed_is_corrected_on_dashboards(corrected: str) -> None:
    with open_store(corrected) as opened:
        panels = shown(opened, clusters=["c1"], from_s=MON // SECOND_MS, to_s=(END_MS + HOUR_MS) // SECOND_MS)
    failures = {row["class"]: row["failures"] for row in panels["failures: Causes, most frequent first"]}
    assert failures == {"hardware": 1, "platform": 1, "user": 1}
    cost = {row["class"]: round(row["GPU-hours"] * 3_600 / GPUS) for row in panels["goodput: What each cause cost"]}
    assert cost == {name: amount for name, amount in LOST.items() if name != "overhead"}
    assert panels["goodput: Goodput"] == [{"goodput": (47_100 + 3_600) / 64_800}]
    assert {row["job"]: (row["was"], row["is now"]) for row in panels["failures: Verdicts that changed"]} == {
        "a2": ("user, app.exception", "hardware, gpu.off_bus"),
        "a3": ("hardware, gpu.off_bus", "user, app.config"),
        "a10": ("user, app.exception", "withdrawn"),
    }
    attained = {row["objective"]: row["attained"] for row in panels["objectives: Where objectives stand"]}
    assert (attained["job_success"], attained["goodput"]) == (7 / 9, 50_700 / 64_800)
