"""Kubernetes: cordons nodes, evicts within disruption budgets, taints devices, and takes its own back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from actuators import kubernetes_devices as devices
from actuators.kubernetes_api import STRATEGIC, Api, Patient, boot_id_of
from actuators.kubernetes_devices import Effect
from actuators.kubernetes_jobs import JobsFile, Repair
from actuators.kubernetes_replacing import replaced
from actuators.programs import one_node
from actuators.sdk import PUT_BACK, Actuator, Beat, Failed, Memory, Refused
from faultlens.clock import moment_of
from faultlens.events import Action, RemediationCommand
from faultlens.kubernetes_marks import COMMAND, CORDON_FIELD, DRAIN, INCIDENT, MANAGER, OUT_TAINT

CONDITION: Final = "FaultlensInService"
_LOOK_EVERY_S: Final = 2.0
_MIRROR: Final = "kubernetes.io/config.mirror"
_OVER: Final = frozenset({"Succeeded", "Failed"})
_NAMED: Final = 3
_SAID_CHARS: Final = 120


@dataclass(frozen=True)
class Beyond:
    """What is done beside taking nodes out and back: replacing them, and repairs by jobs.

    `memory_of`: what is kept of a command by its id.
    """

    memory_of: Callable[[str], Memory]
    replaces: bool = False
    jobs: JobsFile | None = None

    @property
    def actions(self) -> frozenset[Action]:
        """The actions that these are."""
        replacing: frozenset[Action] = frozenset({"replace"}) if self.replaces else frozenset()
        return replacing | (frozenset() if self.jobs is None else self.jobs.actions)


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
        beyond: Beyond | None = None,
        look_every_s: float = _LOOK_EVERY_S,
    ) -> None:
        self._api = api
        self._now_ms = now_ms
        self._sleep = sleep
        self._effect = effect
        self._beyond = beyond
        self._look_every_s = look_every_s
        self.actions: frozenset[Action] = frozenset({"block_new_work", "drain", "return_to_service"})
        if devices.are_there(api, sleep):
            self.actions |= {"exclude_device"}
        if beyond is not None:
            self.actions |= beyond.actions

    def do(self, command: RemediationCommand, beat: Beat) -> str:
        """Carry the command out; each step looks first whether it is done already."""
        node = one_node(command.node)
        server = Patient(self._api, lambda: self._pause(beat))
        steps: dict[str, Callable[[], str]] = {
            "block_new_work": lambda: self._blocked(server, node, command),
            "drain": lambda: self._drained(server, node, command),
            "exclude_device": lambda: devices.excluded(
                server, node, command, effect=self._effect, look_every_s=self._look_every_s
            ),
            "return_to_service": lambda: self._returned(server, node, command),
        }
        return steps[command.action]() if command.action in steps else self._repaired(server, node, command)

    def boot_id(self, node: str) -> str | None:
        """Return the boot id that the node's kubelet told last; None: it is not known now."""
        return boot_id_of(self._api, node)

    def _pause(self, beat: Beat) -> None:
        self._sleep(self._look_every_s)
        beat()

    # --- nodes -----------------------------------------------------------------------------------------

    def _blocked(self, server: Patient, node: str, command: RemediationCommand) -> str:
        def cordoned(found: dict[str, Any]) -> dict[str, Any] | None:
            spec = found.get("spec", {})
            if spec.get("unschedulable") or _was_put_back(found, command):
                return None
            # The cordon keeps work away. The mark may cost nothing once a person takes the cordon back, and may not
            # keep the node's own daemons from it, which tolerate a cordon.
            taints = [*_others(spec), {"key": OUT_TAINT, "value": command.action, "effect": "PreferNoSchedule"}]
            marks = {COMMAND: command.command_id, INCIDENT: command.reason.incident_id}
            return {"metadata": {"annotations": marks}, "spec": _spec(taints, out=True)}

        before = server.change(f"/api/v1/nodes/{node}", cordoned)
        if before is None:
            raise Refused(f"there is no node {node}")
        if _was_put_back(before, command):
            raise Refused(PUT_BACK)
        if _is_others(before):
            return "already out: cordoned by somebody else"
        self._tell(server, before, command, out=True)
        return "cordoned: no new pods"

    def _drained(self, server: Patient, node: str, command: RemediationCommand) -> str:
        self._blocked(server, node, command)
        asked: set[str] = set()
        while left := _movable(server, node):
            if not self._is_being_emptied(server, node, command):
                raise Failed(f"{PUT_BACK}; {len(asked)} pods were evicted before")
            stays = {_named(pod): why for pod in left if (why := _stays_because(server, pod, asked))}
            try:
                server.pause()
            except Failed as over:
                raise Failed(f"{over}; {len(left)} pods are left{_reasons(stays)}") from None
        return f"empty, {len(asked)} pods evicted" if asked else "empty"

    def _is_being_emptied(self, server: Patient, node: str, command: RemediationCommand) -> bool:
        """Return whether the node is still kept from work, marked with whose evictions these are."""

        def marked(found: dict[str, Any]) -> dict[str, Any] | None:
            is_told = _annotations(found).get(DRAIN) == command.command_id
            kept_out = found.get("spec", {}).get("unschedulable")
            return None if is_told or not kept_out else {"metadata": {"annotations": {DRAIN: command.command_id}}}

        found = server.change(f"/api/v1/nodes/{node}", marked)
        return found is not None and bool(found.get("spec", {}).get("unschedulable"))

    def _returned(self, server: Patient, node: str, command: RemediationCommand) -> str:
        def uncordoned(found: dict[str, Any]) -> dict[str, Any] | None:
            if _is_others(found) or not (_is_ours(found) or _is_marked(found)):
                return None
            spec = _spec(_others(found.get("spec", {})), out=False)
            marks = {COMMAND: command.command_id, INCIDENT: None, DRAIN: None}
            return {"metadata": {"annotations": marks}, "spec": spec}

        before = server.change(f"/api/v1/nodes/{node}", uncordoned)
        if before is None:
            raise Refused(f"there is no node {node}")
        freed = devices.freed(server, node) if "exclude_device" in self.actions else 0
        if _is_others(before):
            raise Refused("kept out by somebody else: cordoned, and not by us")
        is_begun = _annotations(before).get(COMMAND) == command.command_id
        if not (_is_ours(before) or _is_marked(before) or freed or is_begun):
            return "in service already"
        self._tell(server, before, command, out=False)
        return "uncordoned" + (f", {freed} devices free again" if freed else "")

    def _repaired(self, server: Patient, node: str, command: RemediationCommand) -> str:
        beyond = self._beyond
        if beyond is None or command.action not in beyond.actions:
            raise Refused(f"unsupported: {command.action}")
        memory = beyond.memory_of(command.command_id)
        if memory.recall() is None:  # else it was begun before a kill, and is followed to its end
            found = server.ask("GET", f"/api/v1/nodes/{node}")
            if found.is_good and _was_put_back(found.body, command):
                raise Refused(PUT_BACK)
        if beyond.jobs is None or command.action == "replace":
            return replaced(server, node, memory)
        repair = Repair(server, beyond.jobs, command, now_ms=self._now_ms())
        if command.action == "reset_device":
            return repair.reset(memory)
        return repair.restarted(memory, look_every_s=self._look_every_s)

    # --- telling ---------------------------------------------------------------------------------------

    def _tell(self, server: Patient, node: dict[str, Any], command: RemediationCommand, *, out: bool) -> None:
        """Say on the node what was done and why; the same command says it once."""
        now = moment_of(self._now_ms()).strftime("%Y-%m-%dT%H:%M:%SZ")
        name = node["metadata"]["name"]
        why = ", ".join(command.reason.fault_codes)[:200] or command.action
        reason, message = ("TakenOut", f"{why}: command {command.command_id}") if out else ("Returned", "verified")
        condition = {
            "type": CONDITION,
            "status": "False" if out else "True",
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": now,
        }
        known = {c["type"]: c for c in node.get("status", {}).get("conditions") or ()}.get(CONDITION, {})
        since = known.get("lastTransitionTime") if known.get("status") == condition["status"] else None
        status = {"status": {"conditions": [condition | {"lastTransitionTime": since or now}]}}
        server.ask("PATCH", f"/api/v1/nodes/{name}/status", status, kind=STRATEGIC)
        event = {
            "metadata": {"name": f"faultlens-{command.command_id}", "namespace": "default"},
            "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": name},
            "reason": reason,
            "message": message,
            "type": "Warning" if out else "Normal",
            "source": {"component": "faultlens"},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        server.ask("POST", "/api/v1/namespaces/default/events", event)


