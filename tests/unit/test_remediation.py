"""The rules of remediation, one scene each."""

from __future__ import annotations

from types import MappingProxyType

import pytest
from msgspec.structs import replace

from faultlens.clock import moment_of
from faultlens.events import (
    NodeActed,
    NodeFault,
    PlatformMaintenance,
    RemediationCommand,
    RemediationResult,
    Scope,
)
from streams.remediation import Trouble, load_policy
from streams.remediation.desk import Desk
from streams.remediation.record import CONTROLS_MAX, Trait
from streams.remediation.telling import keep
from tests.unit.repair_scenes import T0, Repairs

TAKEN_OUT_AND_BACK = ["block_new_work", "drain", "reset_device", "validate", "return_to_service"]


def test_a_fault_is_blocked_evacuated_repaired_verified_and_returned() -> None:
    scene = Repairs().fault(5, "n3", "119", check="driver_responds").run(30)
    assert scene.done("n3") == TAKEN_OUT_AND_BACK
    assert scene.standing() == {}
    assert scene.incidents[-1].closed_because == "repaired by reset_device, verified by fresh reports"
    assert {command.node for command in scene.commands} == {"n3"}
    assert [command.rung for command in scene.commands] == [0, 1, 2, 3, 4]


def test_new_work_is_kept_away_within_two_seconds_of_a_fatal_fault() -> None:
    scene = Repairs().fault(5, "n3", "79", check="gpu_count", driver_version="570.1").run(10)
    assert (scene.minute_of("n3", "block_new_work") - 5) * 60 < 2


def test_what_is_not_fatal_is_evacuated_when_it_has_lasted_since_it_was_first_seen() -> None:
    scene = Repairs()
    for minute in range(5, 20, 2):
        scene.fault(minute, "n3", "109", check="ib_links", gpu=minute % 8)
    scene.run(20)
    assert scene.minute_of("n3", "block_new_work") < 5.1
    assert 15 <= scene.minute_of("n3", "drain") < 15.2


def test_a_fault_that_comes_back_within_a_day_begins_above_what_did_not_last() -> None:
    scene = Repairs().fault(5, "n3", "119", check="driver_responds").fault(40, "n3", "119", check="driver_responds")
    scene.run(70)
    again = scene.done("n3")[len(TAKEN_OUT_AND_BACK) :]
    assert again[:3] == ["block_new_work", "drain", "reboot"]


def test_a_report_from_the_next_boot_is_fresh_although_it_is_heard_before_the_restart_ended() -> None:
    """Whoever restarts the node says so a moment later; the next report may be minutes away."""
    scene = Repairs(answers={"reboot": "silent"})
    scene.fault(5, "n3", "79", check="gpu_count").run(6)
    reboot = scene.commands[-1]
    scene.failing["n3"].clear()
    scene.boots["n3"] += 1
    scene.run(7.2)
    scene.gone.add("n3")
    ended = RemediationResult(reboot.command_id, "c1", "succeeded", "scene", moment_of(T0 + 437_000), "n3")
    scene.at(7.3, ended, "actuator/scene").run(9.5)
    assert scene.done("n3") == ["block_new_work", "drain", "reboot", "validate"]


def test_one_that_returns_again_and_again_is_told_to_people_and_stays_out() -> None:
    scene = Repairs()
    for minute in (5, 40, 80):
        scene.fault(minute, "n3", "119", check="driver_responds")
    scene.run(130)
    assert "open_ticket" in scene.done("n3")
    assert scene.done("n3").count("return_to_service") == 2
    assert "approval of replace" in (scene.standing()["n3"].waits_for or "")


def test_a_step_that_needs_approval_is_taken_when_a_person_approves_it() -> None:
    scene = Repairs(answers={"reset_device": "failed", "reboot": "failed", "power_cycle": "failed"})
    scene.heals = {"replace"}
    scene.fault(5, "n3", "119", check="driver_responds").run(40)
    waits = scene.standing()["n3"].waits_for or ""
    assert waits.startswith("approval of replace: faultlens approve ")
    scene.control(41, "approve", command_ids=(waits.rpartition(" ")[2],)).run(60)
    assert "replace" in scene.done("n3")
    assert scene.commands[-1].action == "return_to_service"


