"""Laws of memory: whatever is thrown at a key, what is kept of it stays small, and in the end nothing is kept."""

from __future__ import annotations

import string
from collections.abc import Iterable
from functools import cache
from random import Random
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from faultlens.clock import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from faultlens.codec import Event, event_of
from faultlens.events import (
    Basis,
    Check,
    Data,
    Device,
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
    PlatformIncident,
    RankExited,
    Scope,
    Slot,
)
from faultlens.internal import ContextChange, Held, NodeAnswer, NodeEvidence, Observation, Released, Sample
from faultlens.signatures import load_signatures
from streams.attribution import Precision, load_precision
from streams.context import Context, apply_change
from streams.job_lifecycle import JobLifecycleProcessor
from streams.processor import Processor
from streams.runtime.state import Kept, KeptCodec
from tests.simulation.playing import all_roles
from tests.simulation.stories import T0

KEY_BYTES_MAX = 64 * 1024
NODE, JOB, CONTEXT, OBJECTIVES = (role.processor for role in all_roles())


class Driver:
    """Steps one key of a processor, firing its wakes as its clock goes on."""

    def __init__(self, processor: Processor, key: str) -> None:
        self.processor, self.key = processor, key
        self.state: Struct | None = None
        self.wake_ms: int | None = None
        self.now_ms, self.told, self.largest = T0, 0, 0
        self._codec = KeptCodec(processor.state_type)
        self._random = Random(5)  # noqa: S311 - names, not secrets

    def say(self, data: Data, at_ms: int, source: str = "agent/n1") -> None:
        """Let an event of now arrive."""
        self.until(at_ms)
        self.told += 1
        event: Event = event_of(data, source=source, id_=f"01JH{self.told:022d}", time_ms=at_ms)
        self._apply(self.processor.on_event(event, self.now_ms, Context(), self.state))

    def until(self, at_ms: int) -> None:
        """Let time go by."""
        while self.state is not None and self.wake_ms is not None and self.wake_ms <= at_ms:
            self.now_ms = max(self.now_ms, self.wake_ms)
            self._apply(self.processor.on_time(self.key, self.now_ms, Context(), self.state))
            assert (self.wake_ms or self.now_ms + 1) > self.now_ms
        self.now_ms = max(self.now_ms, at_ms)

    def _apply(self, effects: Any) -> None:
        self.state, self.wake_ms = effects.state, effects.wake_ms

    @property
    def size(self) -> int:
        """Bytes of what is kept; read back, it is the same."""
        assert self.state is not None
        kept = Kept(self.state, self.wake_ms)
        raw = self._codec.encode(kept)
        assert self._codec.decode(raw) == kept
        return len(raw)

    def name(self, length: int) -> str:
        """Return a name that nobody has had."""
        return "".join(self._random.choices(string.ascii_lowercase + string.digits, k=length))


def report(**more: Any) -> NodeHealth:
    fields = {"interval_s": 30.0, "gpus_total": 8, "gpus_allocatable": 8, "checks": (), "boot_id": "b1", **more}
    return NodeHealth(node="n1", cluster="c1", **fields)


def fault(code: str, gpu: int, count: int = 1, message: str = "") -> NodeFault:
    device = DeviceRef(index=gpu)
    return NodeFault("n1", "c1", "xid", code, "kmsg", device=device, count=count, message=f"NVRM: Xid {code} {message}")


# --- nodes -----------------------------------------------------------------------------------------------


def test_800_000_of_one_code_take_the_room_of_one() -> None:
    node = Driver(NODE, "n1")
    node.say(report(), T0)
    for number in range(4_000):
        node.say(fault("74", number % 2, count=200), T0 + number * 10)
    assert node.size < 8 * 1024


