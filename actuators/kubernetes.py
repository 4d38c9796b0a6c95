"""Kubernetes: cordons and taints nodes, evicts within disruption budgets, taints devices, and takes its own back."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, ClassVar, Final, Literal

from actuators.kubernetes_api import STRATEGIC, Api, Patient, UnreachableError
from actuators.programs import one_node
from actuators.sdk import Actuator, Beat, Failed, Refused
from faultlens.clock import moment_of
from faultlens.errors import WorldError
from faultlens.events import Action, DraDevice, RemediationCommand
from faultlens.kubernetes_marks import COMMAND

# Only what carries this taint is taken back by us.
TAINT: Final = "faultlens.io/out"
NODE_LABEL: Final = "faultlens.io/node"
CONDITION: Final = "FaultlensInService"
RULES: Final = "/apis/resource.k8s.io/v1beta2/devicetaintrules"
Effect = Literal["None", "NoSchedule", "NoExecute"]
_LOOK_EVERY_S: Final = 2.0
# A rule's evictions are over when it has said so for this long (Kubernetes: the condition lags behind new pods).
_QUIET_S: Final = 10.0
_MIRROR: Final = "kubernetes.io/config.mirror"
_OVER: Final = frozenset({"Succeeded", "Failed"})
_TOO_MANY: Final = 429
_NAMED: Final = 3


class Kubernetes(Actuator):
    """Acts through the API server. `effect`: of the taint on a device that is to be excluded.

    Device taint rules are off by default in Kubernetes 1.36: where the server has none, devices are not excluded, and
    remediation's next rung is taken.
    """

    name: ClassVar[str] = "kubernetes"

    def __init__(
        self,
        api: Api,
        *,
        now_ms: Callable[[], int],
        sleep: Callable[[float], None],
        effect: Effect = "NoSchedule",
        look_every_s: float = _LOOK_EVERY_S,
    ) -> None:
        self._api = api
        self._now_ms = now_ms
        self._sleep = sleep
        self._effect = effect
        self._look_every_s = look_every_s
        self.actions: frozenset[Action] = frozenset({"block_new_work", "drain", "return_to_service"})
        if self._has_rules():
            self.actions |= {"exclude_device"}

    def do(self, command: RemediationCommand, beat: Beat) -> str:
        """Carry the command out; each step looks first whether it is done already."""
        node = one_node(command.node)
        server = Patient(self._api, lambda: self._pause(beat))
        steps: dict[str, Callable[[], str]] = {
            "block_new_work": lambda: self._blocked(server, node, command),
            "drain": lambda: self._drained(server, node, command),
            "exclude_device": lambda: self._excluded(server, node, command),
            "return_to_service": lambda: self._returned(server, node, command),
        }
        return steps[command.action]()

    def boot_id(self, node: str) -> str | None:
        """Return the boot id that the node's kubelet told last; None: it is not known now."""
        try:
            found = self._api("GET", f"/api/v1/nodes/{one_node(node)}")
        except UnreachableError:
            return None
        told = found.body.get("status", {}).get("nodeInfo", {}).get("bootID")
        return str(told) if told else None

    def _has_rules(self) -> bool:
        try:
            return self._api("GET", f"{RULES}?limit=1").is_good
        except UnreachableError as error:
            raise WorldError(f"Kubernetes does not answer: {error}") from None

    def _pause(self, beat: Beat) -> None:
        self._sleep(self._look_every_s)
        beat()

    # --- nodes -----------------------------------------------------------------------------------------

    def _blocked(self, server: Patient, node: str, command: RemediationCommand) -> str:
        def cordoned(found: dict[str, Any]) -> dict[str, Any] | None:
            spec = found.get("spec", {})
            if spec.get("unschedulable"):
                return None
            taints = [*_others(spec), {"key": TAINT, "value": command.action, "effect": "NoSchedule"}]
            return {"metadata": {"annotations": {COMMAND: command.command_id}}, "spec": _spec(taints, out=True)}

        before = server.change(f"/api/v1/nodes/{node}", cordoned)
        if before is None:
            raise Refused(f"there is no node {node}")
        if before.get("spec", {}).get("unschedulable") and not _is_ours(before):
            return "already out: cordoned by somebody else"
        self._tell(server, node, command, out=True)
        return "cordoned: no new pods"

    def _drained(self, server: Patient, node: str, command: RemediationCommand) -> str:
        self._blocked(server, node, command)
        asked: set[str] = set()
        while left := _movable(server, node):
            kept = [_named(pod) for pod in left if not self._evicted(server, pod, asked)]
            try:
                server.pause()
            except Failed as over:
                held = f": disruption budgets keep {', '.join(sorted(kept)[:_NAMED])}" if kept else ""
                raise Failed(f"{over}; {len(left)} pods are left{held}") from None
        return f"empty, {len(asked)} pods evicted" if asked else "empty"

    def _evicted(self, server: Patient, pod: dict[str, Any], asked: set[str]) -> bool:
        """Return whether the pod is on its way: its budget allows it, or it is gone already."""
        metadata = pod["metadata"]
        if metadata.get("deletionTimestamp"):
            return True
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/eviction"
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]},
            # Another pod may have taken the name meanwhile.
            "deleteOptions": {"preconditions": {"uid": metadata["uid"]}},
        }
        answer = server.ask("POST", path, eviction)
        if answer.status == _TOO_MANY:
            return False
        if answer.is_good:
            asked.add(metadata["uid"])
        elif answer.status not in (404, 409):
            raise Failed(f"{_named(pod)} cannot be evicted: {answer.said}")
        return True

    def _returned(self, server: Patient, node: str, command: RemediationCommand) -> str:
        def uncordoned(found: dict[str, Any]) -> dict[str, Any] | None:
            if not _is_ours(found):
                return None
            spec = _spec(_others(found.get("spec", {})), out=False)
            return {"metadata": {"annotations": {COMMAND: command.command_id}}, "spec": spec}

        before = server.change(f"/api/v1/nodes/{node}", uncordoned)
        if before is None:
            raise Refused(f"there is no node {node}")
        freed = self._freed(server, node)
        if before.get("spec", {}).get("unschedulable") and not _is_ours(before):
            raise Refused("kept out by somebody else: cordoned, and not by us")
        if not _is_ours(before) and not freed:
            return "in service already"
        self._tell(server, node, command, out=False)
        return "uncordoned" + (f", {freed} devices free again" if freed else "")

    # --- devices ---------------------------------------------------------------------------------------

    def _excluded(self, server: Patient, node: str, command: RemediationCommand) -> str:
        device = None if command.device is None else command.device.dra
        if device is None or not (device.driver and device.pool and device.device):
            raise Refused("unsupported: the device is not named by driver, pool and device")
        name = rule_name(device)
        made = server.ask("POST", RULES, _rule(name, node, device, self._effect, command))
        if made.status == 409:
            taint = {"key": TAINT, "value": command.action, "effect": self._effect}
            server.change(f"{RULES}/{name}", lambda found: _retainted(found, taint))
        elif not made.is_good:
            raise Failed(f"the device cannot be tainted: {made.said}")
        if self._effect == "NoExecute":
            self._evacuated(server, name)
        return f"{device.driver}/{device.pool}/{device.device} is tainted: {self._effect}"

    def _evacuated(self, server: Patient, name: str) -> None:
        quiet_s = 0.0
        while quiet_s < _QUIET_S:
            server.pause()
            found = server.ask("GET", f"{RULES}/{name}")
            if found.status == 404:
                raise Failed("somebody took the device's taint away")
            conditions = found.body.get("status", {}).get("conditions", [])
            over = any(c.get("type") == "EvictionInProgress" and c.get("status") == "False" for c in conditions)
            quiet_s = quiet_s + self._look_every_s if over else 0.0

    def _freed(self, server: Patient, node: str) -> int:
        """Take our taints off the node's devices; return how many there were."""
        if "exclude_device" not in self.actions:
            return 0
        found = server.ask("GET", f"{RULES}?labelSelector={NODE_LABEL.replace('/', '%2F')}%3D{node}")
        names = [rule["metadata"]["name"] for rule in found.body.get("items", [])]
        for name in names:
            server.ask("DELETE", f"{RULES}/{name}")
        return len(names)

    # --- telling ---------------------------------------------------------------------------------------

    def _tell(self, server: Patient, node: str, command: RemediationCommand, *, out: bool) -> None:
        """Say on the node what was done and why; the same command says it once."""
        now = moment_of(self._now_ms()).strftime("%Y-%m-%dT%H:%M:%SZ")
        why = ", ".join(command.reason.fault_codes)[:200] or command.action
        reason, message = ("TakenOut", f"{why}: command {command.command_id}") if out else ("Returned", "verified")
        condition = {
            "type": CONDITION,
            "status": "False" if out else "True",
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }
        status = {"status": {"conditions": [condition]}}
        server.ask("PATCH", f"/api/v1/nodes/{node}/status", status, kind=STRATEGIC)
        event = {
            "metadata": {"name": f"faultlens-{command.command_id}", "namespace": "default"},
            "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": node},
            "reason": reason,
            "message": message,
            "type": "Warning" if out else "Normal",
            "source": {"component": "faultlens"},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        server.ask("POST", "/api/v1/namespaces/default/events", event)


