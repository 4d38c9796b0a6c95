"""Nodes and devices that an elastic job loses and survives, and those that it gives back."""

from __future__ import annotations

from collections.abc import Sequence

from faultlens import topics
from faultlens.events import JobAllocated, JobLabelled, JobProgress, JobResized, JobStarted, JobSubmitted, Slot
from faultlens.internal import Released
from tests.unit.scenes import MISTAKE, PEER, Run, Scene

LOST_GPU = ("gpu.off_bus", "established", "n2/1", "retry_elsewhere")


def elastic(steps_until: float = 10) -> Scene:
    """Return a job on three nodes that makes steps."""
    scene = Scene().node("n1", "n2", "n3", "n4", until=60)
    return scene.job("j", "n1", "n2", "n3").steps("j", 0.5, steps_until)


def slots(*nodes: str, gpus: Sequence[int] = (0, 1)) -> tuple[Slot, ...]:
    return tuple(Slot(node, tuple(gpus)) for node in nodes)


def resized(scene: Scene, minute: float, kept: tuple[Slot, ...], lost: tuple[Slot, ...] = ()) -> Scene:
    return scene.say(minute, JobResized("j", 1, kept, lost), "launcher/l")


def test_a_survived_loss_has_a_verdict_of_its_own_and_the_job_its_success() -> None:
    scene = resized(elastic(20).fault(10, "n2", "xid", "79", 1), 10.1, slots("n1", "n3"), slots("n2"))
    run = scene.end(20, "j", "succeeded").run(40)
    assert run.told("j", loss=1) == LOST_GPU
    assert run.revisions("j") == []
    assert run.counted("job_success") == (1, 1, {})


def test_the_same_nodes_lost_again_within_five_minutes_are_one_loss() -> None:
    scene = elastic(20).fault(10, "n2", "xid", "79", 1)
    for minute in (10.1, 12.0):
        resized(scene, minute, slots("n1", "n3"), slots("n2"))
    run = scene.end(20, "j", "succeeded").run(40)
    assert run.told("j", loss=1) == LOST_GPU
    assert run.revisions("j", loss=2) == []


def test_another_device_of_the_same_node_is_another_loss() -> None:
    scene = elastic(20).fault(10, "n2", "xid", "79", 1).fault(12, "n2", "xid", "48", 0)
    resized(scene, 10.1, (*slots("n1", "n3"), *slots("n2", gpus=(0,))), slots("n2", gpus=(1,)))
    resized(scene, 12.1, slots("n1", "n3"), slots("n2", gpus=(0,)))
    run = scene.end(20, "j", "succeeded").run(40)
    assert run.told("j", loss=1) == LOST_GPU
    assert run.told("j", loss=2) == ("gpu.memory.uncorrectable", "established", "n2/0", "retry_elsewhere")


def failing_after(minute: float, text: str = PEER, steps_until: float = 10) -> Run:
    scene = resized(elastic(steps_until).fault(10, "n2", "xid", "79", 1), 10.1, slots("n1", "n3"), slots("n2"))
    return scene.exit(minute, "j", 0, "n1", text).end(minute + 0.1, "j").run(60)


def test_a_failure_inside_the_losses_window_takes_it_over_even_after_some_steps() -> None:
    for steps_until in (10.0, 12.0):
        run = failing_after(12, steps_until=steps_until)
        assert run.told("j") == LOST_GPU
        assert run.statuses("j", loss=1) == ["provisional", "withdrawn"]
        assert run.counted("job_success") == (0, 1, {"hardware": 1})
        assert run.ledger("j")["lost_work hardware"] > 0


def test_a_failure_long_after_the_loss_is_judged_by_itself() -> None:
    run = failing_after(25, MISTAKE, steps_until=25)
    assert run.told("j", loss=1) == LOST_GPU
    assert run.told("j") == ("app.exception", "supported", None, "do_not_retry")


