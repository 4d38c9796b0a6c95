"""A fortnight of two nodes in an embedded store, as events tell it, for the tests of what is read from it."""

from collections.abc import Sequence

import pytest

from faultlens.clock import DAY_MS, HOUR_MS, MINUTE_MS, moment_of, parse_moment
from faultlens.codec import event_of
from faultlens.events import (
    Basis,
    Category,
    Cause,
    CauseClass,
    Culprit,
    Data,
    DeadLetter,
    DeviceRef,
    EvidenceItem,
    FleetTime,
    JobAllocated,
    JobAttributed,
    JobCheckpoint,
    JobEnded,
    JobPending,
    JobProgress,
    JobStarted,
    JobSubmitted,
    JobTime,
    Lost,
    NodeFault,
    NodeState,
    NodeStateName,
    Outcome,
    Retry,
    SloScope,
    SloStatus,
    Slot,
    Status,
    Workload,
)
from faultlens.store import open_store
from sinks.migrate import migrate
from sinks.writer import StoreWriter

MONDAY_MS = parse_moment("2026-11-16T00:00:00Z")
CODES: dict[str, CauseClass] = {
    "gpu.off_bus": "hardware",
    "driver.hang": "driver",
    "platform.registry": "platform",
    "app.exception": "user",
}

Said = tuple[str, int, Data]


def job(  # noqa: PLR0913 - each test changes another of them
    name: str,
    at_ms: int,
    *,
    hours: float = 1.0,
    outcome: Outcome = "succeeded",
    code: str = "",
    basis: Basis = "established",
    node: str = "n1",
    late_ms: int = 0,
    started: bool = True,
    workload: Workload = "training",
    statuses: Sequence[Status] = ("provisional", "final"),
) -> list[Said]:
    """Everything that is said of a job with one attempt on eight GPUs of a node."""
    started_ms, end_ms = at_ms + MINUTE_MS + late_ms, at_ms + round(hours * HOUR_MS)
    said: list[Said] = [
        ("scheduler/s", at_ms - MINUTE_MS, JobSubmitted(name, "c1", workload, 8, 1, user="ann", team="nlp", name=name)),
        ("scheduler/s", at_ms, JobAllocated(name, 1, "c1", (Slot(node, devices=tuple(range(8))),))),
        ("scheduler/s", end_ms, JobEnded(name, 1, outcome, exit_code=int(outcome != "succeeded"))),
    ]
    if started:
        said += [
            ("launcher/l", started_ms, JobStarted(name, 1)),
            ("launcher/l", end_ms - 2 * MINUTE_MS, JobProgress(name, 1, 7)),
            ("launcher/l", end_ms - 3 * MINUTE_MS, JobCheckpoint(name, 1, 6, 2.0, ok=True)),
        ]
    cause = Cause(CODES[code], code, f"a fault on {node}") if code else None
    if cause is not None:
        said += [verdict(name, end_ms, cause, basis, node, n, status) for n, status in enumerate(statuses, 1)]
    kept: Category = "lost_work" if code else "productive"
    said += [
        ledger(name, at_ms, started_ms, "startup", None),
        ledger(name, started_ms, end_ms, "productive", None),
        ledger(name, started_ms, end_ms, kept, cause, revision=2),
    ]
    return said


def never_placed(name: str, at_ms: int) -> list[Said]:
    """A job that waited for lost devices until the scheduler gave up: no record of its attempt names the cluster."""
    cause = Cause("hardware", "gpu.off_bus", "the only devices are lost")
    return [
        ("scheduler/s", at_ms, JobSubmitted(name, "c1", "training", 8, 1, user="ann", team="nlp", name=name)),
        (
            "scheduler/s",
            at_ms + 1,
            JobPending(name, "Unschedulable", moment_of(at_ms), message="8 devices are tainted"),
        ),
        ("scheduler/s", at_ms + HOUR_MS, JobEnded(name, 1, "never_started", reason="FailedScheduling")),
        verdict(name, at_ms + HOUR_MS, cause, "supported", "", 1, "final"),
    ]


def verdict(name: str, end_ms: int, cause: Cause, basis: Basis, node: str, revision: int, status: Status) -> Said:
    blamed = cause.cause_class in ("hardware", "driver")
    data = JobAttributed(
        job_id=name,
        attempt=1,
        cluster="c1",
        revision=revision,
        status=status,
        cause=cause,
        basis=basis,
        confidence=0.9,
        culprit=Culprit(node, DeviceRef(index=3)) if blamed and node else Culprit(),
        evidence=(EvidenceItem("root", f"agent/{node}", "e1", moment_of(end_ms - 1000), "xid 79 on n1 \x1b[31mGPU 3"),),
        alternatives=(),
        retry=Retry("retry_elsewhere", (node,)) if blamed and node else Retry("do_not_retry"),
        lost=Lost(7200.0, 900.0),
        rule="device_fault_on_allocated_gpu",
        catalog="catalogue 2026-11",
        ended_at=moment_of(end_ms),
    )
    return "faultlens", end_ms + 5 * MINUTE_MS * (revision - 1), data


