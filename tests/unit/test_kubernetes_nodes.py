"""Nodes and devices by what Kubernetes says of them: faults at their own time, once, and reports where no agent is."""

from __future__ import annotations

from typing import Any

import pytest

from faultlens.catalogue import load_catalogue
from faultlens.kubernetes_marks import OUT_TAINT
from producers.kubernetes.words import load_words
from tests.unit.kubernetes_world import DRIVER, Lab, at, ended, job, meta, node, owned, pod, running, status


def faults(lab: Lab) -> list[tuple[str, str, float]]:
    return [(fault["kind"], fault["code"], fault["at"]) for fault in lab.of("node.fault")]


@pytest.mark.parametrize(("boot", "code"), [("b1", "daemon_lost"), ("b2", "unexpected_reboot")])
def test_a_node_that_is_not_heard_of_and_comes_back_restarted_or_not(boot: str, code: str) -> None:
    lab = Lab()
    lab.sees("Node", node())
    for _ in range(2):
        lab.sees("Node", node(ready="Unknown", since=40), 45)
    lab.restarts()
    lab.sees("Node", node(since=100, boot=boot), 101)
    assert faults(lab) == [("other", "not_responding", 40), ("other", code, 40)]


def test_conditions_are_read_with_their_own_polarity_and_told_once_as_the_fault_they_name() -> None:
    lab = Lab()
    lab.sees("Node", node())
    bad = [
        {
            "type": "ReadonlyFilesystem",
            "status": "True",
            "reason": "FilesystemIsReadOnly",
            "lastTransitionTime": at(20),
        },
        {
            "type": "AcceleratedHardwareReady",
            "status": "False",
            "reason": "NvidiaXID79Error",
            "lastTransitionTime": at(30),
        },
        {"type": "StorageReady", "status": "True", "reason": "StorageIsReady", "lastTransitionTime": at(1)},
        {"type": "GPUMissing", "status": "Unknown", "reason": "NoNews", "lastTransitionTime": at(31)},
        {"type": "MemoryPressure", "status": "Unknown", "reason": "NodeStatusUnknown", "lastTransitionTime": at(31)},
    ]
    for second in (31, 40):
        lab.sees("Node", node(conditions=bad), second)
    assert faults(lab) == [("storage", "read_only_fs", 20), ("xid", "79", 30)]
    lab.waits(60)
    [report] = lab.of("node.health")
    states = {check["name"]: check["status"] for check in report["checks"]}
    assert states == {
        "kubelet": "pass",
        "local_disk": "fail",
        "accelerated_hardware": "fail",
        "storage_ready": "pass",
        "gpu_count": "error",
    }


def test_what_a_device_plugin_counts_does_not_vouch_for_a_gpu_that_a_condition_says_is_gone() -> None:
    lab = Lab()
    lost = {"type": "AcceleratedHardwareReady", "status": "False", "reason": "NvidiaXID79Error"}
    lab.sees("Node", node(conditions=[lost | {"lastTransitionTime": at(30)}]), 31)
    lab.waits(60)
    lab.sees("Node", node(conditions=[{**lost, "status": "True", "reason": "Fine", "lastTransitionTime": at(70)}]), 71)
    lab.waits(120)
    counts = [next(c["status"] for c in told["checks"] if c["name"] == "gpu_count") for told in lab.of("node.health")]
    assert counts == ["off", "pass"]


def test_what_changes_on_a_node_is_reported_at_once_and_not_more_often_than_every_five_seconds() -> None:
    """Else a person who puts it back before its next report is overruled by what failed before."""
    lab = Lab()
    lab.sees("Node", node())
    lab.waits(60)
    bad = {"type": "AcceleratedHardwareReady", "status": "False", "reason": "NvidiaXID79Error"}
    lab.sees("Node", node(conditions=[bad | {"lastTransitionTime": at(69)}]), 70)
    lab.restarts()
    lab.waits(71)
    for second in (72, 73, 74):
        lab.sees("Node", node(cordoned=second % 2 == 0, conditions=[bad | {"lastTransitionTime": at(69)}]), second)
        lab.waits(second + 0.5)
    for second in (76, 77, 130, 136):
        lab.waits(second)
    assert [round(report["at"]) for report in lab.of("node.health")] == [60, 71, 76, 136]


