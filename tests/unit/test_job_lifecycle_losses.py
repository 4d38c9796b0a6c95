"""Nodes and devices that an elastic job loses and survives, and those that it gives back."""

from __future__ import annotations

from collections.abc import Sequence

from faultlens.events import JobLabelled, JobResized, Slot
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
