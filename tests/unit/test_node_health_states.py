"""Which state a node is in and since when; who is silent, and who only seems to be."""

from __future__ import annotations

from typing import Any

import pytest

from faultlens.events import Check, NodeActed, NodeHealth, Scope
from tests.unit.scenes import MISTAKE, Scene

ONE = Scope(nodes=("n1",))
WELL = (-10, "available")


def states(scene: Scene, until: float = 40) -> list[tuple[float, str]]:
    return scene.run(until).states("n1")


def test_a_node_is_blocked_by_a_cordon_drained_by_a_drain_and_available_when_both_are_lifted() -> None:
    scene = Scene().node("n1", until=40).act(5, "n1", "cordon").act(8, "n1", "drain").act(15, "n1", "uncordon")
    assert states(scene) == [WELL, (5, "blocked"), (8, "draining"), (15, "available")]


def test_a_return_that_is_told_late_does_not_lift_what_somebody_did_after_it() -> None:
    back = NodeActed("n1", "c1", "uncordon", "faultlens", planned=False, command_id="c-1")
    scene = Scene().node("n1", until=40).act(5, "n1", "cordon", actor="faultlens", command_id="c-0")
    scene.say(10, back, "bridge/x", arrives=15).act(12, "n1", "cordon").act(20, "n1", "uncordon")
    assert states(scene) == [WELL, (5, "blocked"), (20, "available")]


@pytest.mark.parametrize("status", ["fail", "timeout", "error", "missing"])
def test_a_check_that_fails_or_does_not_know_degrades_the_node_until_it_passes(status: str) -> None:
    scene = Scene().node("n1", until=4).node("n1", since=5, until=9, failing={"driver_responds": status})
    assert states(scene.node("n1", since=10)) == [WELL, (5, "degraded"), (10, "available")]


@pytest.mark.parametrize("status", ["warn", "off"])
def test_a_check_that_warns_or_is_declared_off_does_not(status: str) -> None:
    assert states(Scene().node("n1", failing={"driver_responds": status})) == [WELL]


def test_a_check_that_is_no_longer_reported_is_missing_until_it_is_reported_again() -> None:
    few = NodeHealth("n1", "c1", 60, 8, 8, (Check("gpu_count", "gpu", "pass"),), boot_id="n1-b1")
    scene = Scene().node("n1", until=4).say(5, few, "agent/n1").say(6, few, "agent/n1").node("n1", since=7)
    assert states(scene) == [WELL, (5, "degraded"), (7, "available")]


def test_another_version_of_the_agent_may_check_less() -> None:
    few = NodeHealth("n1", "c1", 60, 8, 8, (Check("gpu_count", "gpu", "pass"),), boot_id="n1-b1", agent_version="2")
    assert states(Scene().node("n1", until=4).say(5, few, "agent/n1"), 6) == [WELL]


def test_a_node_is_blocked_until_it_has_passed_its_validation() -> None:
    def report(minute: float, status: str) -> None:
        check = Check("validation", "gpu", status)  # type: ignore[arg-type]
        scene.say(minute, NodeHealth("n1", "c1", 300, 8, 8, (check,), boot_id="b"), "agent/n1")

    scene = Scene()
    for minute, status in ((-10, "missing"), (-5, "missing"), (0, "pass"), (5, "pass")):
        report(minute, status)
    assert states(scene, 10) == [(-10, "blocked"), (0, "available")]


def test_after_a_person_put_a_node_back_only_what_still_fails_returns() -> None:
    for failing, after in (({}, []), ({"ecc": "fail"}, [(16, "degraded")])):
        scene = Scene().node("n1", since=-10, until=4).node("n1", since=5, failing={"ecc": "fail"}, until=15)
        scene.node("n1", since=16, until=40, failing=failing).act(10, "n1", "cordon").act(15.5, "n1", "uncordon")
        assert states(scene) == [WELL, (5, "degraded"), (10, "blocked"), (15.5, "available"), *after]