@pytest.mark.parametrize("asked_first", [True, False])
def test_a_pause_does_not_use_up_the_time_that_people_have_to_approve(asked_first: bool) -> None:
    scene = Repairs(answers={"reset_device": "failed", "reboot": "failed", "power_cycle": "failed"})
    scene.heals = {"replace"}
    scene.fault(5, "n3", "119", check="driver_responds").run(40 if asked_first else 5)
    while "power_cycle" not in scene.done("n3"):
        scene.run(scene.minute + 0.2)
    scene.control(scene.minute, "pause").run(scene.minute + 200)
    scene.control(scene.minute, "resume").run(scene.minute + 2)
    assert (scene.standing()["n3"].waits_for or "").startswith("approval of replace: ")
    scene.control(scene.minute, "approve", nodes=("n3",)).run(scene.minute + 60)
    assert "replace" in scene.done("n3")


def test_a_node_that_waits_for_a_person_is_looked_at_now_and_then_whatever_else_breaks() -> None:
    scene = Repairs(2, answers={"validate": "failed"}).fault(5, "n1", "119", check="driver_responds").run(205)
    assert scene.done("n1")[-2:] == ["validate", "validate"], "nothing but its failed validation is wrong with it"
    assert scene.standing()["n1"].waits_for == "a person: all steps were taken"
    scene.fault(206, "n1", "95", check="ecc").run(210)
    steps = scene.steps()
    scene.run(310)
    assert scene.steps() - steps < 300, "a report a minute, and what follows from each"


def test_a_ticket_that_nobody_answers_holds_up_nothing_that_gets_worse_meanwhile() -> None:
    scene = Repairs(2, answers={"open_ticket": "silent"})
    worn = NodeFault("n1", "c1", "power", "brake", "bmc", boot_id="n1-0", gpu_family="H100")
    scene.at(5, worn, "agent/n1").run(10)
    assert scene.done("n1") == ["open_ticket"]
    scene.fault(11, "n1", "79", check="gpu_count").run(30)
    assert scene.minute_of("n1", "block_new_work") < 11.1
    assert scene.done("n1")[-1] == "return_to_service"


def test_a_node_that_an_old_return_puts_back_while_something_is_wrong_with_it_is_taken_again() -> None:
    scene = Repairs(2, answers={"return_to_service": "silent"}).fault(5, "n1", "119", check="driver_responds").run(20)
    old = next(command for command in scene.commands if command.action == "return_to_service")
    scene.answers["validate"] = "failed"
    scene.fault(21, "n1", "95", check="ecc").run(60)
    assert scene.done("n1")[-2:] == ["validate", "open_ticket"]
    late = RemediationResult(old.command_id, "c1", "succeeded", "scene", moment_of(T0), "n1")
    before = len(scene.at(61, late, "actuator/scene").done("n1"))
    scene.run(70)
    assert scene.done("n1")[before:] == ["block_new_work", "drain"]


def test_a_node_that_was_only_to_come_back_and_fails_its_test_is_told_to_a_person() -> None:
    scene = Repairs(2, answers={"validate": "failed", "drain": "silent"}).fault(5, "n1", "109").run(30)
    drain = next(command for command in scene.commands if command.action == "drain")
    scene.act(31, "n1", "uncordon").run(40)
    assert scene.standing() == {}
    late = RemediationResult(drain.command_id, "c1", "succeeded", "scene", moment_of(T0), "n1")
    scene.answers["drain"] = "succeeded"
    before = len(scene.at(41, late, "actuator/scene").done("n1"))
    scene.run(80)
    steps = ["validate", "block_new_work", "drain", "validate", "validate", "open_ticket"]
    assert scene.done("n1")[before : before + 6] == steps


def test_a_node_that_is_held_for_a_command_that_nobody_here_gave_is_left_to_whoever_did() -> None:
    acted = NodeActed("n1", "c1", "cordon", "faultlens", planned=False, command_id="of-another-cluster")
    assert Repairs(2).at(5, acted, "bridge/kubernetes").run(60).commands == []


@pytest.mark.parametrize(("carried_out", "told", "returns"), [(40, 40.5, 1), (40, 90, 1), (24, 31, 0), (24, 90, 1)])
def test_a_node_that_a_lost_command_took_after_its_incidents_end_is_brought_back(
    carried_out: float, told: float, returns: int
) -> None:
    scene = Repairs(2, answers={"drain": "silent"}).fault(5, "n1", "109").run(23)
    block, before = scene.commands[0], len(scene.done("n1"))
    scene.act(30, "n1", "uncordon").run(31)
    acted = NodeActed("n1", "c1", "cordon", "faultlens", planned=False, command_id=block.command_id)
    scene.at(told, acted, "bridge/kubernetes", happened=carried_out).run(120)
    assert scene.done("n1")[before:].count("return_to_service") == returns, "what a bridge tells late is over"
    assert scene.standing() == {}


