"""How a node of Kubernetes is replaced: what stands for it is deleted, and nothing else ever is."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

pytest.importorskip("kubernetes_asyncio", reason="the Kubernetes client is not installed (extra `kubernetes`)")

from actuators.kubernetes import Beyond, Kubernetes
from actuators.ledger import Ledger
from tests.contract.acting import DRAIN, Bench, Clock
from tests.contract.kubernetes_fake import FakeKubernetes

REPLACE = replace(DRAIN, action="replace", command_id="replace")
CLAIM = "/apis/karpenter.sh/v1/nodeclaims/pool-x7k2"
MACHINE = "/apis/cluster.x-k8s.io/v1beta1/namespaces/gpus/machines/m-17"
OWNED = {"ownerReferences": [{"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "name": "pool-x7k2", "uid": "u1"}]}
MARKED = {"annotations": {"cluster.x-k8s.io/machine": "m-17", "cluster.x-k8s.io/cluster-namespace": "gpus"}}


def replacing(path: str, metadata: dict[str, Any], ledger: Ledger) -> tuple[FakeKubernetes, Bench]:
    server, clock = FakeKubernetes(), Clock()
    server.node["metadata"] |= metadata
    server.claims[path] = {"metadata": {"uid": "u1"}}
    acting = Kubernetes(server, now_ms=clock, sleep=clock.sleep, beyond=Beyond(ledger.memory_of, replaces=True))
    server.changes.clear()
    return server, Bench(acting, ledger, clock)


@pytest.mark.parametrize(("path", "metadata"), [(CLAIM, OWNED), (MACHINE, MARKED)], ids=["karpenter", "cluster-api"])
def test_a_node_is_replaced_by_deleting_what_stands_for_it_and_waiting_for_its_end(
    path: str, metadata: dict[str, Any], ledger: Ledger
) -> None:
    server, line = replacing(path, metadata, ledger)
    server.lingers = 30
    assert line.worker.take(REPLACE) == "succeeded"
    assert line.results[-1].reason == f"{path.rpartition('/')[2]} is deleted, and its machine with it"
    assert (server.changes, server.claims) == ([("DELETE", path)], {})


def test_one_killed_after_it_deleted_does_not_delete_what_came_under_the_same_name(ledger: Ledger) -> None:
    server, line = replacing(CLAIM, OWNED, ledger)
    server.dies_after = 0
    with pytest.raises(KeyboardInterrupt):
        line.worker.take(REPLACE)
    server.dies_after = None
    server.claims[CLAIM] = {"metadata": {"uid": "u2"}}
    assert [line.worker.take(command) for command in line.worker.unfinished()] == ["succeeded"]
    assert server.changes == [("DELETE", CLAIM)]
    assert CLAIM in server.claims


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({}, "unsupported: node-1 belongs to no NodeClaim and no Machine"),
        ({"ownerReferences": [OWNED["ownerReferences"][0] | {"kind": "Machine"}]}, "unsupported"),
        ({"ownerReferences": [OWNED["ownerReferences"][0] | {"name": "../nodes/other"}]}, "unsupported"),
        ({"annotations": {"cluster.x-k8s.io/machine": "m-17", "cluster.x-k8s.io/cluster-namespace": ".."}}, "unsupp"),
        ({"ownerReferences": [OWNED["ownerReferences"][0] | {"uid": "u0"}]}, "which node-1 belongs to, is not there"),
    ],
    ids=["nothing", "another-kind", "a-path", "another-path", "another-uid"],
)
def test_what_does_not_clearly_stand_for_the_node_is_not_deleted(
    metadata: dict[str, Any], reason: str, ledger: Ledger
) -> None:
    server, line = replacing(CLAIM, metadata, ledger)
    assert line.worker.take(REPLACE) in ("refused", "failed")
    assert reason in (line.results[-1].reason or "")
    assert server.changes == []


def test_nodes_are_replaced_only_where_that_is_asked_for(ledger: Ledger) -> None:
    server = FakeKubernetes()
    server.node["metadata"] |= OWNED
    server.claims[CLAIM] = {"metadata": {"uid": "u1"}}
    clock = Clock()
    line = Bench(Kubernetes(server, now_ms=clock, sleep=clock.sleep), ledger, clock)
    line.sole = True
    assert line.worker.take(REPLACE) == "refused"
    assert CLAIM in server.claims
