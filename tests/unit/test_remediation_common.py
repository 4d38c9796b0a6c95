"""Nodes that turn bad by one cause: one incident, a single node that is tried, and the others that follow it."""

from __future__ import annotations

from types import MappingProxyType

from msgspec.structs import replace

from faultlens.events import Check, NodeHealth, PlatformRollout, Scope
from faultlens.internal import NodeFacts
from streams.remediation import common, fleet, load_policy
from streams.remediation.desk import Desk
from streams.remediation.record import MEMBERS_MAX, NodeCard, ScopeCount, Trait
from tests.unit.repair_scenes import T0, Repairs


def test_many_nodes_of_a_rack_that_break_alike_are_one_incident_and_none_of_them_is_rebooted() -> None:
    scene = Repairs(40, racks=4)
    for number in range(5):
        scene.fault(5 + number / 10, f"n{number}", "79", check="gpu_count")
    scene.run(18)
    assert {c.action for c in scene.commands} <= {"block_new_work", "drain", "open_ticket"}
    (shared,) = [i for i in scene.standing().values() if len(i.scope.nodes) > 1]
    assert (shared.rule, shared.scope.domains, len(shared.scope.nodes)) == ("common_cause", {"rack": ("r0",)}, 5)


def test_a_single_node_is_tried_when_no_more_break_and_the_others_follow_when_it_is_well() -> None:
    scene = Repairs(40, racks=4)
    for number in range(4):
        scene.fault(5 + number / 10, f"n{number}", "119", check="driver_responds")
    scene.run(120)
    assert [scene.commands[-1].action, scene.standing()] == ["return_to_service", {}]
    resets = [c for c in scene.commands if c.action == "reset_device"]
    assert {c.node for c in resets} == {"n0", "n1", "n2", "n3"}


def test_checks_that_break_with_a_roll_out_of_the_agent_are_the_roll_outs() -> None:
    scene = Repairs(10)
    scene.at(2, PlatformRollout("a1", "c1", "agent", "2.0", "started", Scope(nodes=("n1", "n2"))))
    for name in ("n1", "n2"):
        checks = (Check("gpu_count", "gpu", "error"),)
        scene.at(3, NodeHealth(name, "c1", 60.0, 8, 8, checks, "gpu", f"{name}-0", {"rack": "r0"}, "H100"), "agent/x")
    scene.run(3.5)
    assert {c.action for c in scene.commands} == {"open_ticket"}
    assert {incident.scope.rollout_id for incident in scene.incidents} == {"a1"}


def broken_alike(nodes: int, minute: float = 5, *, racks: int = 4) -> Repairs:
    """Return a scene with so many racks, in the first of which so many nodes break alike, one after the other."""
    scene = Repairs(40, racks=racks)
    for number in range(nodes):
        scene.fault(minute + number / 10, f"n{number}", "119", check="driver_responds")
    return scene


def resets(scene: Repairs) -> list[str | None]:
    return [command.node for command in scene.commands if command.action == "reset_device"]


def test_what_nodes_share_goes_on_when_the_one_leaves_whose_command_it_waited_for() -> None:
    scene = Repairs(40, racks=4, answers={"block_new_work": "silent"})
    scene.fault(5, "n0", "119", check="driver_responds").run(5.05)
    scene.answers.clear()
    for number in (1, 2):
        scene.fault(5 + number / 10, f"n{number}", "119", check="driver_responds")
    scene.act(6, "n0", "uncordon").run(6.2)
    assert [c.node for c in scene.commands if c.action == "open_ticket"] == ["n1"]
    assert scene.run(120).standing() == {}


def test_a_node_that_passes_its_test_is_no_part_of_what_the_others_share() -> None:
    answers = {"validate": "failed", "reboot": "silent"}
    scene = Repairs(40, racks=4, answers=answers).fault(5, "n0", "119", check="driver_responds")
    while "reboot" not in scene.done("n0"):
        scene.run(scene.minute + 0.2)
    scene.answers.clear()
    for number in (1, 2):
        scene.fault(scene.minute + number / 10, f"n{number}", "119", check="driver_responds")
    scene.run(scene.minute + 0.5)
    assert [len(incident.scope.nodes) for incident in scene.standing().values()] == [3]
    scene.fault(16, "n3", "119", check="driver_responds").run(16.1)
    assert scene.commands[-1].action == "validate", "only a test can tell what is wrong with the first one"
    scene.run(17)
    assert "n0" not in scene.standing()["n1"].scope.nodes
    assert scene.run(180).standing() == {}


def test_when_the_one_that_is_tried_breaks_anew_the_others_are_left_alone_for_longer() -> None:
    scene = broken_alike(4)
    while not resets(scene):
        scene.run(scene.minute + 0.2)
    tried = resets(scene)[0]
    assert tried is not None
    again = scene.minute
    scene.fault(again + 0.1, tried, "119", check="ecc", gpu=3).run(again + 0.3)
    (shared,) = scene.standing().values()
    assert set(shared.scope.nodes) == {"n0", "n1", "n2", "n3"}
    assert resets(scene.run(again + 25)) == [tried]
    assert scene.run(again + 180).standing() == {}


