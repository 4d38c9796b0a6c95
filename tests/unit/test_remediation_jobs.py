"""What jobs tell remediation: loops on one GPU, hangs over a node in trouble, verdicts that nothing else says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import replace

from faultlens.clock import HOUR_MS, MINUTE_MS, moment_of, parse_moment
from faultlens.codec import Decoder, encode, event_of
from faultlens.events import (
    Cause,
    Data,
    DeviceRef,
    Incident,
    JobFinding,
    RemediationCommand,
    RemediationResult,
)
from faultlens.internal import Condition, JobTrouble, JobVerdict, NodeFacts, Observation
from streams.context import Context
from streams.remediation import RemediationProcessor, load_policy
from streams.remediation.record import CommandCard, job_key, key_of

T0 = parse_moment("2026-11-23T04:00:00Z")
GPU = DeviceRef(index=3)


class Cluster:
    """The processor of one cluster, fed by hand."""

    def __init__(self, policy: Path | None = None) -> None:
        self._processor = RemediationProcessor(load_policy(policy))
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
    fields: dict[str, Any] = {
        "basis": "established", "rule": "black_hole_node", "withdrawn": False, "code": "platform.runtime.container",
    } | more  # fmt: skip
    return JobVerdict(
        cluster="c1", job_id="j", attempt=1, at_ms=T0, ended_ms=T0, cause_class="platform", node="n1", **fields
    )


def result(command: RemediationCommand, state: str = "succeeded") -> RemediationResult:
    return RemediationResult(command.command_id, "c1", state, "x", moment_of(T0), command.node)  # type: ignore[arg-type]


def test_a_crash_loop_on_one_gpu_leaves_the_gpu_out_and_not_the_node() -> None:
    cluster = Cluster().tell(loop())
    assert cluster.done == [("exclude_device", "n1")]
    assert cluster.commands[0].device == GPU


@pytest.mark.parametrize(
    ("device", "states"),
    [(GPU, ["succeeded"]), (DeviceRef(uuid="GPU-1"), ["succeeded"]), (GPU, ["started", "failed"])],
)
def test_a_gpu_that_is_or_may_be_left_out_is_put_back_when_it_is_well(device: DeviceRef, states: list[str]) -> None:
    cluster = Cluster().tell(loop(device=device))
    for minute in range(1, 12):
        command, answers = cluster.commands[-1], states if len(cluster.commands) <= 2 else ["succeeded"]
        for state in answers if command.action != "validate" else ["succeeded"]:
            cluster.tell(result(command, state), minute=minute)
        cluster.tell(replace(facts(), report_ms=T0 + minute * MINUTE_MS + 1), minute=minute + 0.5)
    assert cluster.done[-1] == ("return_to_service", "n1")


def test_a_crash_loop_that_is_only_supposed_or_the_users_own_moves_nothing() -> None:
    assert Cluster().tell(loop(basis="supported")).done == []
    assert Cluster().tell(loop(cause=Cause("user", "app.crash"))).done == []
    assert Cluster().tell(loop(device=None)).done == []


@pytest.mark.parametrize(
    ("route", "work", "meets"),
    [
        ("from_job_gpus: 64", {"job_gpus": 64}, True),
        ("from_job_gpus: 64", {"job_gpus": 63, "job_priority": 1e9}, False),
        ("from_job_priority: 100", {"job_gpus": 8, "job_priority": 100.0}, True),
        ("from_job_priority: 100", {"job_gpus": 512, "job_priority": 99.0}, False),
        ("from_job_priority: 0", {"job_gpus": 512}, False),
    ],
)
def test_a_route_for_large_or_urgent_jobs_is_taken_once_it_is_known_what_works_there(
    route: str, work: dict[str, Any], meets: bool, tmp_path: Path
) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(f"version: site\nroutes: [{{name: careful, match: {{{route}}}, ladder: hold}}]\n", "utf-8")
    cluster = Cluster(policy).tell(broken())
    cluster.tell(facts(jobs=("j/1",), **work), minute=0.1).tell(result(cluster.commands[0]), minute=0.2)
    assert (cluster.commands[-1].policy.split()[-1] == "careful") == meets
    cluster.tell(facts(), minute=1).tell(result(cluster.commands[-1]), minute=2)
    assert (cluster.commands[-1].policy.split()[-1] == "careful") == meets, "that it has ended since changes nothing"


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


def test_a_node_that_only_verdicts_blame_is_as_bad_as_their_cause_where_nodes_wait_for_room() -> None:
    cluster = Cluster().tell(replace(facts(), node="n2")).tell(replace(facts(), node="n3"))
    cluster.tell(broken())
    flaps = replace(broken().observation, node="n2", kind="nic", code="link_down", cause_code="network.link.down",
                    severity=60, hint="block_new_work")  # fmt: skip
    cluster.tell(Condition("n2", "c1", "opened", "cond-2", flaps, T0), minute=1)
    cluster.tell(replace(verdict(), node="n3", code="gpu.memory.uncorrectable"), minute=2)
    assert cluster.done == [("block_new_work", "n1")], "one node of three may be out"
    cluster.tell(replace(facts(), state="removed"), minute=3)
    assert cluster.done[1:] == [("block_new_work", "n3")]


def test_what_a_report_says_after_a_verdict_decides_what_is_done_however_bad_the_verdicts_cause_is() -> None:
    cluster = Cluster().tell(verdict(code="gpu.memory.uncorrectable"))
    assert cluster.commands[-1].policy.endswith(" black_hole")
    hot = replace(broken().observation, cause_code="gpu.thermal.shutdown", severity=30, hint="reset_device")
    cluster.tell(Condition("n1", "c1", "opened", "cond", hot, T0), minute=1)
    cluster.tell(result(cluster.commands[-1]), minute=2).tell(facts(), minute=12)
    assert cluster.commands[-1].policy.endswith(" reset")


def test_a_node_that_was_put_back_is_taken_again_once_its_processor_says_that_it_is_back() -> None:
    cluster = Cluster().tell(broken())
    for state in ("succeeded", "succeeded", "failed"):
        cluster.tell(result(cluster.commands[-1], state), minute=1)
    assert [action for action, _ in cluster.done] == ["block_new_work", "drain", "reboot"]
    old = CommandCard(
        "c1", "old", "earlier", "return_to_service", 0, T0, T0, T0, node="n1", ended_ms=T0, state="expired"
    )
    cluster._states[key_of(old)] = old
    cluster.tell(replace(facts(), state="draining"), minute=2)
    late = RemediationResult("old", "c1", "succeeded", "x", moment_of(T0), "n1")
    assert len(cluster.tell(late, minute=3).done) == 3, "it would pass for out, and cost nothing"
    assert cluster.tell(replace(facts(), state="degraded"), minute=3).done[3:] == [("block_new_work", "n1")]


def test_a_verdict_on_what_an_incident_is_about_joins_it() -> None:
    cluster = Cluster().tell(broken()).tell(verdict(), minute=6)
    assert cluster.done == [("block_new_work", "n1")]


def test_a_hang_is_ended_once_however_often_it_is_told() -> None:
    cluster = Cluster().tell(broken()).tell(facts(jobs=("j/1",)), minute=1)
    for minute in range(2, 2 + HOUR_MS // MINUTE_MS, 10):
        cluster.tell(hang(), minute=minute)
    assert [action for action, _ in cluster.done].count("terminate_job") == 1


def test_a_job_that_hangs_anew_after_a_day_is_ended_by_another_command() -> None:
    cluster = Cluster().tell(broken()).tell(facts(jobs=("j/1",)), minute=1).tell(hang(), minute=2)
    cluster.tell(result(cluster.commands[-1], "failed"), minute=3)
    cluster._states.pop(job_key("c1", "j"))
    cluster.tell(facts(jobs=("j/1",)), minute=1500)
    later = replace(hang().finding, since=moment_of(T0 + 1500 * MINUTE_MS))
    cluster.tell(hang(), minute=1500).tell(replace(hang(), finding=later), minute=1501)
    stops = [command.command_id for command in cluster.commands if command.action == "terminate_job"]
    assert len(stops) == len(set(stops)) == 2