def rule_name(device: DraDevice) -> str:
    """Return the name of our taint rule for a device: the same device has one rule."""
    key = f"{device.driver}\0{device.pool}\0{device.device}"
    return f"faultlens-{hashlib.sha256(key.encode()).hexdigest()[:20]}"


def _rule(name: str, node: str, device: DraDevice, effect: Effect, command: RemediationCommand) -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1beta2",
        "kind": "DeviceTaintRule",
        "metadata": {"name": name, "labels": {NODE_LABEL: node}, "annotations": {COMMAND: command.command_id}},
        "spec": {
            "deviceSelector": {"driver": device.driver, "pool": device.pool, "device": device.device},
            "taint": {"key": TAINT, "value": command.action, "effect": effect},
        },
    }


def _retainted(found: dict[str, Any], taint: dict[str, str]) -> dict[str, Any] | None:
    known = found.get("spec", {}).get("taint", {})
    return None if known.get("effect") == taint["effect"] else {"spec": {"taint": taint}}


def _is_ours(node: dict[str, Any]) -> bool:
    return any(taint.get("key") == TAINT for taint in node.get("spec", {}).get("taints") or ())


def _others(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the taints that are not ours; that of the cordon itself is the server's to set."""
    return [t for t in spec.get("taints") or () if t.get("key") not in (TAINT, "node.kubernetes.io/unschedulable")]


def _spec(taints: list[dict[str, Any]], *, out: bool) -> dict[str, Any]:
    return {"unschedulable": True if out else None, "taints": taints or None}


def _movable(server: Patient, node: str) -> list[dict[str, Any]]:
    """Return the pods on the node that have to go: not the node's own (daemons, mirrors), nor those that are over."""
    found = server.ask("GET", f"/api/v1/pods?fieldSelector=spec.nodeName%3D{node}")
    if not found.is_good:
        raise Failed(f"pods of {node} cannot be listed: {found.said}")
    return [pod for pod in found.body.get("items", []) if not _stays(pod)]


def _stays(pod: dict[str, Any]) -> bool:
    metadata = pod["metadata"]
    owners = metadata.get("ownerReferences") or ()
    return (
        _MIRROR in (metadata.get("annotations") or {})
        or any(owner.get("kind") == "DaemonSet" and owner.get("controller") for owner in owners)
        or pod.get("status", {}).get("phase") in _OVER
    )


def _named(pod: dict[str, Any]) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