def test_a_node_on_which_everything_goes_wrong_at_once_stays_small() -> None:
    node = Driver(NODE, "n1")
    devices = tuple(
        Device(i, uuid=f"GPU-{node.name(36)}", pci=f"0000:{i:02x}:00.0", serial=node.name(13)) for i in range(8)
    )
    checks = tuple(Check(node.name(12), "gpu", "fail", device=i % 8, message=node.name(300)) for i in range(300))
    node.say(report(devices=devices, checks=checks, domains={node.name(8): node.name(8) for _ in range(300)}), T0)
    for number in range(600):
        at_ms, job, user = T0 + SECOND_MS + number * 100, node.name(40), node.name(24)
        image = f"registry.example.com/team/image@sha256:{node.name(64)}"
        node.say(fault(str(1_000 + number % 700), number % 8, message=node.name(300)), at_ms)
        gpus = (number % 8,)
        node.say(Held("n1", job, 1, "c1", at_ms, gpus, user=user, image=image, gpus=1), at_ms)
        node.say(fault(("13", "31", "69")[number % 3], number % 8), at_ms)
        if number < 300:
            released = Released(
                "n1", job, 1, "c1", at_ms, failed=True, started=True, opens_ms=T0, closes_ms=at_ms + 5 * MINUTE_MS,
                devices=gpus, user=user, image=image, outcome="failed", unexplained=True, since_ms=at_ms,
            )  # fmt: skip
            node.say(released, at_ms)
    assert node.size <= KEY_BYTES_MAX
    assert node.state is not None
    assert node.state.overflow > 0  # type: ignore[attr-defined]


