"""What the Kubernetes actuator changes, what it leaves alone, and that it may be killed anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

pytest.importorskip("kubernetes_asyncio", reason="the Kubernetes client is not installed (extra `kubernetes`)")

from actuators.kubernetes import CONDITION, TAINT, Effect, Kubernetes
from actuators.ledger import Ledger
from faultlens.clock import HOUR_MS
from faultlens.events import DeviceRef, DraDevice, RemediationCommand
from tests.contract.acting import DRAIN, T0, Bench, Clock
from tests.contract.kubernetes_fake import FakeKubernetes

BLOCK = replace(DRAIN, action="block_new_work", command_id="block")
BACK = replace(DRAIN, action="return_to_service", command_id="back")
GPU = DeviceRef(index=3, dra=DraDevice("gpu.nvidia.com", "node-1", "gpu-3"))
EXCLUDE = replace(DRAIN, action="exclude_device", command_id="exclude", device=GPU)
PODS: dict[str, dict[str, Any]] = {
    "train-0": {},
    "train-1": {},
    "done": {"phase": "Succeeded"},
    "exporter": {"ownerReferences": [{"kind": "DaemonSet", "controller": True}]},
    "kube-proxy": {"annotations": {"kubernetes.io/config.mirror": "x"}},
}


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    opened = Ledger(":memory:")
    yield opened
    opened.close()


def bench(server: FakeKubernetes, ledger: Ledger, *, effect: Effect = "NoSchedule") -> Bench:
    clock = Clock()
    return Bench(Kubernetes(server, now_ms=clock, sleep=clock.sleep, effect=effect), ledger, clock)


def taints(server: FakeKubernetes) -> list[str]:
    return [taint["key"] for taint in server.node["spec"].get("taints", [])]


def test_a_node_is_cordoned_tainted_and_says_why(ledger: Ledger) -> None:
    server = FakeKubernetes()
    server.node["spec"]["taints"] = [{"key": "team", "effect": "NoSchedule"}]
    assert bench(server, ledger).worker.take(BLOCK) == "succeeded"
    assert server.node["spec"]["unschedulable"] is True
    assert taints(server) == ["team", TAINT]
    (condition,) = server.node["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["message"]) == (
        CONDITION,
        "False",
        "xid:79: command block",
    )
    assert list(server.events) == ["faultlens-block"]


def test_what_was_ours_is_taken_back_and_the_rest_stays(ledger: Ledger) -> None:
    server = FakeKubernetes()
    server.node["spec"]["taints"] = [{"key": "team", "effect": "NoSchedule"}]
    line = bench(server, ledger)
    assert [line.worker.take(command) for command in (BLOCK, BACK)] == ["succeeded", "succeeded"]
    assert "unschedulable" not in server.node["spec"]
    assert taints(server) == ["team"]
    assert line.worker.take(replace(BACK, command_id="again")) == "succeeded"
    assert line.results[-1].reason == "in service already"


def test_a_node_that_somebody_else_cordoned_is_left_as_it_is(ledger: Ledger) -> None:
    server = FakeKubernetes()
    server.node["spec"]["unschedulable"] = True
    line = bench(server, ledger)
    assert [line.worker.take(command) for command in (BLOCK, BACK)] == ["succeeded", "refused"]
    assert server.changes == []


def test_pods_are_evicted_as_their_budgets_allow_and_the_nodes_own_stay(ledger: Ledger) -> None:
    server = FakeKubernetes(pods=PODS)
    server.kept["train-1"] = 5
    assert bench(server, ledger).worker.take(DRAIN) == "succeeded"
    assert sorted(server.pods) == ["done", "exporter", "kube-proxy"]


def test_a_budget_that_never_allows_it_ends_the_drain_at_its_one_deadline_and_is_named(ledger: Ledger) -> None:
    server = FakeKubernetes(pods=PODS)
    server.kept["train-1"] = 1_000_000
    line = bench(server, ledger)
    assert line.worker.take(DRAIN) == "failed"
    assert line.results[-1].reason == "not ended in time; 1 pods are left: disruption budgets keep ml/train-1"
    assert HOUR_MS <= line.clock.now_ms - T0 < HOUR_MS + 5_000
    assert set(line.states[:-1]) == {"started"}


def test_an_eviction_names_the_pod_by_its_uid(ledger: Ledger) -> None:
    """A pod of the same name that came meanwhile is looked at again and not ended for its predecessor."""
    server = FakeKubernetes(pods={"train-0": {}})
    before = server._evict
    swapped: list[str] = []

    def evict(body: dict[str, Any]) -> Any:
        if not swapped:
            swapped.append(server.pods["train-0"]["metadata"]["uid"])
            server.pods["train-0"]["metadata"]["uid"] = "another"
        return before(body)

    server._evict = evict  # type: ignore[method-assign]
    line = bench(server, ledger)
    assert line.worker.take(DRAIN) == "succeeded"
    assert line.results[-1].reason == "empty, 1 pods evicted"


def test_a_server_that_restarts_and_one_that_was_changed_meanwhile_are_asked_again(ledger: Ledger) -> None:
    server = FakeKubernetes(pods=PODS)
    line = bench(server, ledger)
    server.away, server.conflicts = 7, 2
    assert line.worker.take(DRAIN) == "succeeded"
    assert taints(server) == [TAINT]


@pytest.mark.parametrize("after", range(6))
def test_killed_after_any_change_it_goes_on_to_the_same_end(after: int, ledger: Ledger) -> None:
    whole, broken = FakeKubernetes(pods=PODS), FakeKubernetes(pods=PODS)
    assert bench(whole, ledger).actuator.do(DRAIN, lambda: None) == "empty, 2 pods evicted"
    broken.dies_after = after
    line = bench(broken, ledger)
    with suppress(KeyboardInterrupt):
        line.worker.take(DRAIN)
    broken.dies_after = None
    for command in line.worker.unfinished():
        line.worker.take(command)
    assert line.states[-1] == "succeeded"
    for server in (whole, broken):
        server.node["metadata"].pop("resourceVersion")
        for condition in server.node["status"]["conditions"]:
            condition.pop("lastHeartbeatTime")
            condition.pop("lastTransitionTime")
    assert (broken.node, sorted(broken.pods), list(broken.events)) == (
        whole.node,
        sorted(whole.pods),
        list(whole.events),
    )


@pytest.mark.parametrize("effect", ["None", "NoSchedule", "NoExecute"])
def test_a_device_is_tainted_by_driver_pool_and_device_and_freed_with_its_node(effect: Effect, ledger: Ledger) -> None:
    server = FakeKubernetes()
    line = bench(server, ledger, effect=effect)
    assert line.worker.take(EXCLUDE) == "succeeded"
    (rule,) = server.rules.values()
    assert rule["spec"]["deviceSelector"] == {"driver": "gpu.nvidia.com", "pool": "node-1", "device": "gpu-3"}
    assert rule["spec"]["taint"]["effect"] == effect
    assert line.worker.take(replace(EXCLUDE, command_id="twice")) == "succeeded"
    assert len(server.rules) == 1
    assert line.worker.take(BACK) == "succeeded"
    assert server.rules == {}


def test_evacuating_a_device_is_over_when_its_evictions_have_rested_for_ten_seconds(ledger: Ledger) -> None:
    server = FakeKubernetes()
    server.stubborn = 20
    line = bench(server, ledger, effect="NoExecute")
    assert line.worker.take(EXCLUDE) == "succeeded"
    assert 19 * 2 + 10 <= (line.clock.now_ms - T0) / 1000 <= 20 * 2 + 12


@pytest.mark.parametrize("device", [None, DeviceRef(index=3), DeviceRef(dra=DraDevice("gpu.nvidia.com", "", "gpu-3"))])
def test_a_device_that_is_not_fully_named_taints_nothing(device: DeviceRef | None, ledger: Ledger) -> None:
    """An empty selector would mean every device there is."""
    server = FakeKubernetes()
    line = bench(server, ledger)
    assert line.worker.take(replace(EXCLUDE, device=device)) == "refused"
    assert ((line.results[-1].reason or "")[:11], server.changes) == ("unsupported", [])


def test_a_server_without_taint_rules_is_noticed_at_the_start(ledger: Ledger) -> None:
    server = FakeKubernetes(rules=False)
    line = bench(server, ledger)
    line.sole = True
    assert line.worker.take(EXCLUDE) == "refused"
    assert [line.worker.take(command) for command in (BLOCK, BACK)] == ["succeeded", "succeeded"]


def test_what_was_meant_for_another_boot_changes_nothing(ledger: Ledger) -> None:
    server = FakeKubernetes()
    server.node["status"]["nodeInfo"]["bootID"] = "boot-2"
    assert bench(server, ledger).worker.take(BLOCK) == "refused"
    assert server.changes == []


@pytest.mark.parametrize("node", ["", "a/b", "node-1/status", "../pods", "a b", "ALL"])
def test_a_name_never_reaches_another_object(node: str, ledger: Ledger) -> None:
    server = FakeKubernetes()
    command: RemediationCommand = replace(BLOCK, node=node, boot_id=None)
    assert bench(server, ledger).worker.take(command) == "refused"
    assert server.changes == []


def test_the_role_allows_what_the_actuator_asks_for_and_nothing_else() -> None:
    path = Path(__file__).parents[2] / "deploy" / "kubernetes" / "act.yaml"
    (role,) = [d for d in yaml.safe_load_all(path.read_text("utf-8")) if d["kind"] == "ClusterRole"]
    allowed = {(r, verb) for rule in role["rules"] for r in rule["resources"] for verb in rule["verbs"]}
    assert allowed == {
        ("nodes", "get"),
        ("nodes", "patch"),
        ("nodes/status", "patch"),
        ("pods", "list"),
        ("pods/eviction", "create"),
        ("events", "create"),
        *(("devicetaintrules", verb) for verb in ("get", "list", "create", "patch", "delete")),
    }
