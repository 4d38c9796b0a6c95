"""Attempts that only a stub is left of, or less."""

from __future__ import annotations

from faultlens.arrival import Entry
from faultlens.codec import encode
from faultlens.events import JobEnded, JobLabelled, JobProgress, JobResized, Slot
from faultlens.local_pump import Pump
from streams.job_lifecycle.record import LOSSES_MAX, JobRecord
from streams.runtime.task import Task
from tests.unit.scenes import MISTAKE, UNKNOWN, Scene, at_ms, play, roles


def played(scene: Scene, until: float) -> Task:
    """Return the lane of the jobs after a scene."""
    tasks = [Task(role) for role in roles()]
    pump = Pump(tasks, lambda _record, _at_ms: None)
    for number, (arrived_ms, event) in enumerate(scene.events(), 1):
        pump.take(Entry("scene", number, encode(event), event, arrived_ms=arrived_ms), event)
    pump.finish(at_ms(until))
    return next(task for task in tasks if task.role.name == "job")


def looping(attempts: int) -> Scene:
    """Let a GPU end the first attempt of a job, and a mistake each of those after it, nine minutes apart."""
    scene = Scene().node("n1", "n2", until=200).job("j", "n1").steps("j", 0.5, 5)
    scene.fault(4.99, "n1", "xid", "79", 0).exit(5, "j", 0, "n1", UNKNOWN).end(5.1, "j")
    for number in range(2, attempts + 1):
        minute = 9.0 * number
        scene.attempt("j", "n2", minute=minute, number=number).steps("j", minute + 1, minute + 5, number=number)
        scene.exit(minute + 6, "j", 0, "n2", MISTAKE, number=number).end(minute + 6.1, "j", number=number)
    return scene


def test_what_an_attempt_recovered_from_is_charged_to_it_also_when_only_a_stub_of_that_is_left() -> None:
    scene = looping(10).say(105, JobLabelled("j", 3, "user", "app.data", by="jo"), "operator/jo")
    run = scene.run(120)
    assert run.told("j", 3)[0] == "app.data"
    assert "recovery user" in run.ledger("j", 3)


def test_a_late_word_on_an_attempt_of_which_only_a_stub_is_left_gives_it_no_second_final_verdict() -> None:
    scene = Scene().node("n1", "n2", until=100).job("j", "n1").exit(5, "j", 0, "n1", MISTAKE).end(5.1, "j")
    for number in range(2, 10):
        scene.attempt("j", "n2", minute=9.0 * number, number=number)
        scene.end(9.0 * number + 8, "j", "preempted", number=number, source="scheduler/s")
    scene.attempt("j", "n2", minute=90, number=10)
    days = 24.0 * 60
    run = scene.end(5.1, "j", source="bridge/b", arrives=9 * days).run(10 * days)
    assert run.statuses("j") == ["provisional", "final"]


def test_a_label_on_a_job_that_nobody_ever_heard_of_is_forgotten_in_the_end() -> None:
    label = JobLabelled("tpyo", 1, "hardware", "gpu.off_bus", by="jo")
    for days, kept in ((300, 1), (500, 0)):
        assert len(played(Scene().say(1, label, "operator/jo"), days * 24 * 60).states) == kept


def test_an_attempt_is_not_folded_before_the_final_verdict_on_a_loss_that_it_survived() -> None:
    scene = Scene().node("n1", "n2", until=90).job("j", "n1", "n2", workload="inference")
    scene.fault(1.9, "n2", "xid", "79", 1)
    scene.say(2, JobResized("j", 1, (Slot("n1", (0, 1)),), (Slot("n2", (0, 1)),)), "launcher/l")
    scene.end(2.5, "j", "succeeded")
    for number in range(2, 11):
        scene.attempt("j", "n1", minute=2.5, number=number)
    assert scene.run(60).told("j", loss=1)[0] == "gpu.off_bus"


def test_of_more_losses_than_are_kept_each_has_had_its_final_verdict() -> None:
    scene = Scene().node("n1", "n2", until=20).job("j", "n1", "n2")
    for minute in range(10, 1000, 12):
        scene.say(minute, JobResized("j", 1, (Slot("n1", (0, 1)),), (Slot("n2", (0, 1)),)), "launcher/l")
        scene.say(minute + 6, JobResized("j", 1, (Slot("n1", (0, 1)), Slot("n2", (0, 1))), ()), "launcher/l")
    state = next(kept.state for _, kept in played(scene, 1100).states.items())
    assert isinstance(state, JobRecord)
    attempt = state.attempts[1]
    assert (len(attempt.losses), attempt.losses[-1].number, attempt.overflow) == (LOSSES_MAX, 83, 83 - LOSSES_MAX)
    run = scene.run(1100)
    assert all(run.statuses("j", loss=number).count("final") == 1 for number in range(1, 84))


DAY = 24 * 60


def fleet(days: int) -> Scene:
    return Scene().node("n1", until=20).node("n1", since=30, until=days * DAY, every=60)


def test_a_word_that_comes_a_week_late_opens_no_attempt_that_was_forgotten() -> None:
    scene = fleet(9).job("j", "n1").steps("j", 0.5, 5).end(5.1, "j", "succeeded")
    scene.say(4.7, JobProgress("j", 1, 9, 30.0), "launcher/l", arrives=9 * DAY)
    assert len(played(scene, 12 * DAY).states) == 0


def test_an_attempt_that_speaks_again_after_weeks_gets_a_final_word_on_its_end() -> None:
    scene = fleet(9).job("j", "n1").steps("j", 0.5, 5).alive("j", 1, 6).alive("j", 8 * DAY, 8 * DAY + 100)
    scene.exit(8 * DAY + 100, "j", 0, "n1", MISTAKE).end(8 * DAY + 100, "j")
    run = scene.run(9 * DAY)
    assert run.statuses("j") == ["provisional", "final", "withdrawn", "provisional", "amended"]
    assert run.told("j")[0] == "app.exception"


def test_an_end_that_is_told_again_after_hundreds_of_exits_takes_back_no_newer_one() -> None:
    scene = Scene().node("n1", until=60).job("j", "n1").exit(10, "j", 0, "n1", MISTAKE)
    scene.end(10.1, "j", source="scheduler/s").end(10.2, "j", "cancelled", source="scheduler/s")
    for rank in range(300):
        scene.exit(10.3, "j", 100 + rank, "n1")
    told = scene.events()
    first = next(event for _, event in told if isinstance(event.data, JobEnded))
    assert play([*told, (at_ms(12), first)], 60).statuses("j") == ["provisional", "withdrawn"]