def _is_ours(node: dict[str, Any]) -> bool:
    """Return whether the node is cordoned by us: the server notes who made it unschedulable."""
    held = node["metadata"].get("managedFields") or ()
    return any(
        field.get("manager") == MANAGER and CORDON_FIELD in field.get("fieldsV1", {}).get("f:spec", {})
        for field in held
    )


def _is_others(node: dict[str, Any]) -> bool:
    return bool(node.get("spec", {}).get("unschedulable")) and not _is_ours(node)


def _is_marked(node: dict[str, Any]) -> bool:
    return any(taint.get("key") == OUT_TAINT for taint in node.get("spec", {}).get("taints") or ())


def _was_put_back(node: dict[str, Any], command: RemediationCommand) -> bool:
    """Return whether somebody uncordoned what was cordoned for the command's incident: what says so is left behind."""
    kept_out = node.get("spec", {}).get("unschedulable")
    return not kept_out and _annotations(node).get(INCIDENT) == command.reason.incident_id


def _annotations(node: dict[str, Any]) -> dict[str, str]:
    return dict(node["metadata"].get("annotations") or {})


def _others(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the taints that are not ours; that of the cordon itself is the server's to set."""
    return [t for t in spec.get("taints") or () if t.get("key") not in (OUT_TAINT, "node.kubernetes.io/unschedulable")]


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


def _stays_because(server: Patient, pod: dict[str, Any], asked: set[str]) -> str:
    """Ask for a pod's eviction and return why it stays for now; nothing: it is gone or another one has its name."""
    metadata = pod["metadata"]
    if metadata.get("deletionTimestamp"):
        return "it is ending"
    path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/eviction"
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]},
        # Another pod may have taken the name meanwhile.
        "deleteOptions": {"preconditions": {"uid": metadata["uid"]}},
    }
    answer = server.once("POST", path, eviction)
    if answer.is_forbidden:
        answer = server.ask("POST", path, eviction)
    if answer.is_good:
        asked.add(metadata["uid"])
    return "" if answer.is_good or answer.is_missing or answer.status == 409 else answer.said


def _reasons(stays: dict[str, str]) -> str:
    """Return why pods stay, for as many as one reads."""
    told = [f"{name} ({why[:_SAID_CHARS]})" for name, why in sorted(stays.items())[:_NAMED]]
    return f": {', '.join(told)}" if told else ""


def _named(pod: dict[str, Any]) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
