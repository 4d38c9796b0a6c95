"""What only wears out is no reason to keep a node from work that something else has taken."""

from __future__ import annotations

from faultlens.clock import moment_of
from faultlens.events import RemediationResult
from tests.unit.repair_scenes import T0, Repairs


def late(scene: Repairs, minute: float, action: str) -> Repairs:
    """Let the actuator say long after everybody gave up that it has carried out the first such command."""
    command = next(command for command in scene.commands if command.action == action)
    done = RemediationResult(command.command_id, "c1", "succeeded", "scene", moment_of(T0), "n1")
    return scene.at(minute, done, "actuator/scene")


def test_a_worn_node_that_a_late_command_takes_is_brought_back() -> None:
    scene = Repairs(2, answers={"block_new_work": "silent"}).fault(3, "n1", "63").run(4.5)
    scene.failing["n1"]["ib_links"] = 0
    scene.run(8).failing["n1"].clear()
    assert scene.run(30).standing() == {}
    late(scene, 40, "block_new_work").run(60)
    assert scene.done("n1") == ["block_new_work", "validate", "return_to_service"]
    assert scene.standing() == {}


def test_a_late_command_that_takes_a_node_whose_wear_is_only_noted_does_not_keep_it() -> None:
    scene = Repairs(2, answers={"drain": "silent"}).fault(5, "n1", "109").run(30)
    scene.act(31, "n1", "uncordon").fault(41, "n1", "63").run(42)
    assert scene.standing()["n1"].rule == "trend"
    late(scene, 43, "drain").run(60)
    assert scene.done("n1")[-2:] == ["validate", "return_to_service"]