def test_a_failure_that_the_scheduler_takes_back_gives_the_loss_its_verdict_again_and_one_final_only() -> None:
    scene = resized(elastic(9).fault(10, "n2", "xid", "79", 1), 10.1, slots("n1", "n3"), slots("n2"))
    run = scene.end(11, "j").end(11.2, "j", "cancelled", source="scheduler/s", arrives=25).run(60)
    assert run.statuses("j")[-1] == "withdrawn"
    assert run.told("j", loss=1) == LOST_GPU
    assert run.statuses("j", loss=1).count("withdrawn") == 1


def test_a_node_that_was_given_back_is_held_no_more() -> None:
    scene = resized(elastic(30), 10, slots("n1", "n2")).alive("j", 1, 30)
    scene.fault(20, "n3", "xid", "79", 1)
    scene.job("next", "n3", minute=15, user="bob").exit(20.1, "next", 0, "n3", PEER).end(20.2, "next")
    run = scene.end(30, "j", "failed", MISTAKE).run(60)
    assert run.told("next") == ("gpu.off_bus", "established", "n3/1", "retry_elsewhere")
    assert run.told("j") == ("app.exception", "supported", None, "do_not_retry")
    assert run.revisions("j", loss=1) == []
    assert not any("xid 79" in item.what for item in run.verdict("j").evidence)


def test_a_node_that_joins_later_is_held_from_then_on() -> None:
    scene = resized(elastic(10), 5, slots("n1", "n2", "n3", "n4")).fault(10, "n4", "xid", "79", 0)
    run = scene.exit(10.1, "j", 6, "n4", PEER).end(10.2, "j").run(40)
    assert run.told("j") == ("gpu.off_bus", "established", "n4/0", "retry_elsewhere")


def test_a_label_on_a_loss_overrules_the_verdict_on_it_and_not_the_one_on_the_end() -> None:
    scene = resized(elastic(20).fault(10, "n2", "xid", "79", 1), 10.1, slots("n1", "n3"), slots("n2"))
    scene.exit(20, "j", 0, "n1", MISTAKE).end(20.2, "j")
    label = JobLabelled("j", 1, "platform", "platform.power", by="jo", loss=1)
    run = scene.say(30, label, "operator/jo").run(40)
    assert run.told("j", loss=1)[:2] == ("platform.power", "established")
    assert run.told("j")[0] == "app.exception"


# --- words that come in another order --------------------------------------------------------------------


def lost_on_n4(scene: Scene) -> tuple[str, str, str | None, str]:
    scene.fault(19.99, "n4", "xid", "79", 0).exit(20, "j", 2, "n4", PEER).end(20.1, "j")
    return scene.run(60).told("j")


def test_of_two_changes_of_size_the_later_one_holds_though_it_arrives_first() -> None:
    scene = resized(elastic(20), 6, slots("n1", "n4"))
    scene.say(5, JobResized("j", 1, slots("n1", "n2"), ()), "launcher/l", arrives=7)
    assert lost_on_n4(scene) == ("gpu.off_bus", "established", "n4/0", "retry_elsewhere")


def test_the_parts_of_a_change_of_size_add_up_in_any_order() -> None:
    scene = elastic(20)
    for part, nodes, arrives in ((2, ("n3", "n4"), 5.1), (1, ("n1", "n2"), 5.2)):
        data = JobResized("j", 1, slots(*nodes), (), part=part, parts=2)
        scene.say(5, data, "launcher/l", arrives=arrives)
    assert lost_on_n4(scene) == ("gpu.off_bus", "established", "n4/0", "retry_elsewhere")
    assert sum(scene.run(60).ledger("j").values()) == round(6 * 5 + 8 * 15.1, 2)


def test_an_allocation_that_is_heard_after_a_change_of_size_says_what_was_held_before_it() -> None:
    scene = Scene().node("n1", "n2", until=60).job("j").say(0.5, JobStarted("j", 1), "launcher/l")
    scene.say(0, JobAllocated("j", 1, "c1", slots("n1", "n2")), "launcher/l", arrives=11)
    run = resized(scene.steps("j", 0.5, 20), 10, slots("n1")).end(20, "j", "succeeded").run(60)
    assert sum(run.ledger("j").values()) == 4 * 10 + 2 * 10
    assert "n2" not in {s.key for s in run.sent if s.topic == topics.ALLOCATIONS}


