"""What the Kubernetes actuator changes, what it leaves alone, and that it may be killed anywhere."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

pytest.importorskip("kubernetes_asyncio", reason="the Kubernetes client is not installed (extra `kubernetes`)")

from actuators.kubernetes import CONDITION, Kubernetes
from actuators.kubernetes_api import Answer
from actuators.kubernetes_devices import Effect
from actuators.ledger import Ledger
from faultlens.clock import HOUR_MS
from faultlens.errors import WorldError
from faultlens.events import DeviceRef, DraDevice, RemediationCommand
from faultlens.kubernetes_marks import OUT_TAINT
from tests.contract.acting import DRAIN, T0, Bench, Clock
from tests.contract.kubernetes_fake import FakeKubernetes, failure

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


def bench(server: FakeKubernetes, ledger: Ledger, *, effect: Effect = "NoSchedule") -> Bench:
    clock = Clock()
    acting = Kubernetes(server, now_ms=clock, sleep=clock.sleep, effect=effect)
    # What it asked at its start is over.
    server.changes.clear()
    clock.now_ms = T0
    return Bench(acting, ledger, clock)


def taints(server: FakeKubernetes) -> list[str]:
    return [taint["key"] for taint in server.node["spec"].get("taints", [])]


def test_a_node_is_cordoned_tainted_and_says_why(ledger: Ledger) -> None:
    server = FakeKubernetes()
    server.node["spec"]["taints"] = [{"key": "team", "effect": "NoSchedule"}]
    assert bench(server, ledger).worker.take(BLOCK) == "succeeded"
    assert server.node["spec"]["unschedulable"] is True
    assert taints(server) == ["team", OUT_TAINT]
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
    server.cordoned_by("kubectl-cordon")
    line = bench(server, ledger)
    assert [line.worker.take(command) for command in (BLOCK, BACK)] == ["succeeded", "refused"]
    assert server.changes == []


def test_a_cordon_of_ours_that_a_person_took_back_keeps_nothing_away_and_makes_the_next_ones_none_of_ours(
    ledger: Ledger,
) -> None:
    server = FakeKubernetes()
    line = bench(server, ledger)
    assert line.worker.take(BLOCK) == "succeeded"
    server.cordoned_by(None)
    assert [taint["effect"] for taint in server.node["spec"]["taints"]] == ["PreferNoSchedule"]
    server.cordoned_by("kubectl-cordon")
    assert line.worker.take(BACK) == "refused"
    assert server.node["spec"]["unschedulable"] is True
    server.cordoned_by(None)
    assert line.worker.take(replace(BACK, command_id="later")) == "succeeded"
    assert taints(server) == []


def test_a_node_that_a_person_put_back_is_not_taken_out_again_for_the_same_incident(ledger: Ledger) -> None:
    """What was issued before it was heard of the uncordon comes after it."""
    server = FakeKubernetes(pods=PODS)
    line = bench(server, ledger)
    assert line.worker.take(BLOCK) == "succeeded"
    server.cordoned_by(None)
    assert [line.worker.take(command) for command in (DRAIN, replace(BLOCK, command_id="twice"))] == ["refused"] * 2
    assert line.results[-1].reason == "somebody has put the node back since it was taken out"
    assert ("unschedulable" in server.node["spec"], len(server.pods)) == (False, len(PODS))
    next_one = replace(BLOCK, command_id="next", reason=replace(BLOCK.reason, incident_id="incident-2"))
    assert line.worker.take(next_one) == "succeeded"
    assert server.node["spec"]["unschedulable"] is True


def test_a_drain_ends_when_a_person_puts_the_node_back_meanwhile(ledger: Ledger) -> None:
    """Else it would evict what is scheduled there anew, until its deadline."""
    server = FakeKubernetes(pods=PODS)
    server.kept["train-1"] = 1_000_000
    line = bench(server, ledger)
    slept = line.clock.sleep

    def sleep(seconds: float) -> None:
        slept(seconds)
        if line.clock.now_ms - T0 >= 10_000:
            server.cordoned_by(None)

    line.actuator = Kubernetes(server, now_ms=line.clock, sleep=sleep)
    assert line.worker.take(DRAIN) == "failed"
    assert (
        line.results[-1].reason == "somebody has put the node back since it was taken out; 1 pods were evicted before"
    )
    assert "train-1" in server.pods


def test_a_node_says_whose_evictions_empty_it_until_it_is_back(ledger: Ledger) -> None:
    server = FakeKubernetes(pods=PODS)
    line = bench(server, ledger)
    assert [line.worker.take(command) for command in (BLOCK, DRAIN)] == ["succeeded"] * 2
    marks = {"faultlens.io/command": "block", "faultlens.io/incident": "incident-1"}
    assert server.node["metadata"]["annotations"] == marks | {"faultlens.io/drain": DRAIN.command_id}
    assert line.worker.take(BACK) == "succeeded"
    assert server.node["metadata"]["annotations"] == {"faultlens.io/command": "back"}


def test_pods_are_evicted_as_their_budgets_allow_and_the_nodes_own_stay(ledger: Ledger) -> None:
    server = FakeKubernetes(pods=PODS)
    server.kept["train-1"] = 5
    assert bench(server, ledger).worker.take(DRAIN) == "succeeded"
    assert sorted(server.pods) == ["done", "exporter", "kube-proxy"]


def test_what_never_goes_ends_the_drain_at_its_one_deadline_and_is_named_with_its_reason(ledger: Ledger) -> None:
    """A pod with two budgets, one whose namespace is being deleted, and one that does not end hold no other pod up."""
    server = FakeKubernetes(
        pods={**PODS, "two": {}, "dying": {}, "stuck": {"deletionTimestamp": "2026-11-23T04:00:00Z"}}
    )
    server.kept["train-1"] = 1_000_000
    server.refusals["two"] = failure(500, "This pod has more than one PodDisruptionBudget")
    server.refusals["dying"] = failure(403, "unable to create new content", "NamespaceTerminating")
    line = bench(server, ledger)
    assert line.worker.take(DRAIN) == "failed"
    assert (line.results[-1].reason or "").split(": ", 1) == [
        "not ended in time; 4 pods are left",
        (
            "ml/dying (unable to create new content), ml/stuck (it is ending), "
            "ml/train-1 (Cannot evict pod as it would violate the pod's disruption budget.)"
        ),
    ]
    assert "train-0" not in server.pods
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
    assert taints(server) == [OUT_TAINT]


@pytest.mark.parametrize(
    "said",
    [
        failure(429, "too many requests, please try again later"),
        failure(403, "cannot get resource"),
        failure(503, "starting"),
    ],
    ids=["throttled", "roles-not-read-yet", "starting"],
)
@pytest.mark.parametrize("command", [BLOCK, DRAIN, BACK, EXCLUDE], ids=lambda command: command.action)
def test_a_server_that_is_busy_or_has_just_started_is_asked_again(
    said: Answer, command: RemediationCommand, ledger: Ledger
) -> None:
    server = FakeKubernetes(pods=PODS)
    line = bench(server, ledger)
    assert line.worker.take(replace(BLOCK, command_id="before")) == "succeeded"
    server.says = [said] * 3
    assert line.worker.take(replace(command, boot_id=None)) == "succeeded"
    assert not server.says


def test_what_we_may_not_do_is_believed_after_half_a_minute_and_says_where_the_role_is(ledger: Ledger) -> None:
    server = FakeKubernetes()
    line = bench(server, ledger)
    server.says = [failure(403, "cannot patch resource")] * 100
    assert line.worker.take(replace(BLOCK, boot_id=None)) == "failed"
    assert line.clock.now_ms - T0 == 30_000
    assert "deploy/kubernetes/act.yaml" in (line.results[-1].reason or "")


def test_a_node_that_is_not_there_is_refused(ledger: Ledger) -> None:
    server = FakeKubernetes()
    line = bench(server, ledger)
    assert line.worker.take(replace(BLOCK, node="node-2")) == "refused"
    assert line.results[-1].reason == "there is no node node-2"


@pytest.mark.parametrize("after", range(4))
def test_killed_on_the_way_back_it_says_on_the_node_that_it_is_back(after: int, ledger: Ledger) -> None:
    server = FakeKubernetes()
    line = bench(server, ledger)
    line.worker.take(BLOCK)
    server.dies_after = after
    with suppress(KeyboardInterrupt):
        line.worker.take(BACK)
    server.dies_after = None
    for command in line.worker.unfinished():
        line.worker.take(command)
    (condition,) = server.node["status"]["conditions"]
    assert (line.states[-1], condition["status"], set(server.events)) == (
        "succeeded",
        "True",
        {"faultlens-block", "faultlens-back"},
    )


@pytest.mark.parametrize("after", range(7))
def test_killed_after_any_change_it_goes_on_to_the_same_end(after: int, ledger: Ledger) -> None:
    whole, broken = FakeKubernetes(pods=PODS), FakeKubernetes(pods=PODS)
    assert bench(whole, ledger).actuator.do(DRAIN, lambda: None) == "empty, 2 pods evicted"
    line = bench(broken, ledger)
    broken.dies_after = after
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


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
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


def test_a_device_taint_without_effect_is_refused_says_whom_it_would_evict_and_leaves_nothing(ledger: Ledger) -> None:
    server = FakeKubernetes()
    line = bench(server, ledger, effect="None")
    server.unseen = 2
    assert line.worker.take(EXCLUDE) == "refused"
    assert line.results[-1].reason == ("unsupported: devices are only shown. 1 pod would be evicted in 1 namespace.")
    assert server.rules == {}


def test_devices_of_a_node_whose_name_is_longer_than_a_label_are_freed_with_it(ledger: Ledger) -> None:
    server = FakeKubernetes()
    line = bench(server, ledger, effect="NoSchedule")
    long = f"node-1{'.very-long' * 8}"
    server.node["metadata"]["name"] = long
    assert line.worker.take(replace(EXCLUDE, node=long)) == "succeeded"
    (rule,) = server.rules.values()
    assert len(rule["metadata"]["labels"]["faultlens.io/node"]) <= 63
    assert line.worker.take(replace(BACK, node=long)) == "succeeded"
    assert server.rules == {}


def test_evacuating_a_device_is_over_when_its_evictions_have_rested_for_ten_seconds(ledger: Ledger) -> None:
    server = FakeKubernetes()
    line = bench(server, ledger, effect="NoExecute")
    server.stubborn = 20
    assert line.worker.take(EXCLUDE) == "succeeded"
    assert 19 * 2 + 10 <= (line.clock.now_ms - T0) / 1000 <= 20 * 2 + 12


@pytest.mark.parametrize("device", [None, DeviceRef(index=3), DeviceRef(dra=DraDevice("gpu.nvidia.com", "", "gpu-3"))])
def test_a_device_that_is_not_fully_named_taints_nothing(device: DeviceRef | None, ledger: Ledger) -> None:
    """An empty selector would mean every device there is."""
    server = FakeKubernetes()
    line = bench(server, ledger)
    assert line.worker.take(replace(EXCLUDE, device=device)) == "refused"
    assert ((line.results[-1].reason or "")[:11], server.changes) == ("unsupported", [])


@pytest.mark.parametrize(
    "server",
    [FakeKubernetes(rules=False), FakeKubernetes(acts=False)],
    ids=["no-rules", "rules-that-nobody-acts-on"],
)
def test_a_cluster_in_which_rules_taint_nothing_is_noticed_at_the_start(server: FakeKubernetes, ledger: Ledger) -> None:
    """With its feature off the server keeps rules all the same, and a device that they name is not tainted."""
    line = bench(server, ledger)
    assert server.rules == {}
    line.sole = True
    assert line.worker.take(EXCLUDE) == "refused"
    assert [line.worker.take(command) for command in (BLOCK, BACK)] == ["succeeded", "succeeded"]


@pytest.mark.parametrize("said", [failure(403, "not yet"), failure(429, "busy"), failure(500, "starting")])
def test_a_server_that_does_not_say_whether_it_has_taint_rules_is_not_taken_for_one_without(said: Answer) -> None:
    server = FakeKubernetes()
    server.says = [said] * 100
    with pytest.raises(WorldError, match="does not say whether it has device taint rules"):
        Kubernetes(server, now_ms=Clock(), sleep=lambda _: None)


# --- names and rights ------------------------------------------------------------------------------------


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


def test_the_roles_allow_what_the_actuator_asks_for_and_nothing_else() -> None:
    path = Path(__file__).parents[2] / "deploy" / "kubernetes" / "act.yaml"
    documents = list(yaml.safe_load_all(path.read_text("utf-8")))
    allowed = {
        kind: {
            (resource, verb)
            for document in documents
            if document["kind"] == kind
            for rule in document["rules"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
        }
        for kind in ("ClusterRole", "Role")
    }
    assert allowed == {
        "Role": {("events", "create")},
        "ClusterRole": {
            ("nodes", "get"),
            ("nodes", "patch"),
            ("nodes/status", "patch"),
            ("pods", "list"),
            ("pods/eviction", "create"),
            *(("devicetaintrules", verb) for verb in ("get", "list", "create", "patch", "delete")),
        },
    }