def test_what_is_seen_again_as_it_was_and_a_node_with_an_agent_are_not_reported_at_once() -> None:
    lab = Lab()
    lab.sees("Pod", pod("agent-x", node="gpu-2", gpus=0, marks={"app.kubernetes.io/name": "faultlens-agent"}))
    for name in ("gpu-1", "gpu-2"):
        lab.sees("Node", node(name))
    lab.waits(60)
    lab.sees("Node", node("gpu-1", since=62), 65)
    lab.sees("Node", node("gpu-2", cordoned=True), 65)
    lab.waits(70)
    assert [(report["node"], report["at"]) for report in lab.of("node.health")] == [("gpu-1", 60)]


def test_a_node_with_an_agent_or_without_a_kubelet_is_not_reported_by_the_bridge() -> None:
    lab = Lab()
    for name, ready in (("gpu-1", "True"), ("gpu-2", "True"), ("gpu-3", "Unknown")):
        lab.sees("Node", node(name, ready=ready))
    lab.sees("Pod", pod("agent-x", node="gpu-1", gpus=0, marks={"app.kubernetes.io/name": "faultlens-agent"}))
    lab.waits(60)
    lab.waits(61)
    assert [report["node"] for report in lab.of("node.health")] == ["gpu-2"]


def test_a_cordon_of_ours_is_told_with_the_command_that_it_was_for() -> None:
    lab = Lab()
    lab.sees("Node", node())
    cordoned = node(cordoned=True)
    cordoned["metadata"] |= {
        "annotations": {"faultlens.io/command": "c-1"},
        "managedFields": [{"manager": "faultlens", "time": at(20), "fieldsV1": {"f:spec": {"f:unschedulable": {}}}}],
    }
    lab.sees("Node", cordoned, 25)
    assert [act["command_id"] for act in lab.of("node.action")] == ["c-1"]


def test_a_cordon_that_we_take_back_is_told_with_its_command_and_one_that_a_person_takes_back_is_not() -> None:
    """Nobody holds the field that is gone, so the server does not say who took it away."""
    fields: dict[str, Any] = {"f:spec": {"f:unschedulable": {}}}
    held: dict[str, Any] = {"f:metadata": {"f:annotations": {"f:faultlens.io/command": {}}}}

    def marked(command: str, when: int, *, cordoned: bool) -> dict[str, Any]:
        seen: dict[str, Any] = node(cordoned=cordoned)
        by = {"manager": "faultlens", "time": at(when), "fieldsV1": held | (fields if cordoned else {})}
        seen["metadata"] |= {"annotations": {"faultlens.io/command": command}, "managedFields": [by]}
        return seen

    lab = Lab()
    lab.sees("Node", node())
    lab.sees("Node", marked("c-1", 20, cordoned=True), 25)
    lab.sees("Node", marked("c-2", 30, cordoned=False), 35)
    lab.sees("Node", marked("c-3", 40, cordoned=True), 45)
    lab.sees("Node", marked("c-3", 40, cordoned=False), 50)
    told = [(act["action"], act["actor"], act.get("command_id"), act["at"]) for act in lab.of("node.action")]
    assert told == [
        ("cordon", "faultlens", "c-1", 20),
        ("uncordon", "faultlens", "c-2", 30),
        ("cordon", "faultlens", "c-3", 40),
        ("uncordon", "kubernetes", None, 50),
    ]


