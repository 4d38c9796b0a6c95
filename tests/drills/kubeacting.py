"""What the Kubernetes actuator does on a real API server with single commands, by the rights of its manifest alone."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError

import yaml

from faultlens.clock import MINUTE_MS, SECOND_MS, moment_of, wall_ms
from faultlens.codec import Decoder, encode, event_of
from faultlens.events import Action, CommandReason, DeviceRef, DraDevice, RemediationCommand, RemediationResult
from faultlens.kubernetes_marks import DEVICE_TAINT_RULES
from tests.drills.kubelab import NAMESPACE, Api, Lab, until
from tests.drills.pipeline import say

MANIFESTS: Final = Path(__file__).parents[2] / "deploy" / "kubernetes"
ACCOUNT: Final = "/api/v1/namespaces/faultlens/serviceaccounts"
RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
DRA: Final = "/apis/resource.k8s.io/v1"
DRIVER: Final = "gpu.nvidia.com"
SPARE: Final = "gpu-6"
# What an actuator might be wanted to do by somebody who got hold of it.
BEYOND: Final = (
    ("GET", "/api/v1/nodes"),
    ("DELETE", "/api/v1/nodes/gpu-1"),
    ("GET", "/api/v1/secrets"),
    ("GET", "/api/v1/configmaps"),
    ("GET", f"/api/v1/namespaces/{NAMESPACE}/pods/any"),
    ("POST", f"/api/v1/namespaces/{NAMESPACE}/pods"),
    ("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/any"),
    ("POST", f"/api/v1/namespaces/{NAMESPACE}/pods/any/exec"),
    ("POST", f"/api/v1/namespaces/{NAMESPACE}/events"),
    ("PATCH", f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets/any"),
    ("DELETE", f"{DRA}/resourceslices/any"),
    ("PATCH", f"{RBAC}/clusterroles/faultlens-act"),
    ("POST", f"{ACCOUNT}/faultlens-act/token"),
)
# What the server lets everybody do who has a name: ask what that is.
_EVERYBODYS: Final = {
    ("authorization.k8s.io", "selfsubjectaccessreviews", "create"),
    ("authorization.k8s.io", "selfsubjectrulesreviews", "create"),
    ("authentication.k8s.io", "selfsubjectreviews", "create"),
}


def bound(api: Api, lab: Lab, folder: Path, name: str = "act") -> Path:
    """Make an actuator's service account with the rights of its manifest; return a kubeconfig that is its own."""
    api.make("/api/v1/namespaces", {"metadata": {"name": "faultlens"}})
    applied(api, name)
    token = api.ask("POST", f"{ACCOUNT}/faultlens-{name}/token", {"spec": {"expirationSeconds": 7_200}})
    config = yaml.safe_load(lab.kubeconfig.read_text("utf-8"))
    config["users"][0]["user"] = {"token": token["status"]["token"]}
    (folder / f"{name}.kubeconfig").write_text(yaml.safe_dump(config), "utf-8")
    return folder / f"{name}.kubeconfig"


def applied(api: Api, name: str) -> None:
    """Make the namespaces, accounts and rights of a manifest."""
    for thing in things_in(name):
        kind, space = thing["kind"], thing["metadata"].get("namespace")
        if kind == "Namespace":
            api.make("/api/v1/namespaces", thing)
        elif kind == "ServiceAccount":
            api.make(ACCOUNT, thing)
        elif thing["apiVersion"].startswith("rbac"):
            api.make(f"{RBAC}/{f'namespaces/{space}/' if space else ''}{kind.lower()}s", thing)


def things_in(name: str) -> list[dict[str, Any]]:
    """Return the objects of a manifest."""
    return list(yaml.safe_load_all((MANIFESTS / f"{name}.yaml").read_text("utf-8")))


def not_refused(kubeconfig: Path) -> list[str]:
    """Return what the account may do beyond what its manifest names."""
    return [f"the actuator may {method} {path}" for method, path in BEYOND if _status(kubeconfig, method, path) != 403]