@pytest.mark.parametrize(("after", "ends"), [(-0.3, False), (0.3, True)])
def test_a_bridges_late_word_of_our_own_return_is_no_persons_will(after: float, ends: bool) -> None:
    back = Repairs(2).fault(5, "n1", "79", check="gpu_count").run(40).minute_of("n1", "return_to_service") + 0.4
    scene = Repairs(2).fault(5, "n1", "79", check="gpu_count").run(back)
    assert scene.standing() == {}
    scene.fault(back + 0.1, "n1", "95", check="ecc")
    told = NodeActed("n1", "c1", "uncordon", "root", planned=False)
    scene.at(back + 0.5, told, "bridge/slurm", happened=back + after).run(back + 1)
    assert ("put back by root" in {incident.closed_because for incident in scene.incidents}) == ends


@pytest.mark.parametrize("says_for_whom", [True, False])
def test_a_return_of_which_only_the_bridge_tells_is_one(says_for_whom: bool) -> None:
    scene = Repairs(2, answers={"return_to_service": "silent"}).fault(5, "n1", "79", check="gpu_count").run(9)
    back = scene.commands[-1]
    assert back.action == "return_to_service"
    named = back.command_id if says_for_whom else None
    told = NodeActed("n1", "c1", "uncordon", "faultlens" if says_for_whom else "root", planned=False, command_id=named)
    scene.at(9.5, told, "bridge/slurm").run(60)
    assert scene.done("n1").count("return_to_service") == 1
    assert scene.incidents[-1].closed_because == "repaired by reboot, verified by fresh reports"


def returned_late(**answers: str) -> tuple[Repairs, RemediationCommand, float]:
    """Return a scene in which a first return was given up, and a second one brought the node back, at this minute."""
    scene = Repairs(2, answers={"return_to_service": "silent"}).fault(5, "n1", "79", check="gpu_count").run(10)
    old = scene.commands[-1]
    assert old.action == "return_to_service"
    scene.answers.clear()
    minute = 10.0
    while scene.standing():
        minute += 0.1
        scene.run(minute)
    scene.answers |= answers
    return scene, old, minute


def test_a_node_that_an_old_return_put_back_during_its_verification_is_taken_again_when_it_fails_that() -> None:
    scene, old, minute = returned_late(validate="failed")
    scene.fault(minute + 1, "n1", "79", check="gpu_count")
    before = scene.done("n1").count("validate")
    while scene.done("n1").count("validate") == before:
        minute += 0.1
        scene.run(minute)
    late = RemediationResult(old.command_id, "c1", "succeeded", "scene", moment_of(T0), "n1")
    done = len(scene.done("n1"))
    scene.at(minute, late, "actuator/scene").run(minute + 2)
    assert scene.done("n1")[done : done + 2] == ["block_new_work", "drain"]


@pytest.mark.parametrize(("back_first", "returns"), [(True, 1), (False, 0)])
def test_what_bridges_tell_late_counts_in_the_order_in_which_it_was_done(back_first: bool, returns: int) -> None:
    scene, _, minute = returned_late()
    block, back = scene.commands[0], scene.commands[-1]
    done = len(scene.done("n1"))
    late = RemediationResult(block.command_id, "c1", "succeeded", "scene", moment_of(T0), "n1")
    scene.at(minute + 0.2, late, "actuator/scene")
    for action, command in (("uncordon", back), ("cordon", block)):
        told = NodeActed("n1", "c1", action, "faultlens", planned=False, command_id=command.command_id)  # type: ignore[arg-type]
        happened = minute + (0.1 if (action == "uncordon") == back_first else 0.3)
        scene.at(minute + 0.5 + (action == "cordon") / 10, told, "bridge/kubernetes", happened=happened)
    scene.run(minute + 30)
    assert scene.done("n1")[done:].count("return_to_service") == returns
    assert scene.standing() == {}