def test_a_cordon_is_told_with_who_did_it_and_when_and_a_deleted_node_is_removed() -> None:
    lab = Lab()
    lab.sees("Node", node())
    cordoned = node(cordoned=True)
    fields: dict[str, Any] = {"f:spec": {"f:unschedulable": {}}}
    cordoned["metadata"]["managedFields"] = [
        {"manager": "kubelet", "time": at(1), "fieldsV1": {"f:status": {}}},
        {"manager": "kubectl-cordon", "time": at(20), "fieldsV1": fields},
    ]
    lab.sees("Node", cordoned, 25)
    lab.sees("Node", node(), 30)
    lab.loses("Node", node(), 40)
    told = [(act["action"], act["actor"], act["at"]) for act in lab.of("node.action")]
    assert told == [("cordon", "kubectl-cordon", 20), ("uncordon", "kubernetes", 30), ("remove", "kubernetes", 40)]


# What the API server of Kubernetes 1.36 noted of each way to change a node: what a client writes alone goes with it.
CONTROLLER = {
    "manager": "kube-controller-manager",
    "time": at(1),
    "fieldsV1": {"f:metadata": {"f:annotations": {"f:node.alpha.kubernetes.io/ttl": {}}}},
}
APPLIED = {"manager": "kubectl-client-side-apply", "time": at(1), "fieldsV1": {"f:spec": {"f:providerID": {}}}}
STATUS = {"manager": "kubectl-edit", "subresource": "status", "time": at(35), "fieldsV1": {"f:status": {}}}


def cordons(manager: str, second: int) -> dict[str, Any]:
    return {"manager": manager, "time": at(second), "fieldsV1": {"f:spec": {"f:unschedulable": {}}}}


def labels(manager: str, second: int, label: str) -> dict[str, Any]:
    return {"manager": manager, "time": at(second), "fieldsV1": {"f:metadata": {"f:labels": {f"f:{label}": {}}}}}


def written(*fields: dict[str, Any], cordoned: bool = False, **spec: Any) -> Any:
    seen = node(cordoned=cordoned)
    seen["metadata"]["managedFields"] = [APPLIED, CONTROLLER, *fields]
    seen["spec"] |= spec
    return seen


def acts(lab: Lab) -> list[tuple[str, str, float]]:
    return [(act["action"], act["actor"], act["at"]) for act in lab.of("node.action")]


def test_who_takes_a_cordon_back_is_known_by_what_they_write_with_it_and_a_person_writes_nothing() -> None:
    lab = Lab()
    lab.sees("Node", written())
    lab.sees("Node", written(cordons("kubectl", 20), cordoned=True), 21)
    lab.sees("Node", written(STATUS), 40)
    lab.sees("Node", written(cordons("fault-quarantine", 50), cordoned=True), 51)
    lab.sees("Node", written(labels("fault-quarantine", 60, "k8saas.nvidia.com/uncordon-by")), 61)
    lab.sees("Node", written(cordons("my-operator", 70), cordoned=True), 71)
    lab.sees("Node", written(labels("my-operator", 80, "x"), labels("kubectl-label", 80, "y")), 81)
    assert acts(lab) == [
        ("cordon", "kubectl", 20),
        ("uncordon", "kubernetes", 40),
        ("cordon", "nvsentinel", 50),
        ("uncordon", "nvsentinel", 60),
        ("cordon", "my-operator", 70),
        ("uncordon", "kubernetes", 81),
    ]


@pytest.mark.parametrize(
    ("keeper", "taint"),
    [
        ("karpenter", {"key": "karpenter.sh/disrupted", "effect": "NoSchedule", "timeAdded": at(20)}),
        ("cluster-autoscaler", {"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule", "timeAdded": at(20)}),
    ],
)
def test_a_node_that_a_controller_taints_is_kept_by_it_until_the_taint_is_gone(
    keeper: str, taint: dict[str, str]
) -> None:
    lab = Lab()
    lab.sees("Node", written())
    lab.sees(
        "Node", written(taints=[{"key": "gpu", "effect": "NoSchedule"}, taint | {"effect": "PreferNoSchedule"}]), 10
    )
    lab.sees("Node", written(taints=[{"key": "gpu", "effect": "NoSchedule"}, taint]), 21)
    lab.waits(90)
    lab.sees("Node", written(), 100)
    assert acts(lab) == [("cordon", keeper, 20), ("uncordon", keeper, 100)]
    assert lab.of("node.action")[0]["planned"] is True, "nobody was promised a node that is not needed any more"
    assert [report["gpus_allocatable"] for report in lab.of("node.health")][:1] == [0]


