"""One event of every type that has a table: what is written in the contract tests."""

from faultlens.clock import HOUR_MS, moment_of
from faultlens.codec import Event, event_of
from faultlens.events import (
    Alternative,
    AttemptRef,
    Bounds,
    Cause,
    Check,
    CommandReason,
    Culprit,
    Data,
    DeadLetter,
    Device,
    DeviceRef,
    EvidenceItem,
    FleetTime,
    Incident,
    IncidentScope,
    JobAllocated,
    JobAttributed,
    JobEnded,
    JobFinding,
    JobLabelled,
    JobPending,
    JobResized,
    JobStarted,
    JobSubmitted,
    JobTime,
    Lost,
    NodeActed,
    NodeFault,
    NodeHealth,
    NodeState,
    Process,
    RemediationCommand,
    RemediationResult,
    Retry,
    SloScope,
    SloStatus,
    Slot,
)

AT_MS = 1_795_000_000_000


def told(data: Data, id_: str, *, source: str = "bridge/slurm", time_ms: int = AT_MS) -> Event:
    return event_of(data, source=source, id_=id_, time_ms=time_ms)


def verdict(revision: int = 1, *, emitted_ms: int = AT_MS) -> Event:
    at = moment_of(AT_MS)
    data = JobAttributed(
        job_id="j1",
        attempt=1,
        cluster="c1",
        revision=revision,
        status="final",
        cause=Cause("hardware", "gpu.memory.uncorrectable", "Uncorrectable memory error on GPU 5 of n1"),
        basis="established",
        confidence=0.97,
        culprit=Culprit("n1", DeviceRef(index=5, uuid="GPU-5"), rank=5),
        evidence=(EvidenceItem("root", "agent/n1", "f1", at, "xid 48"), EvidenceItem("cascade", "l", "r", at, "NCCL")),
        alternatives=(Alternative("user", "app.exception", 0.02),),
        retry=Retry("retry_elsewhere", ("n1",), ("n1/5",)),
        lost=Lost(28800.5, 900.0),
        rule="device_fault_on_allocated_gpu",
        catalog="nvidia-xid 2026-11",
        ended_at=at,
    )
    return told(data, f"v{revision}", source="faultlens", time_ms=emitted_ms)


def inputs() -> list[Event]:
    slots = (Slot("n1", devices=(0, 1)), Slot("n2", devices=(0,)))
    health = NodeHealth(
        "n1", "c1", 30.0, 8, 7, (Check("ecc", "gpu", "fail"),), domains={"rack": "r1"}, devices=(Device(0, "GPU-0"),)
    )
    fault = NodeFault(
        "n1", "c1", "xid", "48", "kmsg", device=DeviceRef(5), process=Process(7, "python"), message="é\0\n"
    )
    return [
        told(JobSubmitted("j1", "c1", "training", 3, 2, user="ann", team="nlp", priority=1.5), "s"),
        told(JobPending("j1", "Priority", moment_of(AT_MS)), "p"),
        told(JobAllocated("j1", 1, "c1", slots), "a"),
        told(JobStarted("j1", 1), "b"),
        told(JobResized("j1", 1, slots[:1], slots[1:]), "r"),
        told(JobEnded("j1", 1, "preempted", exit_code=143, signal=15, preempted_by=AttemptRef("j2", 1)), "e"),
        told(JobLabelled("j1", 1, "user", "app.exception", "ann"), "l"),
        told(health, "h", source="agent/n1"),
        told(fault, "f", source="agent/n1"),
        told(NodeActed("n1", "c1", "cordon", "bob", planned=True), "n"),
        told(RemediationResult("k1", "c1", "succeeded", "actuator/slurm", moment_of(AT_MS), node="n1"), "k"),
    ]


def answers() -> list[Event]:
    at, later = moment_of(AT_MS), moment_of(AT_MS + 2 * HOUR_MS)
    item = EvidenceItem("root", "agent/n1", "f1", at, "slow")
    scope = IncidentScope(("n1",), ("n1/5",), {"rack": ("r1", "r2")})
    status = SloStatus(
        "job_success", SloScope("c1", team="nlp"), "P30D", "jobs", 99.0, 100.0, 0.99, 0.995, -1.0, {"PT1H": 2.0},
        {"hardware": 1.0}, Bounds(0.98, 1.0),
    )  # fmt: skip
    command = RemediationCommand(
        "k1", "c1", "drain", 0, CommandReason(("48",), "i1", ("j1/1",)), at, later, later, "live", "policy 1", node="n1"
    )
    data: list[Data] = [
        JobFinding("j1", 1, "c1", "slow_rank", at, "supported", (item,), ranks=(3, 4), ratio=1.5),
        NodeState("n1", "c1", "blocked", at, 8, 0, planned=False, cause="gpu.memory.uncorrectable"),
        JobTime("j1", 1, 1, "c1", "lost_work", at, later, 3, cause=Cause("hardware", "gpu.off_bus")),
        FleetTime("c1", at, later, {"allocated": 10.5, "down": 1.5}),
        status,
        Incident("i1", "c1", "opened", "gpu.off_bus", 3, scope, at, later, 2, "r", ("f1",), ("k1",), ("j1/1",)),
        command,
        DeadLetter("job-events", 0, 7, "bad_value", "no such outcome", "e30=", {"k": "v"}),
    ]
    return [verdict(), *(told(d, f"o{number}", source="faultlens") for number, d in enumerate(data))]