def rights_wrong(kubeconfig: Path, *names: str) -> Iterator[str]:
    """Ask the server for all that an account may do; yield what is more or less than its manifests give."""
    name = " with ".join(names)
    things = [thing for name in names for thing in things_in(name) if thing["kind"] in ("ClusterRole", "Role")]
    count = 0
    for space in ("default", "faultlens", "faultlens-repair", NAMESPACE):
        given = [t for t in things if t["metadata"].get("namespace") in (None, space)]
        wanted = {right for thing in given for rule in thing["rules"] for right in _rights(rule)} | _EVERYBODYS
        review = {"spec": {"namespace": space}}
        answer = Api(kubeconfig).ask("POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", review)
        there = {right for rule in answer["status"]["resourceRules"] for right in _rights(rule)}
        for group, resource, verb in sorted(there ^ wanted):
            more = "may" if (group, resource, verb) in there else "may not"
            yield f"in {space} {name} {more} {verb} {resource}.{group or 'core'}"
        count += len(there & wanted)
    say(f"{name}: of its rights in 4 namespaces {count} are its manifest's")


def _rights(rule: dict[str, Any]) -> set[tuple[str, str, str]]:
    return {(group, kind, verb) for group in rule["apiGroups"] for kind in rule["resources"] for verb in rule["verbs"]}


def _status(kubeconfig: Path, method: str, path: str) -> int:
    try:
        Api(kubeconfig).ask(method, path, {} if method in ("POST", "PATCH") else None)
    except HTTPError as error:
        return error.code
    return 200