def test_a_node_that_hyperpod_calls_unschedulable_is_kept_by_it() -> None:
    lab, pending = Lab(), written()
    pending["metadata"]["labels"]["sagemaker.amazonaws.com/node-health-status"] = "UnschedulablePendingReboot"
    lab.sees("Node", written())
    lab.sees("Node", pending, 20)
    pending["metadata"]["labels"]["sagemaker.amazonaws.com/node-health-status"] = "Schedulable"
    lab.sees("Node", pending, 50)
    assert acts(lab) == [("cordon", "hyperpod", 20), ("uncordon", "hyperpod", 50)]
    assert lab.of("node.action")[0]["planned"] is False


def test_a_person_who_takes_our_cordon_back_and_wipes_our_marks_is_not_us() -> None:
    ours = written(cordons("faultlens", 20), cordoned=True)
    ours["metadata"]["annotations"] = {"faultlens.io/command": "c-1"}
    lab = Lab()
    lab.sees("Node", written())
    lab.sees("Node", ours, 21)
    lab.sees("Node", written(), 40)
    told = [(act["action"], act["actor"], act.get("command_id")) for act in lab.of("node.action")]
    assert told == [("cordon", "faultlens", "c-1"), ("uncordon", "kubernetes", None)]


# --- devices under dynamic resource allocation -----------------------------------------------------------


def offer(*names: str, generation: int = 1, taints: dict[str, list[dict[str, Any]]] | None = None) -> Any:
    devices = [
        {
            "name": name,
            "attributes": {
                "uuid": {"string": f"GPU-{name}"},
                "resource.kubernetes.io/pciBusID": {"string": "0000:01:00.0"},
            },
            "taints": (taints or {}).get(name, []),
        }
        for name in names
    ]
    spec = {
        "driver": DRIVER,
        "nodeName": "gpu-1",
        "pool": {"name": "gpu-1", "generation": generation},
        "devices": devices,
    }
    return {"metadata": meta("slice-1"), "spec": spec}


def claim(device: str = "gpu-0") -> Any:
    results = [{"request": "gpu", "driver": DRIVER, "pool": "gpu-1", "device": device}]
    return {"metadata": meta("claim-1"), "status": {"allocation": {"devices": {"results": results}}}}


CLAIMS: dict[str, Any] = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}]}
GRANTED: dict[str, Any] = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "claim-1"}]}


def claiming(**more: Any) -> Any:
    return pod(gpus=0, spec=CLAIMS, **GRANTED, **more)


def test_a_pod_is_allocated_once_it_is_known_which_devices_its_claims_were_given() -> None:
    lab = Lab()
    lab.sees("Pod", claiming())
    assert lab.of("job.allocated") == []
    lab.sees("ResourceClaim", claim(), 6)
    lab.sees("ResourceClaim", claim(), 7)
    [held] = lab.of("job.allocated")
    assert held["allocation"] == [{"node": "gpu-1", "device_refs": [f"{DRIVER}/gpu-1/gpu-0"], "ranks": [0]}]


def test_a_taint_of_a_driver_is_the_fault_behind_it_and_one_without_effect_is_none() -> None:
    lab = Lab()
    lab.sees("ResourceSlice", offer("gpu-0", "gpu-1"))
    xid = {"key": "gpu.nvidia.com/xid", "value": "48", "effect": "NoSchedule", "timeAdded": at(30)}
    harmless = {"key": "gpu.nvidia.com/xid", "value": "13", "effect": "None", "timeAdded": at(30)}
    for second in (31, 40):
        lab.sees("ResourceSlice", offer("gpu-0", "gpu-1", taints={"gpu-0": [harmless], "gpu-1": [xid]}), second)
    assert faults(lab) == [("xid", "48", 30)]
    [fault] = lab.of("node.fault")
    assert fault["device"]["uuid"] == "GPU-gpu-1"
    assert fault["device"]["dra"] == {"driver": DRIVER, "pool": "gpu-1", "device": "gpu-1"}