def test_a_reboot_by_hand_takes_the_node_down_until_its_first_report_of_the_new_boot() -> None:
    scene = Scene().node("n1", until=5).act(4.9, "n1", "reboot", planned=True).node("n1", since=12, boot_id="n1-b2")
    assert states(scene.node("n2", "n3")) == [WELL, (4.9, "down"), (12, "available")]


def test_a_node_that_was_removed_stays_so_until_it_is_added_and_is_not_missed_before_it_reports() -> None:
    scene = Scene().node("n1", until=5).act(4.9, "n1", "remove", planned=True).act(20, "n1", "add")
    scene.node("n1", since=28, until=40).node("n2", "n3", until=40)
    assert states(scene) == [WELL, (4.9, "removed"), (20, "available")]


def test_a_removed_node_whose_reports_go_on_is_there_again() -> None:
    scene = Scene().node("n1", until=20).act(5, "n1", "remove")
    assert states(scene) == [WELL, (5, "removed"), (8, "available")]


# --- silence ---------------------------------------------------------------------------------------------


def gap(*nodes: str, since: float = 6, until: float = 19, scene: Scene | None = None) -> Scene:
    """Let nodes miss their reports for a time."""
    return (scene or Scene()).node(*nodes, until=since - 1).node(*nodes, since=until + 1, until=40)


def test_a_node_that_misses_three_intervals_is_silent_until_it_reports_again() -> None:
    scene = gap("n1").node("n2", "n3", until=40)
    assert states(scene) == [WELL, (8, "silent"), (20, "available")]
    assert scene.run(40).states("n2") == [WELL]


def test_where_all_fall_silent_at_once_nobody_is_whenever_in_its_interval_each_one_reports() -> None:
    names = [f"m{number}" for number in range(12)]
    scene = Scene()
    for number, name in enumerate(names):
        for since, until in ((-10, 9.99), (16, 30)):
            scene.node(name, since=since + number / 12, until=until)
    run = scene.run(30)
    assert {state for name in names for _, state in run.states(name)} == {"available"}


@pytest.mark.parametrize(("silent", "others"), [(("n1",), ()), (("n1", "n2"), ()), (("n1", "n2"), ("n3",))])
def test_where_most_fall_silent_at_once_it_is_we_who_are_blind(silent: Any, others: Any) -> None:
    assert states(gap(*silent).node(*others, until=40)) == [WELL]


def test_of_two_nodes_one_may_be_silent() -> None:
    assert states(gap("n1").node("n2", until=40)) == [WELL, (8, "silent"), (20, "available")]


def test_nodes_of_another_cluster_do_not_vouch_for_ours() -> None:
    other = Scene("c2").node("x1", "x2", until=40)
    assert gap("n1").run(40, other).states("n1") == [WELL]


def test_time_that_passes_after_the_last_record_makes_nobody_silent() -> None:
    assert states(Scene().node("n1", "n2", until=5), 90) == [WELL]


def test_a_silent_node_with_an_open_condition_was_silent_until_it_came_back() -> None:
    scene = Scene().node("n1", until=2).node("n1", since=3, until=5, failing={"ecc": "fail"})
    scene.node("n1", since=20, until=40, failing={"ecc": "fail"}).node("n2", "n3", until=40)
    run = scene.run(40)
    assert run.states("n1") == [WELL, (3, "degraded"), (8, "silent"), (20, "degraded")]
    good, total, _ = run.counted("node_availability")
    assert total - good == 12 * 60_000


# --- maintenance -----------------------------------------------------------------------------------------


def test_maintenance_begins_and_ends_when_that_was_said() -> None:
    scene = Scene().node("n1", "n2", until=40).maintenance(5.25, scope=ONE).maintenance(15.25, "ended", scope=ONE)
    run = scene.run(40)
    assert run.states("n1") == [WELL, (5.25, "maintenance"), (15.25, "available")]
    assert run.states("n2") == [WELL]


