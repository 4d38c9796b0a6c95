"""Small fleets told by hand: what nodes and jobs say in the order in which it arrives."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from faultlens.clock import MINUTE_MS, parse_moment
from faultlens.codec import Event, event_of
from faultlens.events import (
    Check,
    Data,
    DeviceRef,
    JobAlive,
    JobAllocated,
    JobCheckpoint,
    JobEnded,
    JobProgress,
    JobStarted,
    JobSubmitted,
    NodeFault,
    NodeHealth,
    Outcome,
    Slot,
)

T0 = parse_moment("2026-11-23T04:00:00Z")
CLUSTER = "c1"
GPUS = 4


@dataclass(frozen=True)
class Arrival:
    """An event and when it arrived."""

    at_ms: int
    event: Event


@dataclass
class Story:
    """Events as they happen, in minutes since the beginning; each arrives half a second later unless it says when."""

    arrivals: list[Arrival] = field(default_factory=list)

    def told(self) -> list[Arrival]:
        """Return everything in order of arrival."""
        return sorted(self.arrivals, key=lambda arrival: arrival.at_ms)

    def say(self, at_min: float, data: Data, source: str, *, arrives_min: float | None = None) -> Story:
        """Add one event."""
        at_ms = T0 + round(at_min * MINUTE_MS)
        arrived_ms = at_ms + 500 if arrives_min is None else T0 + round(arrives_min * MINUTE_MS)
        event = event_of(data, source=source, id_=f"e{len(self.arrivals)}", time_ms=at_ms)
        self.arrivals.append(Arrival(arrived_ms, event))
        return self

    # --- nodes -----------------------------------------------------------------------------------------

    def healthy(self, *nodes: str, until_min: float, since_min: float = 0.0, boot: str = "b1") -> Story:
        """Let nodes report every minute that all is well."""
        return self.reports(*nodes, since_min=since_min, until_min=until_min, boot=boot, checks={})

    def reports(
        self, *nodes: str, since_min: float, until_min: float, checks: dict[str, Any], boot: str = "b1"
    ) -> Story:
        """Let nodes report every minute; `checks`: the status of those that differ from `pass`."""
        names = {"ecc": "gpu", "nvlink": "gpu", "mounts": "storage"}
        found = tuple(
            Check(name=name, component=component, status=checks.get(name, "pass"))  # type: ignore[arg-type]
            for name, component in names.items()
        )
        for number, node in enumerate(nodes):
            at_min = since_min + number / 60
            while at_min < until_min:
                data = NodeHealth(
                    node=node, cluster=CLUSTER, interval_s=60, gpus_total=GPUS, gpus_allocatable=GPUS, checks=found,
                    boot_id=f"{node}-{boot}", gpu_family="H100", driver_version="550.54", domains={"rack": "r1"},
                )  # fmt: skip
                self.say(at_min, data, f"agent/{node}")
                at_min += 1
        return self

    def fault(self, at_min: float, node: str, code: str, gpu: int | None = 0, kind: str = "xid", **more: Any) -> Story:
        """Let a node tell of a fault."""
        device = None if gpu is None else DeviceRef(index=gpu)
        data = NodeFault(
            node=node, cluster=CLUSTER, kind=kind, code=code, detected_by="kmsg", device=device, **more  # type: ignore[arg-type]
        )  # fmt: skip
        return self.say(at_min, data, f"agent/{node}")

    # --- jobs ------------------------------------------------------------------------------------------

    def job(
        self, job: str, at_min: float, *nodes: str, user: str = "ann", gpus: tuple[int, ...] = (0,), starts: bool = True
    ) -> Story:
        """Submit, allocate and start attempt 1 of a job on the same GPUs of each node."""
        count = len(gpus) * len(nodes)
        submitted = JobSubmitted(
            job_id=job,
            cluster=CLUSTER,
            workload="training",
            gpus=count,
            nodes=len(nodes),
            user=user,
            image=f"img-{user}",
        )
        self.say(at_min - 0.5, submitted, "scheduler/s")
        return self.attempt(job, 1, at_min, *nodes, gpus=gpus, starts=starts)

    def attempt(
        self, job: str, number: int, at_min: float, *nodes: str, gpus: tuple[int, ...] = (0,), starts: bool = True
    ) -> Story:
        """Allocate and start an attempt."""
        slots = tuple(
            Slot(node, devices=gpus, ranks=tuple(range(i * len(gpus), (i + 1) * len(gpus))))
            for i, node in enumerate(nodes)
        )
        self.say(at_min, JobAllocated(job, number, CLUSTER, slots), "scheduler/s")
        return self.say(at_min + 0.2, JobStarted(job, number), "launcher/l") if starts else self

    def alive(self, job: str, since_min: float, until_min: float, number: int = 1) -> Story:
        """Let the launcher say each minute that an attempt runs."""
        at_min = since_min
        while at_min < until_min:
            self.say(at_min, JobAlive(job, number, interval_s=60), "launcher/l")
            at_min += 1
        return self

    def steps(self, job: str, since_min: float, until_min: float, number: int = 1, every_min: float = 0.5) -> Story:
        """Let an attempt make steps, with a checkpoint every tenth."""
        at_min, step = since_min, 0
        while at_min < until_min:
            step += 1
            self.say(at_min, JobProgress(job, number, step, step_time_s=every_min * 60), "launcher/l")
            if step % 10 == 0:
                self.say(at_min + 0.1, JobCheckpoint(job, number, step, 5.0, ok=True), "launcher/l")
            at_min += every_min
        return self

    def end(self, job: str, at_min: float, outcome: Outcome = "failed", number: int = 1, **more: Any) -> Story:
        """End an attempt, by the launcher's word unless `source` is another."""
        source = more.pop("source", "launcher/l")
        return self.say(at_min, JobEnded(job, number, outcome, **more), source)


NCCL = "RuntimeError: NCCL communicator was aborted on rank 0."
ILLEGAL = "RuntimeError: CUDA error: an illegal memory access was encountered"