def test_a_device_that_its_driver_no_longer_offers_is_gone_and_a_driver_that_goes_takes_none_with_it() -> None:
    lab = Lab()
    lab.sees("ResourceSlice", offer("gpu-0", "gpu-1"))
    lab.sees("ResourceSlice", offer("gpu-1", generation=2), 50)
    assert faults(lab) == [("other", "device_removed", 50)]
    lab.loses("ResourceSlice", offer("gpu-1", generation=2), 60)
    assert len(lab.of("node.fault")) == 1


def test_ill_health_of_a_device_is_told_once_however_often_its_pod_is_seen() -> None:
    lab = Lab()
    lab.sees("ResourceSlice", offer("gpu-0"))
    lab.sees("ResourceClaim", claim())
    sick = [{"name": "claim:gpu/gpu", "resources": [{"resourceID": f"{DRIVER}/gpu-1/gpu-0", "health": "Unhealthy"}]}]
    for restart in range(3):
        more = status(running(20 + restart), restart, ended(1, 20 + restart), allocatedResourcesStatus=sick)
        lab.sees("Pod", claiming(phase="Running", **more), 20 + restart)
        lab.restarts()
    assert [code for _, code, _ in faults(lab)] == ["device_unhealthy"]


def test_a_rule_that_taints_one_device_speaks_of_it_and_one_that_taints_all_of_none() -> None:
    lab = Lab()
    lab.sees("ResourceSlice", offer("gpu-0", "gpu-1"))
    taint = {"key": "example.com/repair", "effect": "NoExecute", "timeAdded": at(9)}
    for name, selector in (("one", {"driver": DRIVER, "device": "gpu-1"}), ("all", {"driver": DRIVER})):
        rule = {"metadata": meta(name), "spec": {"deviceSelector": selector, "taint": taint}}
        lab.sees("DeviceTaintRule", rule, 10)
    assert [(f["code"], f["device"]["dra"]["device"]) for f in lab.of("node.fault")] == [("device_tainted", "gpu-1")]


def test_a_rule_of_ours_says_nothing_new_of_its_device() -> None:
    """Else what takes a device out would take its node out as well."""
    lab = Lab()
    lab.sees("ResourceSlice", offer("gpu-0"))
    taint = {"key": OUT_TAINT, "value": "exclude_device", "effect": "NoExecute", "timeAdded": at(9)}
    selector = {"driver": DRIVER, "pool": "gpu-1", "device": "gpu-0"}
    lab.sees("DeviceTaintRule", {"metadata": meta("ours"), "spec": {"deviceSelector": selector, "taint": taint}}, 10)
    assert lab.of("node.fault") == []


def test_every_fault_that_the_bridge_can_name_is_in_the_catalogue() -> None:
    words, catalogue = load_words(), load_catalogue()
    named = {(c.fault.kind, c.fault.code) for c in words.conditions.values() if c.fault is not None}
    named |= {(r.kind, r.code) for r in words.node_reasons if r.code is not None}
    named |= {(t.kind, t.code) for t in words.device_taints if not (t.value or t.ignored)}
    named |= {("other", code) for code in ("not_responding", "kubelet_not_ready", "unexpected_reboot", "daemon_lost")}
    named |= {("other", "device_unhealthy"), ("other", "device_removed")}
    assert [name for name in sorted(named) if not catalogue.resolve(*name).known] == []


def test_a_job_of_a_controller_that_is_not_watched_is_known_by_its_reference() -> None:
    lab = Lab()
    one = pod(phase="Running", **status(running()))
    one["metadata"]["ownerReferences"] = owned("RayCluster", "ray")
    lab.sees("Job", job("other"))
    lab.sees("Pod", one, 10)
    assert [(s["job_id"], s["workload"]) for s in lab.of("job.submitted")][1:] == [("ml/ray", "interactive")]