def test_a_node_that_a_person_cordoned_stays_theirs_though_a_command_of_ours_is_told_to_hold_it_too() -> None:
    scene = Repairs(2).fault(5, "n1", "79", check="gpu_count").act(6, "n1", "cordon").run(6.1)
    told = NodeActed("n1", "c1", "cordon", "faultlens", planned=False, command_id=scene.commands[0].command_id)
    scene.at(6.2, told, "bridge/slurm").run(90)
    assert "return_to_service" not in scene.done("n1")
    scene.act(91, "n1", "uncordon").run(92)
    assert scene.standing() == {}


def test_a_held_node_is_never_acted_on_and_is_seen_to_when_it_is_released() -> None:
    scene = Repairs().control(1, "hold", nodes=("n3",)).fault(5, "n3", "79", check="gpu_count").run(200)
    assert scene.done("n3") == []
    assert scene.standing()["n3"].waits_for == "held by ann: because"
    scene.control(201, "release", nodes=("n3",)).run(230)
    assert scene.done("n3")[:3] == ["block_new_work", "drain", "reboot"]


def test_a_hold_is_not_forgotten_over_many_other_words() -> None:
    scene = Repairs(2).control(1, "hold", nodes=("n1",))
    for number in range(CONTROLS_MAX):
        scene.control(2 + number / 100, "release" if number % 2 else "acknowledge", nodes=(f"x{number}",))
    assert scene.fault(10, "n1", "79", check="gpu_count").run(30).done("n1") == []


def test_a_pause_of_a_pool_holds_up_what_is_disruptive_there_and_nothing_else() -> None:
    scene = Repairs().control(1, "pause", pools=("gpu",)).fault(5, "n3", "79", check="gpu_count").run(30)
    assert scene.done("n3") == ["block_new_work"]
    scene.control(31, "resume", pools=("gpu",)).run(32)
    assert scene.done("n3")[1] == "drain"


def test_a_person_who_puts_a_node_back_ends_its_incident_and_the_same_failing_check_opens_none() -> None:
    scene = Repairs(answers={"drain": "silent"}).fault(5, "n3", "79", check="gpu_count")
    scene.act(10, "n3", "uncordon").run(60)
    before = [c.action for c in scene.commands if c.node == "n3"]
    assert before == ["block_new_work", "drain"]
    assert scene.standing() == {}
    assert scene.incidents[-1].closed_because == "put back by ann"
    scene.fault(61, "n3", "95", check="ecc").run(63)
    assert scene.done("n3")[2:3] == ["block_new_work"], "another fault is another matter"


def test_a_program_that_puts_a_node_back_does_not_make_its_faults_looked_past() -> None:
    for actor in ("slurm", "karpenter"):
        scene = Repairs(answers={"drain": "silent"}).fault(5, "n3", "79", check="gpu_count")
        scene.act(10, "n3", "uncordon", actor).run(11)
        assert "n3" in scene.standing()


def test_a_node_in_trouble_that_a_program_puts_back_is_taken_again() -> None:
    scene = Repairs(answers={"reset_device": "failed", "reboot": "failed", "power_cycle": "failed"})
    scene.fault(5, "n3", "119", check="driver_responds").run(40)
    before = len(scene.done("n3"))
    scene.act(41, "n3", "uncordon", "karpenter").run(60)
    assert scene.done("n3")[before:] == ["block_new_work", "drain"]


def test_what_the_first_report_after_a_persons_uncordon_finds_of_the_same_part_was_so_before() -> None:
    """The kernel tells of a fault at once, a report up to a minute later; a fault after that is another matter."""

    def told(*, code: str, uncordoned: float, check: str) -> list[str]:
        scene = Repairs().act(3, "n3", "cordon").fault(5.1, "n3", code, check=check).act(uncordoned, "n3", "uncordon")
        return scene.run(60).done("n3")

    assert told(code="79", uncordoned=5.5, check="gpu_count") == []
    assert told(code="79", uncordoned=5.5, check="ecc") == []
    assert told(code="79", uncordoned=5.5, check="driver_responds") == []
    assert told(code="79", uncordoned=5.5, check="ib_links")[:1] == ["block_new_work"]
    late = Repairs().act(3, "n3", "cordon").fault(5.1, "n3", "79").act(5.5, "n3", "uncordon")
    late.fault(8, "n3", "95", check="ecc")
    assert late.run(60).done("n3")[:1] == ["block_new_work"]


def test_what_others_took_out_is_left_to_them() -> None:
    scene = Repairs().act(3, "n3", "cordon").fault(5, "n3", "79", check="gpu_count").run(60)
    assert scene.done("n3") == []
    assert scene.standing()["n3"].waits_for == "kept by ann"