def test_a_node_in_maintenance_is_not_silent_and_what_it_is_after_that_begins_when_maintenance_ends() -> None:
    scene = Scene().node("n1", until=6).node("n2", "n3", until=40)
    scene.maintenance(5, scope=ONE).maintenance(20, "ended", scope=ONE)
    assert states(scene) == [WELL, (5, "maintenance"), (20, "silent")]


def test_a_condition_from_within_maintenance_degrades_the_node_only_after_it() -> None:
    scene = Scene().node("n1", until=9).node("n1", since=10, until=40, failing={"ecc": "fail"})
    scene.maintenance(5, scope=ONE).maintenance(20, "ended", scope=ONE)
    assert states(scene) == [WELL, (5, "maintenance"), (20, "degraded")]


def test_scheduled_maintenance_is_nothing_yet() -> None:
    assert states(Scene().node("n1").maintenance(5, "scheduled", scope=ONE)) == [WELL]


# --- faults ----------------------------------------------------------------------------------------------


def test_a_fault_degrades_until_a_later_report_passes_the_check_that_clears_it() -> None:
    scene = Scene().node("n1").fault(3.5, "n1", "xid", "48", 1)
    assert states(scene) == [WELL, (3.5, "degraded"), (4, "available")]


@pytest.mark.parametrize("arrives", [None, 20])
def test_a_check_that_is_off_does_not_vouch_for_what_it_would_clear(arrives: float | None) -> None:
    scene = Scene().node("n1", until=40, failing={"ecc": "off"}).fault(3.5, "n1", "xid", "48", 1, arrives=arrives)
    assert states(scene)[-1] == (3.5, "degraded")


def test_an_unknown_code_and_one_of_another_family_hold_the_node() -> None:
    assert states(Scene().node("n1").fault(5, "n1", "xid", "999", 1)) == [WELL, (5, "degraded")]
    scene = Scene().node("n1", gpu_family="A100").fault(5, "n1", "xid", "136", 1)
    assert states(scene) == [WELL, (5, "degraded")]


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"synthetic": True}, id="synthetic"),
        pytest.param({"arrives": 20}, id="passed-since"),
        pytest.param({"boot_id": "n1-b0", "arrives": 20}, id="of-an-earlier-boot"),
    ],
)
def test_a_fault_that_is_not_true_now_changes_no_state(more: dict[str, Any]) -> None:
    assert states(Scene().node("n1", until=40).fault(3, "n1", "xid", "48", 1, **more)) == [WELL]


def booted(minute: float, **more: Any) -> Scene:
    """Return a node of a family that loses its links at every boot, which restarts and says so."""
    scene = Scene().node("n1", until=4, gpu_family="GB200")
    scene.node("n1", since=6, until=40, boot_id="n1-b2", gpu_family="GB200", **more)
    return scene.fault(minute, "n1", "nvlink", "link_down", 1)


def test_what_a_family_prints_at_every_boot_is_nothing_just_after_one_and_a_fault_later() -> None:
    assert states(booted(7.5)) == [WELL]
    assert states(booted(20.5)) == [WELL, (20.5, "degraded"), (21, "available")]


def test_what_is_still_there_at_the_next_report_after_a_boot_is_a_fault() -> None:
    assert (6, "degraded") in states(booted(7.5, failing={"nvlink": "fail"}))


def test_a_boot_message_under_a_job_is_a_fault() -> None:
    scene = booted(7.5).job("j", "n1", minute=6.2)
    assert (7.5, "degraded") in states(scene)


def test_a_job_on_a_node_that_never_reports_is_judged_all_the_same() -> None:
    scene = Scene().node("n2", "n3").job("j", "n1").exit(5, "j", 0, "n1", MISTAKE).end(5.1, "j")
    run = scene.run(30)
    assert run.told("j") == ("app.exception", "supported", None, "do_not_retry")
    assert run.states("n1") == []
