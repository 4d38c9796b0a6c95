"""Scenes: what nodes, jobs and services say, told in minutes since four o'clock, and what the real roles make of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import cache
from typing import Any, TypeVar

from faultlens import topics
from faultlens.arrival import Entry
from faultlens.clock import MINUTE_MS, moment_of, ms_of, parse_moment
from faultlens.codec import Event, encode, event_of
from faultlens.events import (
    Check,
    Data,
    Device,
    DeviceRef,
    JobAlive,
    JobAllocated,
    JobAttributed,
    JobCheckpoint,
    JobEnded,
    JobFinding,
    JobProgress,
    JobStarted,
    JobSubmitted,
    JobTime,
    NodeActed,
    NodeFault,
    NodeHealth,
    NodeState,
    Outcome,
    PlatformIncident,
    PlatformMaintenance,
    PlatformRollout,
    RankExited,
    Slot,
)
from faultlens.internal import Sample
from faultlens.local_pump import Pump
from faultlens.local_roles import load_roles
from streams.runtime.records import Role, Sent
from streams.runtime.task import Task

T0 = parse_moment("2026-11-23T04:00:00Z")
CHECKS = {
    "gpu_count": "gpu", "driver_responds": "driver", "ecc": "gpu", "nvlink": "gpu", "ib_links": "nic",
    "kernel_log": "kernel", "mounts": "storage", "thermal": "cooling",
}  # fmt: skip
Output = TypeVar("Output", bound=Data)


@cache
def roles() -> tuple[Role, ...]:
    return tuple(load_roles())


def at_ms(minute: float) -> int:
    return T0 + round(minute * MINUTE_MS)


def at(minute: float) -> datetime:
    return moment_of(at_ms(minute))


def minute_of(moment: datetime) -> float:
    return (ms_of(moment) - T0) / MINUTE_MS


class Run:
    """What came of a scene."""

    def __init__(self, sent: Sequence[Sent]) -> None:
        self.sent = sent

    def all(self, topic: str, kind: type[Output]) -> list[Output]:
        return [s.event.data for s in self.sent if s.topic == topic and isinstance(s.event.data, kind)]

    def revisions(self, job: str, attempt: int = 1, loss: int | None = None) -> list[JobAttributed]:
        mine = [v for v in self.all(topics.ATTRIBUTIONS, JobAttributed) if (v.job_id, v.attempt) == (job, attempt)]
        return [v for v in mine if v.loss == loss]

    def statuses(self, job: str, attempt: int = 1, loss: int | None = None) -> list[str]:
        return [v.status for v in self.revisions(job, attempt, loss)]

    def verdict(self, job: str, attempt: int = 1, loss: int | None = None) -> JobAttributed:
        """Return the truth: exactly one final verdict was given, and the last word is that or an amended one."""
        statuses = self.statuses(job, attempt, loss)
        assert statuses.count("final") == 1, (job, attempt, loss, statuses)
        last = self.revisions(job, attempt, loss)[-1]
        assert last.status in ("final", "amended"), statuses
        assert last.basis != "established" or any(item.role == "root" for item in last.evidence), last
        assert last.retry.advice != "retry_elsewhere" or last.retry.exclude_nodes, last
        return last

    def told(self, job: str, attempt: int = 1, loss: int | None = None) -> tuple[str, str, str | None, str]:
        """Return code, basis, culprit and advice of the truth; the class follows from the code."""
        verdict = self.verdict(job, attempt, loss)
        node, device = verdict.culprit.node, verdict.culprit.device
        where = node if device is None or device.index is None else f"{node}/{device.index}"
        return verdict.cause.code, verdict.basis, where, verdict.retry.advice

    def states(self, node: str) -> list[tuple[float, str]]:
        """Return the states that the node went through, with the minute since when; repeated ones once."""
        found: list[tuple[float, str]] = []
        for state in self.all(topics.NODE_STATES, NodeState):
            if state.node == node and (not found or found[-1][1] != state.state):
                found.append((round(minute_of(state.since), 2), state.state))
        return found

    def findings(self, job: str) -> list[JobFinding]:
        return [f for f in self.all(topics.FINDINGS, JobFinding) if f.job_id == job]

    def ledger(self, job: str, attempt: int = 1) -> dict[str, float]:
        """Return GPU-minutes by category and cause class: later records replace earlier ones of the same time."""
        minutes: dict[int, JobTime] = {}
        spans = [t for t in self.all(topics.GOODPUT, JobTime) if (t.job_id, t.attempt) == (job, attempt)]
        for span in spans:
            if span.category != "queued":
                for second in range(ms_of(span.start) // 1000, ms_of(span.stop) // 1000):
                    minutes[second] = span
        sums: dict[str, float] = {}
        for span in minutes.values():
            name = span.category + (f" {span.cause.cause_class}" if span.cause else "")
            sums[name] = sums.get(name, 0.0) + span.gpus / 60
        return {name: round(value, 2) for name, value in sums.items()}

    def counted(self, objective: str) -> tuple[int, int, dict[str, int]]:
        """Return good, total and causes of an objective, over the whole cluster."""
        samples = [s for s in self.all(topics.SAMPLES, Sample) if s.objective == objective]
        whole = [s for s in samples if s.pool is None and s.team is None and s.workload is None]
        causes: dict[str, int] = {}
        for sample in whole:
            for cause, bad in sample.by_cause.items():
                causes[cause] = causes.get(cause, 0) + bad
        return sum(s.good for s in whole), sum(s.total for s in whole), {c: n for c, n in causes.items() if n}


def play(told: Iterable[tuple[int, Event]], until: float) -> Run:
    """Play events with the times of their arrival, as far as these are not after `until`, and let time pass to it."""
    sent: list[Sent] = []
    pump = Pump([Task(role) for role in roles()], lambda record, _at_ms: sent.append(record))
    for number, (arrived_ms, event) in enumerate(sorted(told, key=lambda one: one[0]), 1):
        if arrived_ms > at_ms(until):
            break
        pump.take(Entry("scene", number, encode(event), event, arrived_ms=arrived_ms), event)
    pump.finish(at_ms(until))
    assert not [s.event.data for s in sent if s.topic == topics.DEAD_LETTERS]
    return Run(sent)


class Scene:
    """Events of one small fleet. Each arrives when it happens unless `arrives` says when."""

    def __init__(self, cluster: str = "c1") -> None:
        self.cluster = cluster
        self._told: list[tuple[int, Event]] = []

    def say(self, minute: float, data: Data, source: str, *, arrives: float | None = None) -> Scene:
        event = event_of(data, source=source, id_=f"{self.cluster}-e{len(self._told)}", time_ms=at_ms(minute))
        self._told.append((at_ms(minute if arrives is None else arrives), event))
        return self

    def events(self) -> list[tuple[int, Event]]:
        return sorted(self._told, key=lambda told: told[0])

    def run(self, until: float, *others: Scene) -> Run:
        """Play what arrives by `until` of the scene and of those of other clusters, and let time pass to it."""
        return play([told for scene in (self, *others) for told in scene.events()], until)

    # --- nodes -----------------------------------------------------------------------------------------

    def node(
        self,
        *names: str,
        since: float = -10,
        until: float = 30,
        every: float = 1,
        failing: dict[str, str] | None = None,
        **more: Any,
    ) -> Scene:
        """Let nodes report; `failing` gives checks that do not pass their status."""
        checks = tuple(
            Check(name=name, component=component, status=(failing or {}).get(name, "pass"))  # type: ignore[arg-type]
            for name, component in CHECKS.items()
        )
        for name in names:
            fields: dict[str, Any] = {
                "gpus_total": 8, "gpus_allocatable": 8, "boot_id": f"{name}-b1", "gpu_family": "H100",
                "driver_version": "570.133.20", "domains": {"rack": "r1"}, "checks": checks, **more,
            }  # fmt: skip
            minute = since
            while minute <= until:
                data = NodeHealth(node=name, cluster=self.cluster, interval_s=every * 60, **fields)
                self.say(minute, data, f"agent/{name}")
                fields.pop("devices", None)
                minute += every
        return self

    def fault(
        self,
        minute: float,
        node: str,
        kind: str,
        code: str,
        gpu: int | DeviceRef | None = None,
        *,
        arrives: float | None = None,
        **more: Any,
    ) -> Scene:
        device = DeviceRef(index=gpu) if isinstance(gpu, int) else gpu
        more.setdefault("detected_by", "kmsg")
        data = NodeFault(node=node, cluster=self.cluster, kind=kind, code=code, device=device, **more)  # type: ignore[arg-type]
        return self.say(minute, data, f"agent/{node}", arrives=arrives)

    def act(self, minute: float, node: str, action: str, *, planned: bool = False, **more: Any) -> Scene:
        more.setdefault("actor", "jo")
        data = NodeActed(node=node, cluster=self.cluster, action=action, planned=planned, **more)  # type: ignore[arg-type]
        return self.say(minute, data, "operator/jo")

    # --- jobs ------------------------------------------------------------------------------------------

    def job(
        self,
        name: str,
        *nodes: str,
        minute: float = 0,
        gpus: Sequence[int] | None = (0, 1),
        user: str = "ann",
        starts: bool = True,
        workload: str = "training",
        **more: Any,
    ) -> Scene:
        """Submit a job, and allocate and start its first attempt on the same GPUs of each node."""
        data = JobSubmitted(
            job_id=name, cluster=self.cluster, workload=workload, gpus=len(gpus or ()) * len(nodes), nodes=len(nodes),  # type: ignore[arg-type]
            user=user, image=more.pop("image", f"img-{user}"), **more,
        )  # fmt: skip
        self.say(minute - 1, data, "launcher/l")
        return self.attempt(name, *nodes, minute=minute, gpus=gpus, starts=starts) if nodes else self

    def attempt(
        self,
        name: str,
        *nodes: str,
        minute: float = 0,
        gpus: Sequence[int] | None = (0, 1),
        number: int = 1,
        starts: bool = True,
        mig: tuple[str, ...] | None = None,
    ) -> Scene:
        width = len(gpus or ()) or 1
        slots = [
            Slot(n, None if gpus is None else tuple(gpus), ranks=tuple(range(i * width, (i + 1) * width)), mig=mig)
            for i, n in enumerate(nodes)
        ]
        self.say(minute, JobAllocated(name, number, self.cluster, tuple(slots)), "launcher/l")
        return self.say(minute + 0.5, JobStarted(name, number), "launcher/l") if starts else self

    def steps(
        self, name: str, since: float, until: float, number: int = 1, every: float = 0.5, saves: int = 0
    ) -> Scene:
        """Let an attempt make a step each `every` minutes, and save after each `saves` of them."""
        count = round((until - since) / every)
        for step in range(1, count + 1):
            self.say(since + step * every, JobProgress(name, number, step, step_time_s=every * 60), "launcher/l")
            if saves and step % saves == 0:
                self.say(since + step * every, JobCheckpoint(name, number, step, 1.0, ok=True), "launcher/l")
        return self

    def alive(self, name: str, since: float, until: float, number: int = 1, **more: Any) -> Scene:
        for minute in range(int(since), int(until)):
            self.say(minute, JobAlive(name, number, interval_s=60, **more), "launcher/l")
        return self

    def exit(
        self, minute: float, name: str, rank: int, node: str, text: str = "", *, number: int = 1, **more: Any
    ) -> Scene:
        more.setdefault("exit_code", 1)
        data = RankExited(name, number, rank, node, log_tail=text or None, **more)
        return self.say(minute, data, "launcher/l")

    def end(
        self,
        minute: float,
        name: str,
        outcome: Outcome = "failed",
        text: str = "",
        *,
        number: int = 1,
        source: str = "launcher/l",
        arrives: float | None = None,
        **more: Any,
    ) -> Scene:
        if outcome == "failed":
            more.setdefault("exit_code", 1)
        data = JobEnded(name, number, outcome, log_tail=text or None, **more)
        return self.say(minute, data, source, arrives=arrives)

    # --- what concerns everyone ------------------------------------------------------------------------

    def incident(self, minute: float, service: str, phase: str = "started", *, name: str = "i1", **more: Any) -> Scene:
        arrives = more.pop("arrives", None)
        data = PlatformIncident(name, self.cluster, service, phase, **more)  # type: ignore[arg-type]
        return self.say(minute, data, "status/site", arrives=arrives)

    def maintenance(self, minute: float, phase: str = "started", *, planned: bool = True, **more: Any) -> Scene:
        data = PlatformMaintenance("m1", self.cluster, planned, phase, **more)  # type: ignore[arg-type]
        return self.say(minute, data, "operator/site")

    def rollout(self, minute: float, what: str, phase: str = "started", **more: Any) -> Scene:
        data = PlatformRollout("r1", self.cluster, what, "2", phase, **more)  # type: ignore[arg-type]
        return self.say(minute, data, "deploy/site")


def inventory(node: str, gpus: Iterable[int] = range(8)) -> tuple[Device, ...]:
    """Return an inventory whose PCI addresses do not grow with the index."""
    return tuple(Device(i, f"GPU-{node}-{i}", f"0000:{0xF0 - 16 * i:02x}:00.0", serial=f"S-{node}-{i}") for i in gpus)


TRACE = 'Traceback (most recent call last):\n  File "/opt/train/run.py", line 233, in main\n'
LAUNCH = TRACE + "RuntimeError: CUDA error: unspecified launch failure"
UNKNOWN = TRACE + "RuntimeError: CUDA error: unknown error"
ILLEGAL = TRACE + "RuntimeError: CUDA error: an illegal memory access was encountered"
MISTAKE = TRACE + "ValueError: num_heads must divide hidden_size"
PEER = (
    "torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error; "
    "last error: socketProgress: connection closed by remote peer n1"
)
WATCHDOG = (
    "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=17, OpType=ALLREDUCE, NumelIn=8388608, "
    "Timeout(ms)=600000) ran for 600012 milliseconds before timing out."
)