def ledger(name: str, from_ms: int, to_ms: int, what: Category, cause: Cause | None, *, revision: int = 1) -> Said:
    data = JobTime(name, 1, revision, "c1", what, moment_of(from_ms), moment_of(to_ms), 8, team="nlp", cause=cause)
    return "faultlens", to_ms, data


def state(node: str, since_ms: int, name: NodeStateName, *, planned: bool = False, cause: str | None = None) -> Said:
    healthy = 8 if name == "available" else 7
    return "faultlens", since_ms, NodeState(node, "c1", name, moment_of(since_ms), 8, healthy, planned, "h100", cause)


def a_fortnight() -> list[Said]:
    """Two weeks of two nodes; n1 is out unplanned for two hours of the second week and planned for three."""
    day = [MONDAY_MS + n * DAY_MS for n in range(-7, 7)]
    said = [state("n1", day[0], "available"), state("n2", day[0], "available")]
    said += job("old", day[2], outcome="failed", code="driver.hang")
    said += [
        state("n1", day[8], "degraded", cause="gpu.off_bus"),
        state("n1", day[8] + HOUR_MS, "down", cause="host.lost.silent"),
        state("n1", day[8] + 3 * HOUR_MS, "available"),
        state("n1", day[9], "maintenance", planned=True, cause="platform.maintenance"),
        state("n1", day[9] + 3 * HOUR_MS, "available"),
    ]
    said += job("good", day[7])
    said += job("late", day[7] + 2 * HOUR_MS, late_ms=15 * MINUTE_MS)
    said += job("hw", day[8], outcome="failed", code="gpu.off_bus")
    said += job("hw-assumed", day[10], outcome="failed", code="gpu.off_bus", basis="assumed", node="n2")
    said += job("plat", day[10], outcome="never_started", code="platform.registry", started=False)
    said += never_placed("stuck", day[10])
    said += job("mine", day[11], outcome="failed", code="app.exception", basis="assumed", hours=3)
    said += job("cancelled", day[11], outcome="cancelled", node="n2")
    said += job("served", day[12], outcome="failed", code="driver.hang", workload="inference")
    said += job("taken-back", day[12], code="gpu.off_bus", outcome="cancelled", statuses=("final", "withdrawn"))
    said.append(
        ("agent/n1", day[8] + HOUR_MS - 1000, NodeFault("n1", "c1", "xid", "79", "kmsg", device=DeviceRef(index=3)))
    )
    said.append(
        ("faultlens", day[9], FleetTime("c1", moment_of(day[8]), moment_of(day[8] + HOUR_MS), {"allocated": 16.5}))
    )
    said.append(("faultlens", day[9], DeadLetter("job-events", 0, 7, "not_json", "broken", "e30=")))
    said.append(("faultlens", MONDAY_MS + 7 * DAY_MS, coverage()))
    return said


def coverage() -> SloStatus:
    return SloStatus(
        objective="coverage",
        scope=SloScope("c1"),
        window="P28D",
        unit="node_seconds",
        good=999.5,
        total=1000.0,
        attained=0.9995,
        target=0.999,
        budget_remaining=0.5,
        burn={"PT1H": 0.5},
        by_cause={"overhead": 0.5},
    )


@pytest.fixture(scope="session")
def fortnight(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The DSN of a store with the fortnight in it; nobody has it open."""
    pytest.importorskip("chdb", reason="chDB is not installed (extra `store`)")
    dsn = str(tmp_path_factory.mktemp("answers") / "store")
    with open_store(dsn) as opened:
        migrate(opened)
        with StoreWriter(opened) as writer:
            for number, (source, at_ms, data) in enumerate(a_fortnight()):
                writer.add(event_of(data, source=source, id_=f"e{number}", time_ms=at_ms), at_ms)
    return dsn


@pytest.fixture(scope="session")
def empty(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The DSN of a store with tables and nothing in them."""
    pytest.importorskip("chdb", reason="chDB is not installed (extra `store`)")
    dsn = str(tmp_path_factory.mktemp("empty") / "store")
    with open_store(dsn) as opened:
        migrate(opened)
    return dsn