def test_one_node_of_ten_may_be_out_and_the_next_one_waits_for_it() -> None:
    scene = Repairs(10).fault(5, "n3", "79", check="gpu_count").fault(6, "n7", "119", check="driver_responds").run(60)
    assert scene.done("n7")[0] == "block_new_work"
    assert scene.minute_of("n7", "block_new_work") > scene.minute_of("n3", "return_to_service")


def test_of_nodes_that_wait_for_room_the_worst_is_the_next_however_long_the_others_wait() -> None:
    scene = Repairs(10).fault(5, "n3", "79", check="gpu_count")
    scene.fault(6, "n7", "109").fault(7, "n8", "95", check="ecc").fault(8, "n2", "109").run(90)
    taken = [c.node for c in scene.commands if c.action == "block_new_work"]
    assert taken == ["n3", "n8", "n7", "n2"], "of two that are as bad the one that has waited longer"


def test_planned_maintenance_counts_in_the_budget() -> None:
    scene = Repairs(10)
    scope = Scope(nodes=("n0",))
    scene.at(2, PlatformMaintenance("m1", "c1", planned=True, phase="started", scope=scope))
    scene.fault(5, "n3", "79", check="gpu_count").run(30)
    assert scene.done("n3") == []
    scene.at(31, PlatformMaintenance("m1", "c1", planned=True, phase="ended", scope=scope)).run(40)
    assert scene.done("n3")[0] == "block_new_work"


def test_a_gpu_that_its_driver_says_has_recovered_calls_for_nothing() -> None:
    scene = Repairs().fault(5, "n3", "94", driver_version="570.1")
    scene.fault(5.01, "n3", "154", subcode="none", driver_version="570.1").run(40)
    assert scene.done("n3") == []


def test_the_step_that_the_driver_announces_is_the_one_that_is_taken() -> None:
    scene = Repairs().fault(5, "n3", "119", check="driver_responds", driver_version="570.1")
    scene.fault(5.01, "n3", "154", subcode="node_reboot_required", driver_version="570.1").run(20)
    assert scene.done("n3")[:3] == ["block_new_work", "drain", "reboot"]


def test_an_injected_fault_calls_for_nothing() -> None:
    assert Repairs().fault(5, "n3", "79", synthetic=True).run(30).commands == []


def test_a_code_that_nobody_knows_keeps_the_node_for_a_person() -> None:
    scene = Repairs().fault(5, "n3", "999").run(60)
    assert scene.done("n3") == ["block_new_work", "open_ticket"]
    assert scene.standing()["n3"].waits_for == "a person: all steps were taken"


def test_commands_that_nobody_answers_expire_are_tried_again_and_lead_to_nothing_stronger() -> None:
    scene = Repairs(answers=dict.fromkeys(("block_new_work", "drain", "open_ticket"), "silent"))
    scene.fault(5, "n3", "79", check="gpu_count").run(25)
    assert scene.done("n3")[:3] == ["block_new_work"] * 3
    assert len({command.command_id for command in scene.commands}) == len(scene.commands)


def test_a_machine_that_is_in_trouble_all_the_time_is_a_lemon_whatever_breaks() -> None:
    scene = Repairs()
    codes = (("119", "driver_responds"), ("95", "ecc"), ("74", "ib_links"), ("79", "gpu_count"), ("95", "ecc"))
    for number, (code, check) in enumerate(codes):
        scene.fault(5 + 60 * number, "n3", code, check=check, gpu=number)
    scene.run(290)
    assert scene.standing()["n3"].rule == "lemon"


def test_an_incident_that_is_what_it_was_again_within_a_millisecond_is_told_three_times() -> None:
    policy = load_policy()
    desk = Desk("c1", MappingProxyType({}), T0, policy)
    trait = Trait("e1", "k1", "xid:79", "gpu.off_bus", "hardware", "root", 90, T0, "e1")
    route = policy.route(Trouble("condition", trait.cause, trait.cause_class, severity=90))
    assert route is not None
    told = keep(desk, desk.begun("i1", route, trait, T0))
    other = keep(desk, replace(told, count=told.count + 1))
    keep(desk, replace(other, count=told.count))
    emits = desk.effects().emits
    assert len({emit.id for emit in emits}) == len(emits) == 3