def test_a_node_that_was_lost_got_back_and_given_back_is_held_no_more() -> None:
    scene = resized(elastic(30), 10, slots("n1", "n3"), slots("n2"))
    resized(resized(scene, 12, slots("n1", "n2", "n3")), 14, slots("n1", "n3"))
    run = scene.end(30, "j", "succeeded").run(60)
    told = [s.event.data for s in run.sent if s.topic == topics.ALLOCATIONS and s.key == "n2"]
    assert isinstance(told[-1], Released)
    assert not told[-1].failed


def test_a_second_word_on_an_earlier_loss_charges_nothing_to_a_later_one() -> None:
    scene = elastic(10).fault(9.9, "n2", "xid", "79", 1).fault(15.9, "n3", "xid", "119", 0)
    resized(scene, 10.1, slots("n1", "n3", "n4"), slots("n2"))
    for step, minute in enumerate((13, 13.5, 14, 14.5, 15, 15.5, 19, 19.5, 20), 21):
        scene.say(minute, JobProgress("j", 1, step, step_time_s=30), "launcher/l")
    resized(scene, 16, slots("n1", "n4"), slots("n3")).end(20, "j", "succeeded")
    once = scene.run(60).ledger("j")
    scene.say(10.1, JobResized("j", 1, slots("n1", "n3", "n4"), slots("n2")), "bridge/k", arrives=16.5)
    assert scene.run(60).ledger("j") == once
    assert once["recovery hardware"] > 0
    assert once["recovery driver"] > 0


# --- allocations that name no devices --------------------------------------------------------------------


def unnamed(workload: str = "training", submitted: float = -1) -> Scene:
    """Return a job of 16 GPUs on two nodes of which nobody says which ones."""
    data = JobSubmitted("j", "c1", workload, 16, 2, user="ann")  # type: ignore[arg-type]
    scene = Scene().node("n1", "n2", until=60).say(-1, data, "bridge/k", arrives=submitted)
    scene.say(0, JobAllocated("j", 1, "c1", (Slot("n1"), Slot("n2"))), "launcher/l")
    return scene.say(0.5, JobStarted("j", 1), "launcher/l").steps("j", 0.5, 20)


def test_a_job_whose_devices_nobody_names_keeps_its_share_of_them_when_it_loses_a_node() -> None:
    scene = resized(unnamed(), 10, (Slot("n1"),), (Slot("n2"),)).end(20, "j", "succeeded")
    assert sum(scene.run(60).ledger("j").values()) == 16 * 10 + 8 * 10


def test_what_was_submitted_counts_though_it_is_heard_after_the_allocation() -> None:
    for submitted in (-1, 5, 25):
        run = unnamed("inference", submitted).end(20, "j", text=MISTAKE).run(60)
        assert run.ledger("j") == {"startup": 8.0, "productive": 312.0}


def test_a_node_that_fell_silent_before_it_was_lost_ends_no_job_that_goes_on_without_it() -> None:
    scene = Scene().node("n1", "n3", "n4", until=90).node("n2", until=9).job("j", "n1", "n2").steps("j", 0.5, 15)
    resized(scene, 15, slots("n1"), slots("n2")).steps("j", 15, 80, every=3)
    run = scene.end(80, "j", "succeeded").run(90)
    assert run.revisions("j") == []
    assert run.told("j", loss=1)[0] == "host.lost.silent"


def test_a_job_of_which_only_some_devices_are_named_holds_as_many_as_it_asked_for() -> None:
    scene = Scene().node("n1", "n2", until=60).say(-1, JobSubmitted("j", "c1", "training", 12, 2), "bridge/slurm")
    scene.say(0, JobAllocated("j", 1, "c1", (*slots("n1", gpus=range(8)), Slot("n2"))), "bridge/slurm")
    run = scene.say(0.5, JobStarted("j", 1), "bridge/slurm").end(20, "j", "succeeded").run(60)
    assert sum(run.ledger("j").values()) == 12 * 20
