"""Ends that our own commands brought about are told with the command, and those of others are not."""

from __future__ import annotations

from typing import Any

import pytest

from faultlens.kubernetes_marks import OUT_TAINT
from tests.unit.kubernetes_world import DRIVER, Lab, at, job, meta, node, pod, running, status

EVICTED = "EvictionByEvictionAPI"
BY_TAINT = "DeletionByDeviceTaintManager"


def emptied(command: str | None, second: float, *, cordoned: bool = True) -> Any:
    """Return a node that a drain of ours empties since then; None: a person's cordon alone."""
    seen: dict[str, Any] = node(cordoned=cordoned)
    if command is not None:
        fields: dict[str, Any] = {"f:metadata": {"f:annotations": {"f:faultlens.io/drain": {}}}}
        seen["metadata"] |= {
            "annotations": {"faultlens.io/drain": command},
            "managedFields": [{"manager": "faultlens", "time": at(second), "fieldsV1": fields}],
        }
    return seen


def gone(reason: str, second: float, **more: Any) -> Any:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": reason, "lastTransitionTime": at(second)}
    return pod(phase="Running", conditions=[condition], deleted=second, **status(running()), **more)


def running_job() -> Lab:
    lab = Lab()
    lab.sees("Node", node())
    lab.sees("Job", job())
    lab.sees("Pod", pod(phase="Running", **status(running())), 11)
    return lab


def command_of(lab: Lab) -> str | None:
    [end] = lab.of("job.ended")
    return str(end["command_id"]) if "command_id" in end else None


@pytest.mark.parametrize("node_first", [True, False], ids=["node-first", "pod-first"])
def test_an_eviction_from_a_node_that_we_empty_is_told_with_the_command(*, node_first: bool) -> None:
    """Nodes and pods are watched apart: which of them is heard of first is chance."""
    lab = running_job()
    news = [("Node", emptied("drain-1", 20)), ("Pod", gone(EVICTED, 22))]
    for kind, thing in news if node_first else reversed(news):
        lab.sees(kind, thing, 23)
    lab.restarts()
    lab.waits(40)
    assert command_of(lab) == "drain-1"


@pytest.mark.parametrize(
    ("drained", "reason", "second"),
    [
        (None, EVICTED, 22),
        ("drain-1", "OOMKilled", 22),
        ("drain-1", "TerminationByKubelet", 22),
        ("drain-1", EVICTED, 15),
    ],
    ids=["a-person-drains", "by-itself", "by-the-kubelet", "before-the-drain"],
)
def test_what_ended_otherwise_is_none_of_our_commands(drained: str | None, reason: str, second: float) -> None:
    lab = running_job()
    lab.sees("Node", emptied(drained, 20), 21)
    lab.sees("Pod", gone(reason, second), 23)
    lab.waits(40)
    assert command_of(lab) is None


def test_a_bridge_that_was_down_tells_an_eviction_with_its_command_although_the_node_is_back() -> None:
    lab = running_job()
    lab.sees("Node", emptied("drain-1", 20), 60)
    lab.sees("Node", node(), 61)
    lab.sees("Pod", gone(EVICTED, 22), 61)
    lab.waits(80)
    assert command_of(lab) == "drain-1"


def test_an_eviction_after_the_node_came_back_is_none_of_the_commands_before() -> None:
    lab = running_job()
    lab.sees("Node", emptied("drain-1", 15), 16)
    lab.sees("Node", node(), 17)
    lab.sees("Pod", gone(EVICTED, 40), 41)
    lab.waits(60)
    assert command_of(lab) is None


def device_rule(key: str = OUT_TAINT, uid: str = "rule-1") -> Any:
    metadata = meta("rule", uid, annotations={"faultlens.io/command": "exclude-1"}) | {"creationTimestamp": at(20)}
    selector = {"driver": DRIVER, "pool": "gpu-1", "device": "gpu-0"}
    return {"metadata": metadata, "spec": {"deviceSelector": selector, "taint": {"key": key, "effect": "NoExecute"}}}


def claiming(**more: Any) -> Any:
    claims = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "claim-1"}]}
    return {"gpus": 0, "spec": claims, **more}


@pytest.mark.parametrize(
    ("key", "second", "command"),
    [(OUT_TAINT, 22, "exclude-1"), ("example.com/repair", 22, None), (OUT_TAINT, 90, None)],
    ids=["ours", "another's", "after-it-was-freed"],
)
def test_what_our_taint_takes_a_device_from_is_told_with_the_command(
    key: str, second: float, command: str | None
) -> None:
    lab = Lab()
    lab.sees("Job", job())
    results = [{"request": "gpu", "driver": DRIVER, "pool": "gpu-1", "device": "gpu-0"}]
    lab.sees(
        "ResourceClaim",
        {"metadata": meta("claim-1"), "status": {"allocation": {"devices": {"results": results}}}},
    )
    lab.sees("Pod", pod(phase="Running", **claiming(), **status(running())), 11)
    lab.sees("DeviceTaintRule", device_rule(key), 21)
    lab.lists("DeviceTaintRule", {"rule-1"}, 30)
    lab.lists("DeviceTaintRule", set(), 60)
    lab.sees("Pod", gone(BY_TAINT, second, **claiming()), 91)
    lab.waits(110)
    assert command_of(lab) == command


def test_what_was_taken_is_forgotten_a_day_after_it_was_given_back() -> None:
    lab = Lab()
    for day in range(3):
        name, second = f"gpu-{day}", day * 90_000
        seen = emptied("drain", second)
        seen["metadata"] |= {"name": name, "uid": name}
        lab.sees("Node", seen, second)
        lab.loses("Node", seen, second + 60)
    assert list(lab.translator.memory["taking"]) == ["node gpu-2"]