def test_what_matters_is_not_pushed_out_by_a_storm_of_what_does_not() -> None:
    node = Driver(NODE, "n1")
    node.say(report(), T0)
    node.say(fault("79", 3), T0 + SECOND_MS)
    for number in range(2_000):
        node.say(fault("31", number % 8), T0 + 2 * SECOND_MS + number * MINUTE_MS // 8)
    held = Held("n1", "job", 1, "c1", T0, (3,), user="ann", image="img", gpus=1)
    event = event_of(held, source="faultlens/job", id_="held", time_ms=T0)
    told = NODE.on_event(event, node.now_ms, Context(), node.state).emits
    codes = {o.code for emit in told if isinstance(emit.data, NodeEvidence) for o in emit.data.observations}
    assert "79" in codes


@pytest.mark.parametrize("how", ["removed", "silent", "only allocated"])
def test_a_node_that_nobody_speaks_of_is_forgotten_after_four_weeks(how: str) -> None:
    node = Driver(NODE, "n1")
    if how == "only allocated":
        node.say(Held("n1", "job", 1, "c1", T0, (0,), gpus=1), T0)
        node.say(Released("n1", "job", 1, "c1", T0, failed=False, started=True), T0)
    else:
        node.say(report(), T0)
    if how == "removed":
        node.say(NodeActed("n1", "c1", "remove", "autoscaler", planned=True), T0, "bridge/k8s")
    node.until(T0 + 27 * DAY_MS)
    assert node.state is not None
    node.until(T0 + 29 * DAY_MS)
    assert node.state is None


def test_a_node_that_a_job_holds_is_not_forgotten() -> None:
    node = Driver(NODE, "n1")
    node.say(Held("n1", "job", 1, "c1", T0, (0,), gpus=1), T0)
    node.until(T0 + 60 * DAY_MS)
    assert node.state is not None


# --- jobs ------------------------------------------------------------------------------------------------


def job_on(nodes: Iterable[str], gpus: int = 8) -> Driver:
    """Return a job whose first attempt runs on nodes."""
    job = Driver(JOB, "job")
    names = list(nodes)
    job.say(JobSubmitted("job", "c1", "training", gpus * len(names), len(names), user="ann"), T0, "scheduler/s")
    attempt_on(job, 1, names, gpus)
    return job


def attempt_on(job: Driver, number: int, names: list[str], gpus: int = 8) -> None:
    for first in range(0, len(names), 256):
        part = names[first : first + 256]
        slots = tuple(
            Slot(name, devices=tuple(range(gpus)), ranks=tuple(range((first + i) * gpus, (first + i + 1) * gpus)))
            for i, name in enumerate(part)
        )
        job.say(JobAllocated("job", number, "c1", slots), job.now_ms + SECOND_MS, "scheduler/s")
    job.say(JobStarted("job", number), job.now_ms + MINUTE_MS, "launcher/l")


def observation(number: int, name: str) -> Observation:
    at_ms = T0 + number * 10
    return Observation(
        f"{name}-{number}", "agent/n1", "n1", "xid", str(number), at_ms, at_ms, "hardware", "gpu.unknown", "unexpected",
        40, "an unknown code", open=True, device=DeviceRef(index=number % 8), message=name * 5, last_ms=at_ms,
    )  # fmt: skip


def test_10_000_records_of_evidence_are_not_kept_one_by_one() -> None:
    job = job_on(["n1"])
    for number in range(10_000):
        told = NodeEvidence("job", 1, "n1", (observation(number, job.name(40)),))
        job.say(told, job.now_ms + 10, "faultlens/node")
    assert job.size <= KEY_BYTES_MAX


@cache
def gang() -> Driver:
    """Return a job of 1,024 nodes that failed, with everything that was said of it."""
    names = [f"ip-10-{i * 7 % 256}-{i * 13 % 256}-{i}.ec2.internal" for i in range(1_024)]
    job = job_on(names)
    for step in range(40):
        ranks = {str(rank): 10.0 + rank / 100 for rank in range(64)}
        job.say(JobProgress("job", 1, step, 10.0, ranks=ranks), job.now_ms + 10 * SECOND_MS, "launcher/l")
    for rank in range(64):
        exited = RankExited("job", 1, rank, names[rank // 8], rank % 8, exit_code=1, log_tail=f"NCCL error on {rank}")
        job.say(exited, job.now_ms + 1, "launcher/l")
    job.say(JobEnded("job", 1, "failed", exit_code=1), job.now_ms + SECOND_MS, "launcher/l")
    end_ms = job.now_ms
    for number, name in enumerate(names):
        domains = {"rack": f"rack-{number // 8}", "nvlink": f"nv-{number // 8}", "power": f"pdu-{number // 32}"}
        answer = NodeAnswer("job", 1, name, end_ms + 5 * MINUTE_MS, pool="h100", domains=domains, gpus_total=8)
        job.say(answer, end_ms + 5 * MINUTE_MS, "faultlens/node")
    return job


def test_a_gang_of_1024_nodes_fits_into_one_value() -> None:
    assert gang().size <= KEY_BYTES_MAX


def test_a_gang_is_not_judged_once_for_each_of_its_ranks_and_nodes() -> None:
    asked = 0

    class Asked(Precision, frozen=True):
        """Counts the verdicts: each asks at least once how precise its rule is."""

        def of(self, rule: str, basis: Basis) -> float:
            nonlocal asked
            asked += 1
            return super().of(rule, basis)

    usual = load_precision()
    job = Driver(JobLifecycleProcessor(load_signatures(), Asked({}, usual.by_basis), "1"), "job")
    names = [f"node-{number}" for number in range(300)]
    attempt_on(job, 1, names)
    job.say(JobEnded("job", 1, "failed", exit_code=1), job.now_ms + SECOND_MS, "launcher/l")
    end_ms = job.now_ms
    for rank in range(600):
        job.say(RankExited("job", 1, rank, names[rank // 8], exit_code=1), end_ms + rank, "launcher/l")
    for name in names:
        job.say(NodeAnswer("job", 1, name, end_ms + 6 * MINUTE_MS), end_ms + 6 * MINUTE_MS, "faultlens/node")
    assert 0 < asked < 100


def test_a_thousand_attempts_of_one_job_are_not_kept_one_by_one() -> None:
    job = job_on(["n1"], gpus=1)
    for number in range(1, 1_001):
        if number > 1:
            attempt_on(job, number, ["n1"], gpus=1)
        job.say(JobEnded("job", number, "failed", exit_code=1, log_tail="ValueError: x"), job.now_ms + 10, "launcher/l")
        at_ms = job.now_ms + 5 * MINUTE_MS
        job.say(NodeAnswer("job", number, "n1", at_ms), at_ms, "faultlens/node")
    assert job.size <= KEY_BYTES_MAX


def test_months_of_steps_are_not_kept_one_by_one() -> None:
    job = job_on(["n1"])
    for step in range(1, 1_500):
        slow = 3.0 if step % 3 == 0 else 1.0
        at_ms = job.now_ms + round(slow * HOUR_MS)
        job.say(JobProgress("job", 1, step, slow * 3_600), at_ms, "launcher/l")
        if step % 5 == 0:
            job.say(JobCheckpoint("job", 1, step, 30.0, ok=True), at_ms + MINUTE_MS, "launcher/l")
    assert job.now_ms > T0 + 90 * DAY_MS
    assert job.size <= KEY_BYTES_MAX


@pytest.mark.parametrize(("outcome", "days"), [("succeeded", 7), ("cancelled", 7), ("failed", 400)])
def test_a_job_that_is_over_is_forgotten(outcome: str, days: int) -> None:
    job = job_on(["n1"], gpus=1)
    job.say(JobEnded("job", 1, outcome, exit_code=0), T0 + HOUR_MS, "scheduler/s")  # type: ignore[arg-type]
    job.say(NodeAnswer("job", 1, "n1", T0 + HOUR_MS + 5 * MINUTE_MS), T0 + HOUR_MS + 5 * MINUTE_MS, "faultlens/node")
    job.until(T0 + (days - 1) * DAY_MS)
    assert job.state is not None
    job.until(T0 + 2 * (days + 1) * DAY_MS)
    assert job.state is None


def test_a_job_that_looped_is_forgotten_with_its_stubs() -> None:
    job = job_on(["n1"], gpus=1)
    for number in range(1, 31):
        if number > 1:
            attempt_on(job, number, ["n1"], gpus=1)
        outcome = "succeeded" if number == 30 else "failed"
        job.say(JobEnded("job", number, outcome, exit_code=1), job.now_ms + MINUTE_MS, "launcher/l")  # type: ignore[arg-type]
        at_ms = job.now_ms + 5 * MINUTE_MS
        job.say(NodeAnswer("job", number, "n1", at_ms), at_ms, "faultlens/node")
    job.until(T0 + 500 * DAY_MS)
    assert job.state is None


def test_a_job_that_never_got_anything_is_forgotten() -> None:
    job = Driver(JOB, "job")
    job.say(JobSubmitted("job", "c1", "training", 8, 1), T0, "scheduler/s")
    job.until(T0 + 100 * DAY_MS)
    assert job.state is None


def test_what_a_node_says_of_a_forgotten_job_does_not_bring_it_back() -> None:
    job = Driver(JOB, "job")
    job.say(NodeEvidence("job", 1, "n1", (observation(1, "late"),)), T0, "faultlens/node")
    assert job.state is None


# --- what all share --------------------------------------------------------------------------------------


def test_the_counters_of_a_busy_month_fit_into_one_value() -> None:
    key = "goodput|c1|||"
    counters = Driver(OBJECTIVES, key)
    for hour in range(28 * 24):
        at_ms = T0 + hour * HOUR_MS
        for minute in range(0, 60, 7 if hour < 660 else 1):
            from_ms = at_ms + minute * MINUTE_MS
            by_cause = {"hardware": 123_456_789, "user": 987_654_321, "overhead": 55_555_555}
            bad = sum(by_cause.values())
            sample = Sample("goodput", "c1", from_ms, from_ms + MINUTE_MS, 10**12, 10**12 + bad, by_cause)
            counters.say(sample, from_ms + MINUTE_MS, "faultlens/job")
    assert counters.size <= KEY_BYTES_MAX
    counters.until(T0 + 90 * DAY_MS)
    assert counters.state is None


def test_the_context_stays_small_however_much_is_announced() -> None:
    context = Context()
    for number in range(2_000):
        scope = Scope(nodes=(f"node-{number}",), pools=("h100",))
        incident = PlatformIncident(f"inc-{number}", "c1", "storage", "started", scope, message="slow " * 20_000)
        event = event_of(incident, source="status/s", id_=str(number), time_ms=T0 + number)
        told = CONTEXT.on_event(event, T0 + number, context, None).emits
        assert isinstance(told[0].data, ContextChange)
        context = apply_change(context, told[0].data, arrived_ms=T0 + number)
    assert len(msgspec.msgpack.encode(context)) <= 4 * KEY_BYTES_MAX
    assert context.dropped == 2_000 - 256