class Single:
    """Gives the actuator one command at a time, from a file, as its own process."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        self._kubeconfig, self._folder = kubeconfig, folder
        self._given = 0

    def act(
        self,
        action: Action,
        *options: str,
        node: str = SPARE,
        device: str = "",
        index: int | None = None,
        patience_s: int = 300,
        server: Path | None = None,
    ) -> tuple[RemediationResult, str]:
        """Return how the command ended, and what the process said beside it."""
        self._given += 1
        now_ms = wall_ms()
        command = RemediationCommand(
            command_id=f"single-{self._given}",
            cluster="lab",
            action=action,
            rung=0,
            reason=CommandReason(("xid:79",), "by-hand"),
            issued_at=moment_of(now_ms),
            expires_at=moment_of(now_ms + MINUTE_MS),
            finish_by=moment_of(now_ms + patience_s * SECOND_MS),
            mode="live",
            policy="drill",
            node=node,
            device=DeviceRef(index=index, dra=DraDevice(DRIVER, node, device) if device else None),
        )
        given, told = self._folder / f"{self._given}.jsonl", self._folder / f"{self._given}.told"
        given.write_bytes(encode(event_of(command, source="drill", id_=command.command_id, time_ms=now_ms)) + b"\n")
        files = ["--commands", str(given), "--out", str(told), "--ledger", str(self._folder / "single.db")]
        acting = [sys.executable, "-m", "faultlens.cli", "act", "kubernetes", "--cluster", "lab", "--sole", *files]
        done = subprocess.run(
            [*acting, "--kubeconfig", str(server or self._kubeconfig), *options],
            capture_output=True,
            text=True,
            check=True,
            timeout=patience_s + 60,
        )
        ends = [event.data for event in map(Decoder().decode, told.read_bytes().splitlines())]
        last = ends[-1]
        assert isinstance(last, RemediationResult)
        say(f"{action} {' '.join(options)}: {last.state}, {last.reason}")
        return last, done.stderr


def _claiming(name: str) -> dict[str, Any]:
    """Return a pod that claims a device."""
    container = {"name": "main", "image": "registry.lab/train:1", "resources": {"claims": [{"name": "gpu"}]}}
    claims = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]
    return {
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"containers": [container], "resourceClaims": claims},
    }


def _runs(api: Api, name: str) -> bool:
    return any(p["metadata"]["name"] == name and p["status"]["phase"] == "Running" for p in api.pods())


def _prepared(api: Api) -> None:
    """Offer one device on the spare node, and let a pod run on it."""
    api.make(f"{DRA}/deviceclasses", {"metadata": {"name": "gpu"}, "spec": {}})
    pool = {"name": SPARE, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": SPARE, "pool": pool, "devices": [{"name": "gpu-0"}]}
    api.make(f"{DRA}/resourceslices", {"metadata": {"name": SPARE}, "spec": spec})
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu"}}
    template = {"metadata": {"name": "one-gpu"}, "spec": {"spec": {"devices": {"requests": [request]}}}}
    api.make(f"{DRA}/namespaces/{NAMESPACE}/resourceclaimtemplates", template)
    api.make(f"/api/v1/namespaces/{NAMESPACE}/pods", _claiming("first"))
    until("the first pod to run on the device", lambda: _runs(api, "first"))


def devices_wrong(api: Api, single: Single) -> Iterator[str]:
    """Taint a device in each way there is, and free it with its node; yield what was not as it should be."""
    _prepared(api)
    shown, _ = single.act("exclude_device", "--device-taint", "None", device="gpu-0")
    if shown.state != "refused" or "1 pod would be evicted" not in (shown.reason or "") or _rules(api):
        yield f"a taint without effect: {shown.state}, {shown.reason}, {len(_rules(api))} rules are left"
    kept, _ = single.act("exclude_device", "--device-taint", "NoSchedule", device="gpu-0")
    if kept.state != "succeeded" or not _runs(api, "first"):
        yield f"a taint NoSchedule: {kept.state}, {kept.reason}; its pod runs: {_runs(api, 'first')}"
    gone, _ = single.act("exclude_device", "--device-taint", "NoExecute", device="gpu-0")
    if gone.state != "succeeded" or _runs(api, "first") or len(_rules(api)) != 1:
        yield f"a taint NoExecute: {gone.state}, {gone.reason}, {len(_rules(api))} rules"
    api.make(f"/api/v1/namespaces/{NAMESPACE}/pods", _claiming("second"))
    free, _ = single.act("return_to_service")
    if free.state != "succeeded" or _rules(api):
        yield f"the device's return: {free.state}, {free.reason}, {len(_rules(api))} rules are left"
    until("another pod to run on the freed device", lambda: _runs(api, "second"))


def _rules(api: Api) -> list[Any]:
    return list(api.ask("GET", DEVICE_TAINT_RULES)["items"])


def budgets_wrong(api: Api, single: Single) -> Iterator[str]:
    """Drain a node whose pod a budget keeps; yield what was not as it should be."""
    budget = f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets"
    api.make(
        budget,
        {"metadata": {"name": "keep"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "second"}}}},
    )
    kept, _ = single.act("drain", patience_s=20)
    if kept.state != "failed" or f"{NAMESPACE}/second" not in (kept.reason or "") or not _runs(api, "second"):
        yield f"a budget that forbids it: {kept.state}, {kept.reason}"
    api.ask("DELETE", f"{budget}/keep")
    gone, _ = single.act("drain")
    if gone.state != "succeeded" or _runs(api, "second"):
        yield f"a drain without a budget: {gone.state}, {gone.reason}"
    back, _ = single.act("return_to_service")
    if back.state != "succeeded":
        yield f"the drained node's return: {back.state}, {back.reason}"


def gate_wrong(lab: Lab, single: Single, folder: Path) -> Iterator[str]:
    """Ask for a device's exclusion where nobody would do it; yield what was not as it should be."""
    gates = "DRADeviceTaints=true,DRADeviceTaintRules=false"
    without = {"feature_gates": gates, "runtime_config": "resource.k8s.io/v1beta2=false"}
    with lab.second_api_server(folder, **without) as kubeconfig:
        yield from _accepted("a server without rules", *single.act("exclude_device", device="gpu-0", server=kubeconfig))
    with lab.other_controllers(folder, feature_gates=gates):
        yield from _accepted("controllers without rules", *single.act("exclude_device", device="gpu-0"))


def _accepted(where: str, end: RemediationResult, said: str) -> Iterator[str]:
    if end.state != "refused" or "unsupported" not in (end.reason or "") or "no device taint rules" not in said:
        yield f"{where}: {end.state}, {end.reason}; {json.dumps(said[-200:])}"
