"""Routes in shadow: nobody carries out what they command, and nothing real waits for that."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from msgspec.structs import replace as replaced

from faultlens.events import Data, NodeHealth, RemediationCommand
from faultlens.local_pump import Pump
from streams.remediation import RemediationProcessor, load_policy
from streams.runtime.records import Sent
from streams.runtime.task import Task
from tests.unit.repair_scenes import ROLES, Repairs


class Shadowed(Repairs):
    """A scene under a policy of its own, with an actuator that does nothing in shadow."""

    def __init__(self, text: str, folder: Path, *, nodes: int = 10, racks: int = 1) -> None:
        super().__init__(nodes, racks=racks)
        self.lab: set[str] = set()
        (folder / "policy.yaml").write_text(text, "utf-8")
        self.processor = RemediationProcessor(load_policy(folder / "policy.yaml"))
        others = [role for role in ROLES if role.name != "remediation"]
        (role,) = [replace(role, processor=self.processor) for role in ROLES if role.name == "remediation"]
        self._pump = Pump([*map(Task, others), Task(role)], self._from_pump)

    def _from_pump(self, sent: Sent, at_ms: int) -> None:
        data = sent.event.data
        if isinstance(data, RemediationCommand) and data.mode == "shadow":
            self.commands.append(data)
        else:
            super()._from_pump(sent, at_ms)

    def _say(self, data: Data, source: str, time_ms: int | None = None) -> None:
        moved = isinstance(data, NodeHealth) and data.node in self.lab
        super()._say(replaced(data, pool="lab") if moved else data, source, time_ms)

    def lived(self, node: str) -> list[str]:
        """Return what was commanded of a node in earnest."""
        return [c.action for c in self.commands if c.node == node and c.mode == "live"]


OFF_THE_BUS = "version: t\nroutes: [{name: trial, match: {faults: ['xid:79']}, ladder: reboot, mode: shadow}]\n"


def test_a_node_that_was_taken_before_a_route_in_shadow_took_over_comes_back(tmp_path: Path) -> None:
    scene = Shadowed(OFF_THE_BUS, tmp_path).fault(5, "n1", "109")
    scene.fault(6, "n1", "79", check="gpu_count").run(8)
    assert scene.lived("n1") == ["block_new_work"]
    scene.failing["n1"].clear()
    scene.boots["n1"] += 1
    assert scene.run(30).standing() == {}
    assert scene.lived("n1") == ["block_new_work", "validate", "return_to_service"]


LAB = """version: t
routes:
  - {name: trial, match: {origins: [condition], causes: [driver], pools: [lab]}, ladder: reset, mode: shadow}
"""


def test_what_nodes_share_does_not_wait_for_one_that_is_only_tried_in_shadow(tmp_path: Path) -> None:
    scene = Shadowed(LAB, tmp_path, nodes=40, racks=4)
    scene.lab.add("n0")
    for number in range(4):
        scene.fault(5 + number / 10, f"n{number}", "119", check="driver_responds")
    scene.run(240)
    assert set(scene.standing()) == {"n0"}
    assert scene.lived("n0") == ["open_ticket"]
    assert {scene.lived(name)[-1] for name in ("n1", "n2", "n3")} == {"return_to_service"}


HUNG = """version: t
routes: [{name: trial, match: {faults: ["xid:109"]}, ladder: reset, tolerance: none, mode: shadow}]
"""


def test_what_was_done_in_shadow_is_done_before_a_live_route_restarts_the_node(tmp_path: Path) -> None:
    scene = Shadowed(HUNG, tmp_path).fault(5, "n1", "109").fault(7, "n1", "79", check="gpu_count").run(15)
    assert scene.lived("n1") == ["block_new_work", "drain", "reboot", "validate", "return_to_service"]


def test_what_waits_in_shadow_is_done_once_its_route_is_live(tmp_path: Path) -> None:
    trial = OFF_THE_BUS.replace("'xid:79'", "'xid:79', 'check:gpu_count'")
    scene = Shadowed(trial, tmp_path).fault(5, "n1", "79", check="gpu_count").run(10)
    assert scene.standing()["n1"].waits_for == "shadow: nothing is done"
    scene.processor._policy = scene.processor._policy.with_live(["trial"])
    assert scene.run(30).standing() == {}
    assert scene.lived("n1") == ["block_new_work", "drain", "reboot", "validate", "return_to_service"]


OWN = """version: before
ladders: {mine: [block_new_work, {action: drain, wait: persists}, reset_device]}
routes: [{name: mine, match: {faults: ["xid:109"]}, ladder: mine}]
"""


def test_an_incident_on_a_ladder_that_a_new_policy_has_no_more_goes_on_by_that_policy(tmp_path: Path) -> None:
    scene = Shadowed(OWN, tmp_path).fault(5, "n1", "109").run(10)
    assert scene.lived("n1") == ["block_new_work"]
    scene.processor._policy = load_policy()
    assert scene.run(40).standing() == {}
    assert scene.lived("n1")[1:] == ["drain", "reset_device", "validate", "return_to_service"]


def test_where_nobody_here_can_put_a_node_back_a_person_is_waited_for(tmp_path: Path) -> None:
    policy = "version: t\nexecutable: [block_new_work, drain, reboot, open_ticket]\n"
    scene = Shadowed(policy, tmp_path).fault(5, "n1", "79", check="gpu_count").run(60)
    assert scene.lived("n1") == ["block_new_work", "drain", "reboot"]
    assert scene.standing()["n1"].waits_for == "a person: nobody here can put n1 back (the policy's executable)"
    assert scene.act(61, "n1", "uncordon").run(70).standing() == {}
