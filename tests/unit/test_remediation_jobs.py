"""What jobs tell remediation: loops on one GPU, hangs over a node in trouble, verdicts that nothing else says."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from faultlens.clock import HOUR_MS, MINUTE_MS, moment_of, parse_moment
from faultlens.codec import Decoder, encode, event_of
from faultlens.events import Cause, Data, DeviceRef, Incident, JobFinding, RemediationCommand
from faultlens.internal import Condition, JobTrouble, JobVerdict, NodeFacts, Observation
from streams.context import Context
from streams.remediation import RemediationProcessor, load_policy

T0 = parse_moment("2026-11-23T04:00:00Z")
GPU = DeviceRef(index=3)


class Cluster:
    """The processor of one cluster, fed by hand."""

    def __init__(self) -> None:
        self._processor = RemediationProcessor(load_policy())
        self._states: dict[str, Struct] = {}
        self.commands: list[RemediationCommand] = []
        self.incidents: list[Incident] = []
        self._told = 0
        self.tell(facts())

    def get(self, key: str) -> Struct | None:
        return self._states.get(key)

    def tell(self, data: Data, *, minute: float = 0) -> Cluster:
        now_ms = T0 + round(minute * MINUTE_MS)
        self._told += 1
        event = event_of(data, source="faultlens/x", id_=f"e{self._told}", time_ms=now_ms)
        effects = self._processor.on_event(event, now_ms, Context(), self)
        for key, shelved in effects.shelved.items():
            if shelved.state is None:
                self._states.pop(key, None)
            else:
                self._states[key] = shelved.state
        self.commands += [e.data for e in effects.emits if isinstance(e.data, RemediationCommand)]
        self.incidents += [e.data for e in effects.emits if isinstance(e.data, Incident)]
        return self

    @property
    def done(self) -> list[tuple[str, str | None]]:
        return [(command.action, command.node or command.job_id) for command in self.commands]


def facts(**more: Any) -> NodeFacts:
    return NodeFacts("n1", "c1", T0, "available", False, 8, 8, 60_000, T0, pool="gpu", **more)


def broken() -> Condition:
    seen = Observation(
        "f1", "agent/n1", "n1", "xid", "79", T0, T0, "hardware", "gpu.off_bus", "root", 90, "gone", True, None, GPU,
        hint="reboot",
    )  # fmt: skip
    return Condition("n1", "c1", "opened", "cond", seen, T0)


def loop(**more: Any) -> JobTrouble:
    cause = Cause("hardware", "gpu.compute.repeated_fault")
    fields: dict[str, Any] = {"basis": "established", "node": "n1", "device": GPU, "cause": cause} | more
    return JobTrouble("c1", "j", JobFinding("j", 3, "c1", "crash_loop", moment_of(T0), evidence=(), **fields))


def hang() -> JobTrouble:
    return JobTrouble("c1", "j", JobFinding("j", 1, "c1", "hang", moment_of(T0 + MINUTE_MS), "assumed", ()))


def verdict(**more: Any) -> JobVerdict:
    fields: dict[str, Any] = {"basis": "established", "rule": "black_hole_node", "withdrawn": False} | more
    return JobVerdict(
        cluster="c1", job_id="j", attempt=1, at_ms=T0, ended_ms=T0, cause_class="platform",
        code="platform.runtime.container", node="n1", **fields,
    )  # fmt: skip


def test_a_crash_loop_on_one_gpu_leaves_the_gpu_out_and_not_the_node() -> None:
    cluster = Cluster().tell(loop())
    assert cluster.done == [("exclude_device", "n1")]
    assert cluster.commands[0].device == GPU


def test_a_crash_loop_that_is_only_supposed_or_the_users_own_moves_nothing() -> None:
    assert Cluster().tell(loop(basis="supported")).done == []
    assert Cluster().tell(loop(cause=Cause("user", "app.crash"))).done == []
    assert Cluster().tell(loop(device=None)).done == []


def test_a_gang_that_hangs_on_a_lost_gpu_is_ended_and_told_where_not_to_start() -> None:
    cluster = Cluster().tell(broken()).tell(facts(jobs=("j/1",)), minute=1).tell(hang(), minute=2)
    assert cluster.done == [("block_new_work", "n1"), ("terminate_job", "j")]
    assert cluster.commands[1].exclude_nodes == ("n1",)


def test_a_command_on_a_job_is_an_event_about_the_job() -> None:
    stop = Cluster().tell(broken()).tell(facts(jobs=("j/1",)), minute=1).tell(hang(), minute=2).commands[1]
    event = event_of(stop, source="faultlens/remediation", id_=stop.command_id, time_ms=T0)
    assert event.subject == "j"
    assert Decoder().decode(encode(event)) == event


def test_a_job_that_hangs_on_nodes_that_are_well_is_let_be() -> None:
    assert Cluster().tell(facts(jobs=("j/1",))).tell(hang(), minute=2).done == []


def test_a_verdict_alone_moves_something_only_when_it_is_established() -> None:
    assert Cluster().tell(verdict()).done == [("block_new_work", "n1")]
    assert Cluster().tell(verdict(basis="supported")).done == []
    assert Cluster().tell(verdict(rule="device_fault_on_allocated_gpu")).done == []


def test_a_verdict_on_what_an_incident_is_about_joins_it() -> None:
    cluster = Cluster().tell(broken()).tell(verdict(), minute=6)
    assert cluster.done == [("block_new_work", "n1")]


def test_a_hang_is_ended_once_however_often_it_is_told() -> None:
    cluster = Cluster().tell(broken()).tell(facts(jobs=("j/1",)), minute=1)
    for minute in range(2, 2 + HOUR_MS // MINUTE_MS, 10):
        cluster.tell(hang(), minute=minute)
    assert [action for action, _ in cluster.done].count("terminate_job") == 1