def test_when_the_one_that_is_tried_is_taken_away_another_one_is_tried() -> None:
    scene = broken_alike(4)
    while not resets(scene):
        scene.run(scene.minute + 0.2)
    tried, away = resets(scene)[0], scene.minute
    assert tried is not None
    scene.gone.add(tried)
    scene.act(away, tried, "remove").run(away + 1)
    (shared,) = scene.standing().values()
    assert set(shared.scope.nodes) == {"n0", "n1", "n2", "n3"} - {tried}
    assert scene.run(away + 180).standing() == {}


# --- when the one that is tried is of no use ---------------------------------------------------------------


def test_what_nodes_share_does_not_wait_for_one_that_a_person_keeps_for_days() -> None:
    scene = broken_alike(4, racks=1).act(7, "n0", "cordon").run(240)
    assert set(scene.standing()) == {"n0"}
    assert scene.standing()["n0"].waits_for == "kept by ann"
    assert set(resets(scene)) == {"n1", "n2", "n3"}


def test_a_person_who_holds_one_node_holds_up_nothing_that_is_about_the_others() -> None:
    scene = broken_alike(4).control(1, "hold", nodes=("n0",)).run(240)
    assert "open_ticket" in [command.action for command in scene.commands], "people hear of what they share"
    assert set(scene.standing()) == {"n0"}
    assert set(resets(scene)) == {"n1", "n2", "n3"}


def test_when_nothing_helps_the_one_that_is_tried_another_one_is_tried() -> None:
    scene = broken_alike(4, racks=1)
    scene.answers |= dict.fromkeys(("reset_device", "reboot", "power_cycle"), "failed")
    while not scene.standing() or "all steps were taken" not in (scene.standing()["n0"].waits_for or ""):
        scene.run(scene.minute + 1)
    scene.answers.clear()
    scene.run(scene.minute + 240)
    assert set(scene.standing()) == {"n0"}, "that one is a person's"


def test_a_node_that_a_person_puts_back_while_it_is_tried_shows_nothing_of_the_others() -> None:
    scene = broken_alike(4)
    scene.answers["reset_device"] = "silent"
    while not resets(scene):
        scene.run(scene.minute + 0.2)
    scene.act(scene.minute, "n0", "uncordon").run(scene.minute + 1)
    assert "n0 is well again" not in {incident.closed_because for incident in scene.incidents}


def test_a_roll_out_of_which_nobody_says_that_it_is_over_is_over_after_its_window() -> None:
    scene = broken_alike(4)
    names = tuple(f"n{number}" for number in range(20))
    scene.at(2, PlatformRollout("r1", "c1", "driver", "2.0", "started", Scope(nodes=names))).run(600)
    assert resets(scene) == []
    assert scene.run(1600).standing() == {}


# --- large domains ---------------------------------------------------------------------------------------


def turn_bad(desk: Desk, name: str) -> str | None:
    """Let a node of the cluster turn bad, put it into what it shares with others, and return that incident's name."""
    trait = Trait(f"e-{name}", "xid:79:0", "xid:79", "gpu.off_bus", "hardware", "root", 90, desk.now_ms, f"e-{name}")
    facts = NodeFacts(name, "c1", desk.now_ms, "available", False, 8, 8, 60_000, 0)
    fleet.keep(desk, NodeCard("c1", name, facts=facts, traits=(trait,)))
    shared = common.shared_by(desk, name, trait)
    if shared is not None and desk.node(name).incident is None:
        common.joined(desk, shared, name)
    return desk.node(name).incident


def test_what_more_nodes_share_than_one_incident_lists_is_another_one() -> None:
    desk = Desk("c1", MappingProxyType({}), T0, load_policy())
    names = [f"n{number}" for number in range(MEMBERS_MAX + 40)]
    of_node = {name: found for name in names if (found := turn_bad(desk, name)) is not None}
    incidents = {name: desk.incident(name) for name in of_node.values()}
    assert len(incidents) == 2
    for name, found in of_node.items():
        incident = incidents[found]
        assert incident is not None
        assert name in incident.members
        assert len(incident.members) <= MEMBERS_MAX


def test_of_a_very_large_cluster_no_more_nodes_need_to_turn_bad_than_are_counted() -> None:
    desk = Desk("c1", MappingProxyType({}), T0, load_policy())
    desk.put(ScopeCount("c1", "cluster", nodes=100_000))
    found = [turn_bad(desk, f"n{number}") for number in range(300)]
    assert found[2] is None
    assert found[-1] is not None


def test_a_large_node_that_is_gone_allows_no_more_gpus_of_small_ones_to_be_out() -> None:
    desk = Desk("c1", MappingProxyType({}), T0, load_policy())
    facts = NodeFacts("big", "c1", T0, "available", False, 72, 72, 60_000, 0)
    for number in range(4):
        fleet.keep(desk, NodeCard("c1", f"n{number}", facts=replace(facts, node=f"n{number}", gpus_total=8)))
    fleet.keep(desk, NodeCard("c1", "big", facts=facts))
    fleet.keep(desk, replace(desk.node("big"), facts=replace(facts, state="removed")))
    fleet.keep(desk, replace(desk.node("n0"), excluded=tuple(range(8))))
    assert fleet.over_cap(desk, desk.node("n1"), device=True) == "cap of cluster: 8 of at most 8 GPUs are out"
