"""Repairs by jobs and replacements on a real API server, by the rights of their manifests; the drill plays the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from time import sleep
from typing import Any, Final

from actuators.kubernetes_replacing import NODE_CLAIMS
from tests.drills.kubeacting import Single, applied, rights_wrong, things_in
from tests.drills.kubelab import MERGE, STRATEGIC, Api, until

REPAIRS: Final = "faultlens-repair"
PODS: Final = f"/api/v1/namespaces/{REPAIRS}/pods"
# Replaced at last: before the bridge looks, as it would tell of its restart.
NODE: Final = "gpu-8"


def repairs_by_job_wrong(api: Api, single: Single, folder: Path, kubeconfig: Path) -> Iterator[str]:
    """Reset a GPU and restart a node by jobs; yield what was not as it should be. The drill plays node and programs."""
    applied(api, "repairing")
    api.make(f"/api/v1/namespaces/{REPAIRS}/serviceaccounts", {"metadata": {"name": "default"}})
    yield from rights_wrong(kubeconfig, "act", "repairing")
    jobs = next(thing for thing in things_in("repairing") if thing["kind"] == "ConfigMap")["data"]["jobs.yaml"]
    (folder / "jobs.yaml").write_text(jobs, "utf-8")
    option = ("--jobs", str(folder / "jobs.yaml"))
    with _meanwhile(_exits, api):
        reset, _ = single.act("reset_device", *option, node=NODE, index=3)
    if reset.state != "succeeded" or [pod["spec"].get("nodeName") for pod in api.ask("GET", PODS)["items"]] != [NODE]:
        yield f"a reset by a job: {reset.state}, {reset.reason}"
    _boots(api, "boot-before")
    with _meanwhile(_reboots, api):
        restarted, _ = single.act("reboot", *option, node=NODE)
    if restarted.state != "succeeded" or "boot-again" not in (restarted.reason or ""):
        yield f"a restart by a job: {restarted.state}, {restarted.reason}"


def replacing_wrong(api: Api, single: Single, kubeconfig: Path) -> Iterator[str]:
    """Have a node replaced by its NodeClaim, with the drill as Karpenter; yield what was not as it should be."""
    applied(api, "replacing")
    yield from rights_wrong(kubeconfig, "act", "repairing", "replacing")
    group = {"group": "karpenter.lab", "kind": "LabNodeClass", "name": "lab"}
    spec = {"nodeClassRef": group, "requirements": [{"key": "lab", "operator": "Exists"}]}
    metadata = {"name": "lab-x7k2", "finalizers": ["karpenter.sh/termination"]}
    body = {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": metadata, "spec": spec}
    uid = api.make(NODE_CLAIMS, body)["metadata"]["uid"]
    owner = {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "name": "lab-x7k2", "uid": uid}
    api.ask("PATCH", f"/api/v1/nodes/{NODE}", {"metadata": {"ownerReferences": [owner]}}, MERGE)
    with _meanwhile(_terminates, api):
        done, _ = single.act("replace", "--replace", node=NODE)
    if done.state != "succeeded" or api.ask("GET", NODE_CLAIMS)["items"]:
        yield f"a node's replacement: {done.state}, {done.reason}"


@contextmanager
def _meanwhile(plays: Callable[[Api], None], api: Api) -> Iterator[None]:
    """Play something beside the block, and wait for its end."""
    thread = Thread(target=plays, args=(api,), daemon=True)
    thread.start()
    yield
    thread.join()


def _pods(api: Api, job: str) -> list[dict[str, Any]]:
    found = api.ask("GET", PODS)["items"]
    return [pod for pod in found if job in pod["spec"]["containers"][0]["name"] and pod["status"]["phase"] == "Running"]


def _exits(api: Api) -> None:
    """Let the program of the reset end well."""
    [pod] = until("a pod that resets", lambda: _pods(api, "reset"))
    api.annotate(f"{PODS}/{pod['metadata']['name']}", lab_exit="0")


def _boots(api: Api, boot_id: str) -> None:
    api.ask("PATCH", f"/api/v1/nodes/{NODE}/status", {"status": {"nodeInfo": {"bootID": boot_id}}}, STRATEGIC)


def _reboots(api: Api) -> None:
    """Let the node come back in another boot, once its pod has asked for that."""
    until("a pod that reboots", lambda: _pods(api, "reboot"))
    sleep(5)
    _boots(api, "boot-again")


def _terminates(api: Api) -> None:
    """Let go of the claim once its deletion was asked for, as Karpenter does when the machine is gone."""
    claim = f"{NODE_CLAIMS}/lab-x7k2"
    until("a deletion of the claim", lambda: "deletionTimestamp" in api.ask("GET", claim)["metadata"])
    sleep(5)
    api.ask("PATCH", claim, {"metadata": {"finalizers": None}}, MERGE)
