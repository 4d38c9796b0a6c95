"""Devices under dynamic resource allocation: tainted by rules that select one of them, shown first, and freed again."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from itertools import count
from typing import Any, Final, Literal

from actuators.kubernetes_api import Api, Patient
from actuators.sdk import Failed, Refused
from faultlens.errors import WorldError
from faultlens.events import DraDevice, RemediationCommand
from faultlens.kubernetes_marks import COMMAND, DEVICE_TAINT_RULES, OUT_TAINT

NODE_LABEL: Final = "faultlens.io/node"
Effect = Literal["None", "NoSchedule", "NoExecute"]
# A rule's evictions are over when it has said so for this long (Kubernetes: the condition lags behind new pods).
_QUIET_S: Final = 10.0
_LABEL_CHARS: Final = 63
# A rule of no device's, acted on within a second where rules are acted on at all; longer, since a controller may move.
_PROBE: Final = "faultlens-probe"
_NOWHERE: Final = DraDevice("faultlens.io", "nowhere", "none")
_PROBE_EVERY_S: Final = 1.0
_PROBES: Final = 30
_EXISTS: Final = 409


def are_there(api: Api, sleep: Callable[[float], None]) -> bool:
    """Return whether rules taint devices here. WorldError: the server does not say.

    A server may keep rules that nobody acts on: those of 1.36 do while the feature is off, as it is by default. So a
    rule without effect is made, of a device that is nowhere: what is said of it comes from who would act.
    """
    tries = count(1)

    def pause() -> None:
        sleep(_PROBE_EVERY_S)
        if next(tries) > _PROBES:
            raise Failed("no answer in time")

    server = Patient(api, pause)
    try:
        found = server.ask("GET", f"{DEVICE_TAINT_RULES}?limit=1")
        if found.is_missing:
            return False
        _tainted(server, _PROBE, _body({"name": _PROBE}, _NOWHERE, "probe", "None"))
    except Failed as failure:
        raise WorldError(f"Kubernetes does not say whether it has device taint rules: {failure}") from None
    try:
        while _progress(server, _PROBE) is None:
            server.pause()
    except Failed:
        return False
    finally:
        server.once("DELETE", f"{DEVICE_TAINT_RULES}/{_PROBE}")
    return True


def excluded(server: Patient, node: str, command: RemediationCommand, *, effect: Effect, look_every_s: float) -> str:
    """Keep work away from the command's device; return what was done, once evictions that it causes are over.

    Refused: the device is not named, or `effect` is None, by which it is only found out whom it would evict.
    """
    device = None if command.device is None else command.device.dra
    if device is None or not (device.driver and device.pool and device.device):
        raise Refused("unsupported: the device is not named by driver, pool and device")
    if effect == "None":
        raise Refused(f"unsupported: devices are only shown. {_shown(server, node, device, command)}")
    name = rule_name(device)
    _tainted(server, name, _rule(name, node, device, effect, command))
    if effect == "NoExecute":
        _evacuated(server, name, look_every_s)
    return f"{device.driver}/{device.pool}/{device.device} is tainted: {effect}"


def freed(server: Patient, node: str) -> int:
    """Take our taints off the node's devices; return how many there were."""
    found = server.ask("GET", f"{DEVICE_TAINT_RULES}?labelSelector={NODE_LABEL.replace('/', '%2F')}%3D{_label(node)}")
    if not found.is_good:
        raise Failed(f"device taints of {node} cannot be listed: {found.said}")
    names = [rule["metadata"]["name"] for rule in found.body.get("items", [])]
    for name in names:
        _removed(server, name)
    return len(names)


def rule_name(device: DraDevice) -> str:
    """Return the name of our taint rule for a device: the same device has one rule."""
    key = f"{device.driver}\0{device.pool}\0{device.device}"
    return f"faultlens-{hashlib.sha256(key.encode()).hexdigest()[:20]}"


def _tainted(server: Patient, name: str, rule: dict[str, Any]) -> None:
    made = server.ask("POST", DEVICE_TAINT_RULES, rule)
    if made.status == _EXISTS:
        server.change(f"{DEVICE_TAINT_RULES}/{name}", lambda found: _retainted(found, rule["spec"]["taint"]))
    elif not made.is_good:
        raise Failed(f"the device cannot be tainted: {made.said}")


def _retainted(found: dict[str, Any], taint: dict[str, str]) -> dict[str, Any] | None:
    known = found.get("spec", {}).get("taint", {})
    return None if known.get("effect") == taint["effect"] else {"spec": {"taint": taint}}


def _shown(server: Patient, node: str, device: DraDevice, command: RemediationCommand) -> str:
    """Return whom evacuating the device would evict, by a rule without effect that is gone again afterwards."""
    name = f"{rule_name(device)}-shown"
    _tainted(server, name, _rule(name, node, device, "None", command))
    while (progress := _progress(server, name)) is None:
        server.pause()
    _removed(server, name)
    return str(progress.get("message", "")).partition(" This information")[0]


def _evacuated(server: Patient, name: str, look_every_s: float) -> None:
    quiet_s = 0.0
    while quiet_s < _QUIET_S:
        server.pause()
        progress = _progress(server, name)
        quiet_s = quiet_s + look_every_s if progress is not None and progress.get("status") == "False" else 0.0


def _progress(server: Patient, name: str) -> dict[str, Any] | None:
    """Return what the server says of a rule's evictions; None: nothing yet of the rule as it is now."""
    found = server.ask("GET", f"{DEVICE_TAINT_RULES}/{name}")
    if found.is_missing:
        raise Failed("somebody took the device's taint away")
    if not found.is_good:
        raise Failed(f"the device's taint cannot be read: {found.said}")
    generation = found.body["metadata"].get("generation")
    for condition in found.body.get("status", {}).get("conditions") or ():
        if condition.get("type") == "EvictionInProgress" and condition.get("observedGeneration") == generation:
            return dict(condition)
    return None


def _removed(server: Patient, name: str) -> None:
    done = server.ask("DELETE", f"{DEVICE_TAINT_RULES}/{name}")
    if not done.is_good and not done.is_missing:
        raise Failed(f"the taint rule {name} cannot be taken away: {done.said}")


def _rule(name: str, node: str, device: DraDevice, effect: Effect, command: RemediationCommand) -> dict[str, Any]:
    metadata = {"name": name, "labels": {NODE_LABEL: _label(node)}, "annotations": {COMMAND: command.command_id}}
    return _body(metadata, device, command.action, effect)


def _body(metadata: dict[str, Any], device: DraDevice, value: str, effect: Effect) -> dict[str, Any]:
    return {
        "apiVersion": "/".join(DEVICE_TAINT_RULES.split("/")[2:4]),
        "kind": "DeviceTaintRule",
        "metadata": metadata,
        "spec": {
            "deviceSelector": {"driver": device.driver, "pool": device.pool, "device": device.device},
            "taint": {"key": OUT_TAINT, "value": value, "effect": effect},
        },
    }


def _label(node: str) -> str:
    """Return the node's name as a label may say it: names of nodes may be longer than labels."""
    return node if len(node) <= _LABEL_CHARS else hashlib.sha256(node.encode()).hexdigest()[:40]
