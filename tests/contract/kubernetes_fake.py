"""A Kubernetes API server in memory: nodes, pods with disruption budgets, device taint rules, and trouble on demand."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

from actuators.kubernetes_api import Answer, UnreachableError
from actuators.kubernetes_devices import NODE_LABEL
from faultlens.kubernetes_marks import DEVICE_TAINT_RULES as RULES
from faultlens.kubernetes_marks import MANAGER

NODE = "/api/v1/nodes/node-1"


class FakeKubernetes:
    """Answers as the API server does for one node. `away`: so many questions get no answer; `conflicts`: are too late.

    `rules`: whether device taint rules are there, and `acts`: whether anybody acts on them. `says`: answers of a server
    in trouble, given first. `kept`: pods whose budget forbids an eviction for so many questions yet; `refusals`: what
    pods' evictions are answered with. `stubborn`: how often the server says that a device's evictions are in progress;
    `unseen`: how often it has not looked at the rule yet. `dies_after`: the asking process is killed after so many
    changes. `claims`: what stands for nodes, by path; `lingers`: looks until one that is deleted is gone.
    """

    def __init__(
        self, *, rules: bool = True, acts: bool = True, pods: Mapping[str, dict[str, Any]] | None = None
    ) -> None:
        self.node: dict[str, Any] = {
            "metadata": {"name": "node-1", "resourceVersion": "1", "annotations": {}, "managedFields": []},
            "spec": {},
            "status": {"nodeInfo": {"bootID": "boot-1"}, "conditions": []},
        }
        self.pods = {name: _pod(name, **more) for name, more in (pods or {}).items()}
        self.rules: dict[str, dict[str, Any]] = {}
        self.events: dict[str, dict[str, Any]] = {}
        self.has_rules, self.acts = rules, acts
        self.kept: dict[str, int] = {}
        self.claims: dict[str, dict[str, Any]] = {}
        self.lingers = 0
        self.away = self.conflicts = self.stubborn = self.unseen = 0
        self.says: list[Answer] = []
        self.refusals: dict[str, Answer] = {}
        self.dies_after: int | None = None
        self.changes: list[tuple[str, str]] = []

    def __call__(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, kind: str = "application/json"
    ) -> Answer:
        if self.away:
            self.away -= 1
            raise UnreachableError("connection refused")
        if self.says:
            return self.says.pop(0)
        parts = urlsplit(path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if parts.path in self.claims:
            answer = self._of_claim(method, parts.path, dict(body or {}))
        else:
            answer = self._answered(method, parts.path, dict(body or {}), query)
        if method != "GET" and answer.is_good:
            self._changed(method, parts.path)
        return answer

    def _changed(self, method: str, path: str) -> None:
        self.changes.append((method, path))
        if self.dies_after is not None:
            self.dies_after -= 1
            if self.dies_after < 0:
                raise KeyboardInterrupt

    def _answered(self, method: str, path: str, body: dict[str, Any], query: dict[str, str]) -> Answer:
        if path.startswith(RULES):
            return self._of_rules(method, path.removeprefix(RULES).strip("/"), body, query)
        if path.startswith(NODE):
            return self._of_node(method, body)
        if path.endswith("/events"):
            return _made(self.events, body)
        if path.endswith("/eviction"):
            return self._evict(body)
        if path == "/api/v1/pods":
            return Answer(200, {"items": copy.deepcopy(list(self.pods.values()))})
        return failure(404, f"{path} not found")

    def cordoned_by(self, manager: str | None) -> None:
        """Let somebody cordon the node, or with None take any cordon back, as `kubectl` does."""
        self.node["spec"].pop("unschedulable", None)
        self.node["metadata"]["managedFields"] = []
        if manager is not None:
            self.node["spec"]["unschedulable"] = True
            field = {"manager": manager, "fieldsV1": {"f:spec": {"f:unschedulable": {}}}}
            self.node["metadata"]["managedFields"] = [field]

    def _of_node(self, method: str, body: dict[str, Any]) -> Answer:
        if "status" in body:
            self.node["status"]["conditions"] = body["status"]["conditions"]
        elif method == "PATCH":
            metadata = body["metadata"]
            if self.conflicts or metadata["resourceVersion"] != self.node["metadata"]["resourceVersion"]:
                self.conflicts = max(0, self.conflicts - 1)
                return failure(409, "the object has been modified")
            annotations = self.node["metadata"]["annotations"] | metadata.get("annotations", {})
            self.node["metadata"]["annotations"] = {k: v for k, v in annotations.items() if v is not None}
            if "unschedulable" in body.get("spec", {}):
                self.node["spec"] = {k: v for k, v in (self.node["spec"] | body["spec"]).items() if v is not None}
                self.cordoned_by(MANAGER if self.node["spec"].get("unschedulable") else None)
            self.node["metadata"]["resourceVersion"] += "1"
        return Answer(200, copy.deepcopy(self.node))

    def _of_claim(self, method: str, path: str, body: dict[str, Any]) -> Answer:
        claim = self.claims[path]
        if method == "DELETE":
            if body["preconditions"]["uid"] != claim["metadata"]["uid"]:
                return failure(409, "the UID in the precondition does not match")
            claim["metadata"]["deletionTimestamp"] = "2026-11-23T04:00:00Z"
        shown = copy.deepcopy(claim)
        if "deletionTimestamp" in claim["metadata"]:
            self.lingers -= 1
            if self.lingers < 0:
                del self.claims[path]
        return Answer(200, shown)

    def _evict(self, body: dict[str, Any]) -> Answer:
        name, uid = body["metadata"]["name"], body["deleteOptions"]["preconditions"]["uid"]
        if name not in self.pods:
            return failure(404, f"{name} not found")
        if name in self.refusals:
            return self.refusals[name]
        if self.pods[name]["metadata"]["uid"] != uid:
            return failure(409, "the UID in the precondition does not match")
        if self.kept.get(name, 0):
            self.kept[name] -= 1
            return failure(429, "Cannot evict pod as it would violate the pod's disruption budget.", "DisruptionBudget")
        del self.pods[name]
        return Answer(201, {})

    def _of_rules(self, method: str, name: str, body: dict[str, Any], query: dict[str, str]) -> Answer:
        if not self.has_rules:
            return failure(404, "the server could not find the requested resource")
        if method == "POST":
            body["metadata"] |= {"resourceVersion": "1", "generation": 1}
            return _made(self.rules, body)
        if not name:
            node = query.get("labelSelector", "").partition("=")[2]
            chosen = [r for r in self.rules.values() if node in ("", r["metadata"]["labels"][NODE_LABEL])]
            return Answer(200, {"items": copy.deepcopy(chosen)})
        return self._of_rule(method, name, body) if name in self.rules else failure(404, name)

    def _of_rule(self, method: str, name: str, body: dict[str, Any]) -> Answer:
        if method == "DELETE":
            return Answer(200, self.rules.pop(name))
        if method == "PATCH":
            self.rules[name]["spec"] |= body["spec"]
            self.rules[name]["metadata"]["generation"] += 1
        if not self.acts:
            return Answer(200, copy.deepcopy(self.rules[name]))
        self.stubborn, self.unseen = max(0, self.stubborn - 1), max(0, self.unseen - 1)
        going_on = {
            "type": "EvictionInProgress",
            "status": "True" if self.stubborn else "False",
            "observedGeneration": self.rules[name]["metadata"]["generation"] - bool(self.unseen),
            "message": "1 pod would be evicted in 1 namespace. This information will not be updated again.",
        }
        return Answer(200, copy.deepcopy(self.rules[name]) | {"status": {"conditions": [going_on]}})


def failure(status: int, message: str, *causes: str) -> Answer:
    """Return what the server answers where it does not do what it was asked for."""
    details = {"causes": [{"reason": cause} for cause in causes]}
    return Answer(status, {"kind": "Status", "status": "Failure", "message": message, "details": details})


def _made(there: dict[str, dict[str, Any]], body: dict[str, Any]) -> Answer:
    name = body["metadata"]["name"]
    if name in there:
        return failure(409, "already exists")
    there[name] = body
    return Answer(201, body)


def _pod(name: str, *, phase: str = "Running", **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "ml", "uid": f"uid-{name}"} | metadata, "status": {"phase": phase}}
