"""What the policy does nothing about keeps no node from work, and hides nothing else that is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from faultlens.clock import MINUTE_MS, moment_of
from faultlens.events import DeviceRef, RemediationResult
from faultlens.internal import Announced, Condition
from streams.remediation.record import CommandCard, NodeCard, key_of, node_key
from tests.unit.test_remediation_harm import trouble
from tests.unit.test_remediation_jobs import T0, Cluster

RECOVERED = Announced("n1", "c1", T0, "none", DeviceRef(index=0), "none", "e")
LATE = RemediationResult("old", "c1", "succeeded", "x", moment_of(T0), "n1")


def of_gpu(index: int, word: Condition) -> Condition:
    return replace(word, observation=replace(word.observation, device=DeviceRef(index=index)))


OFF_THE_BUS = of_gpu(0, trouble("xid:79", "gpu.off_bus", 90, minute=0.1))
HUNG = of_gpu(3, trouble("xid:119", "driver.gsp", 75, minute=5))


def with_old_block(policy: Path | None = None) -> Cluster:
    """Return a cluster in which nobody said in time what became of a command."""
    cluster = Cluster(policy)
    old = CommandCard("c1", "old", "earlier", "block_new_work", 0, T0, T0, T0, node="n1", ended_ms=T0, state="expired")
    cluster._states[key_of(old)] = old
    return cluster


def test_a_gpu_that_has_recovered_does_not_hide_another_one_that_has_not() -> None:
    cluster = Cluster().tell(RECOVERED).tell(OFF_THE_BUS, minute=0.1)
    assert cluster.done == []
    assert cluster.tell(HUNG, minute=5).done == [("block_new_work", "n1")]


@pytest.mark.parametrize("recovers", [True, False])
def test_a_node_that_a_late_command_takes_has_an_incident_though_nothing_is_done_about_its_fault(
    recovers: bool, tmp_path: Path
) -> None:
    (tmp_path / "policy.yaml").write_text("version: t\nwithout: [reset, rest]\n", "utf-8")
    cluster = with_old_block(tmp_path / "policy.yaml")
    if recovers:
        cluster.tell(RECOVERED)
    cluster.tell(OFF_THE_BUS, minute=0.1).tell(LATE, minute=4)
    assert cluster.incidents[-1].waits_for == (None if recovers else "a person: all steps were taken")
    cluster.tell(replace(OFF_THE_BUS, phase="cleared", at_ms=T0 + 9 * MINUTE_MS), minute=9)
    assert cluster.incidents[-1].phase != "closed", "it is on its way back"


def test_of_more_faults_than_are_kept_the_mildest_are_left_out() -> None:
    cluster = Cluster().tell(OFF_THE_BUS, minute=0.1)
    mild = [of_gpu(1, trouble(f"nvlink:{number}", "fabric.nvlink.link", 40, minute=0.2)) for number in range(60)]
    for word in mild:
        cluster.tell(word, minute=0.2)
    for word in mild:
        cluster.tell(replace(word, phase="cleared", at_ms=T0 + MINUTE_MS), minute=1)
    cluster.tell(
        RemediationResult(cluster.commands[0].command_id, "c1", "succeeded", "x", moment_of(T0), "n1"), minute=2
    )
    card = cluster.get(node_key("c1", "n1"))
    assert isinstance(card, NodeCard)
    assert [known.fault for known in card.traits] == ["xid:79"]
