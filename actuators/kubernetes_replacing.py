"""A node's replacement: what it stands for in Karpenter or the Cluster API is deleted, and its owner makes another."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct

from actuators.kubernetes_api import Patient
from actuators.sdk import Failed, Memory, Refused

NODE_CLAIMS: Final = "/apis/karpenter.sh/v1/nodeclaims"
_MACHINES: Final = "/apis/cluster.x-k8s.io/v1beta1/namespaces/{}/machines"
_MACHINE: Final = "cluster.x-k8s.io/machine"
_MACHINE_SPACE: Final = "cluster.x-k8s.io/cluster-namespace"
_NAME: Final = re.compile(r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$")
_ANOTHER: Final = 409


class Claim(Struct, frozen=True):
    """What stands for a node: the object's path and uid. Another one may take its name."""

    path: str
    uid: str


class _Owner(NamedTuple):
    path: str
    uid: str | None


def replaced(server: Patient, node: str, memory: Memory) -> str:
    """Delete what stands for the node and wait until it is gone, with its machine. Refused: nothing stands for it.

    What is to be deleted is written down first: whoever goes on after a kill waits for that one, and does not delete
    what has come in its place under the same name.
    """
    note = memory.recall()
    claim = _found(server, node) if note is None else msgspec.json.decode(note, type=Claim)
    memory.keep(msgspec.json.encode(claim))
    is_asked = False
    while True:
        found = server.ask("GET", claim.path)
        if found.is_missing or (found.is_good and _uid(found.body) != claim.uid):
            return f"{claim.path.rpartition('/')[2]} is deleted, and its machine with it"
        if found.is_good and not (is_asked or found.body["metadata"].get("deletionTimestamp")):
            _delete(server, claim)
            is_asked = True
            continue
        server.pause()


def _delete(server: Patient, claim: Claim) -> None:
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": claim.uid}}
    done = server.ask("DELETE", claim.path, options)
    if not (done.is_good or done.is_missing or done.status == _ANOTHER):
        raise Failed(f"{claim.path} cannot be deleted: {done.said}")


def _found(server: Patient, node: str) -> Claim:
    shown = server.ask("GET", f"/api/v1/nodes/{node}")
    if shown.is_missing:
        raise Refused(f"there is no node {node}")
    if not shown.is_good:
        raise Failed(f"{node} cannot be read: {shown.said}")
    owner = _owner_of(shown.body["metadata"])
    if owner is None:
        raise Refused(f"unsupported: {node} belongs to no NodeClaim and no Machine")
    found = server.ask("GET", owner.path)
    if not found.is_good or (owner.uid is not None and _uid(found.body) != owner.uid):
        raise Failed(f"{owner.path}, which {node} belongs to, is not there")
    return Claim(owner.path, _uid(found.body))


def _owner_of(metadata: Mapping[str, Any]) -> _Owner | None:
    """Return what the node says that it belongs to."""
    for reference in metadata.get("ownerReferences") or ():
        is_claim = reference.get("kind") == "NodeClaim" and str(reference.get("apiVersion")).startswith("karpenter.sh/")
        if is_claim and _NAME.match(str(reference.get("name"))):
            return _Owner(f"{NODE_CLAIMS}/{reference['name']}", str(reference.get("uid")))
    marks = metadata.get("annotations") or {}
    name, space = str(marks.get(_MACHINE) or ""), str(marks.get(_MACHINE_SPACE) or "")
    return _Owner(f"{_MACHINES.format(space)}/{name}", None) if _NAME.match(name) and _NAME.match(space) else None


def _uid(thing: Mapping[str, Any]) -> str:
    return str(thing["metadata"].get("uid"))
