"""Inference jobs, whose attempts are replicas side by side: how much of the wanted capacity was there."""

from __future__ import annotations

from faultlens.arrival import Entry
from faultlens.codec import encode
from faultlens.events import JobPending, JobStarted
from faultlens.local_pump import Pump
from faultlens.local_roles import load_roles
from streams.job_lifecycle.record import ATTEMPTS_MAX, JobRecord
from streams.runtime.records import Sent
from streams.runtime.task import Task
from tests.unit.scenes import MISTAKE, Run, Scene, at, at_ms

MINUTE = 60_000


def service(replicas: int, until: float = 200) -> Scene:
    """A service whose replicas are allocated at 0 and ready at half a minute, each on a node of its own."""
    nodes = [f"n{number}" for number in range(1, replicas + 1)]
    scene = Scene().node(*nodes, until=until).job("s", workload="inference", replicas=replicas)
    for number, node in enumerate(nodes, 1):
        scene.attempt("s", node, number=number)
    return scene


def capacity(scene: Scene, until: float) -> tuple[float, float, dict[str, float]]:
    """Return ready and wanted replica-minutes, and the missing ones by cause."""
    good, total, causes = scene.run(until).counted("serving_capacity")
    return good / MINUTE, total / MINUTE, {cause: bad / MINUTE for cause, bad in causes.items()}


def test_capacity_is_wanted_from_the_submission_and_there_when_user_code_runs() -> None:
    good, total, causes = capacity(service(2), 100)
    assert (good, total) == (2 * 99.5, 2 * 101)
    assert causes == {"overhead": 2 * 1.5}


def test_a_replica_that_failed_is_missing_on_the_account_of_what_it_failed_of_until_another_is_ready() -> None:
    scene = service(2).exit(20, "s", 0, "n1", MISTAKE).end(20, "s", number=1)
    scene.attempt("s", "n1", minute=29.5, number=3)
    assert capacity(scene, 100)[2] == {"user": 10, "overhead": 3}


def test_replicas_beyond_the_wanted_ones_do_not_make_up_for_others() -> None:
    scene = service(1).node("n9").attempt("s", "n9", minute=10, number=2)
    assert capacity(scene, 60) == (59.5, 61, {"overhead": 1.5})


def test_a_service_that_was_ended_by_will_is_not_wanted_any_more() -> None:
    scene = service(1).end(30, "s", "cancelled")
    assert capacity(scene, 180) == (29.5, 31, {"overhead": 1.5})


def test_a_service_that_failed_and_is_not_restarted_within_an_hour_was_given_up() -> None:
    scene = service(1, until=30).exit(30, "s", 0, "n1", MISTAKE).end(30, "s")
    assert capacity(scene, 24 * 60)[2]["user"] == 60


def test_a_service_whose_next_replica_waits_to_be_placed_is_wanted_still() -> None:
    scene = service(1, until=30).exit(30, "s", 0, "n1", MISTAKE).end(30, "s")
    scene.say(31, JobPending("s", "Unschedulable", at(30)), "scheduler/s")
    assert capacity(scene, 5 * 24 * 60)[2]["user"] == 24 * 60 + 1


def test_other_jobs_have_no_capacity_to_serve() -> None:
    assert capacity(Scene().node("n1").job("j", "n1"), 100) == (0, 0, {})


def test_a_replica_that_runs_for_months_does_not_keep_those_that_failed_beside_it() -> None:
    """The record stays small, each replica has one final verdict, and a late word makes no second one."""
    count = 3 * ATTEMPTS_MAX
    scene = Scene().node("n1", "n2", until=30 * count, every=10).job("s", "n1", workload="inference", replicas=2)
    for number in range(2, count):
        scene.attempt("s", "n2", minute=30 * number, number=number)
        scene.exit(30 * number + 2, "s", 0, "n2", MISTAKE, number=number).end(30 * number + 2, "s", number=number)
    scene.say(30 * count, JobStarted("s", count // 2), "launcher/l")
    sent: list[Sent] = []
    pump = Pump([Task(role) for role in load_roles()], lambda record, _at_ms: sent.append(record))
    for line, (arrived_ms, event) in enumerate(scene.events(), 1):
        pump.take(Entry("scene", line, encode(event), event, arrived_ms=arrived_ms), event)
    pump.finish(at_ms(30 * count + 60))
    kept = next(
        kept.state for task in pump.tasks for _, kept in task.states.items() if isinstance(kept.state, JobRecord)
    )
    assert len(kept.attempts) <= ATTEMPTS_MAX
    assert kept.attempts[1].end is None
    assert count // 2 in kept.folded
    assert all(Run(sent).statuses("s", number).count("final") == 1 for number in range(2, count))
