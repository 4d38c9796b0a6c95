"""Of several machines that show a fault it is the one that the job points at."""

from __future__ import annotations

from faultlens.events import JobResized, Slot, Stalled
from tests.unit.scenes import ILLEGAL, LAUNCH, PEER, TRACE, Run, Scene, at

CRASH = "*** Process received signal ***\nSignal: Segmentation fault (11)"
OWN = ("app.exception", "supported", None, "do_not_retry")


def gang() -> Scene:
    return Scene().node("n1", "n2", "n3").job("j", "n1", "n2", "n3", gpus=range(8))


def broken_on_two(scene: Scene) -> Scene:
    """Let a GPU of n3 break before one of n2."""
    return scene.fault(9.2, "n3", "xid", "79", 0).fault(9.5, "n2", "xid", "95", 4)


def test_it_is_where_the_rank_ran_that_never_came_to_the_collective() -> None:
    scene = broken_on_two(gang()).alive("j", 1, 9)
    scene.alive("j", 9, 10, stalled=Stalled(at(9.6), (12,)))
    assert scene.end(10, "j").run(30).told("j")[2] == "n2/4"


def test_it_is_where_the_rank_ran_that_broke_first() -> None:
    scene = broken_on_two(gang()).exit(9.8, "j", 12, "n2", LAUNCH, device=4)
    assert scene.exit(9.9, "j", 0, "n1", PEER).end(10, "j").run(30).told("j")[2] == "n2/4"


def test_it_is_the_peer_that_most_ranks_miss() -> None:
    scene = broken_on_two(gang())
    for rank, node in ((0, "n1"), (1, "n1"), (17, "n3")):
        scene.exit(9.8, "j", rank, node, PEER.replace("n1", "n2"))
    assert scene.exit(9.9, "j", 13, "n2", PEER.replace("n1", "n3")).end(10, "j").run(30).told("j")[2] == "n2/4"


def test_it_is_the_node_that_the_scheduler_names() -> None:
    scene = broken_on_two(gang())
    scene.end(10, "j", source="scheduler/s", reason="NODE_FAIL", message="node n2 not responding")
    assert scene.run(30).told("j")[2] == "n2/4"


def test_a_fault_from_before_a_long_run_yields_to_a_newer_one() -> None:
    scene = Scene().node("n1", "n2", since=-60, until=90).fault(-40, "n1", "xid", "95", 1)
    scene.job("j", "n1", "n2", gpus=range(8)).alive("j", 1, 60)
    scene.fault(59.8, "n2", "xid", "79", 5)
    assert scene.exit(60, "j", 0, "n1", PEER.replace("n1", "n9")).end(60.1, "j").run(90).told("j")[2] == "n2/5"


def test_an_error_that_ranks_on_sound_devices_print_as_well_is_the_programs_own() -> None:
    mistake = TRACE + "pydantic_core.ValidationError: 1 validation error for TrainConfig"
    scene = gang().fault(9.99, "n1", "xid", "74", 3)
    for rank in range(4):
        scene.exit(10, "j", rank, "n1", mistake, device=rank)
    assert scene.end(10.1, "j").run(30).verdict("j").cause.cause_class == "user"


def test_no_link_makes_a_process_crash_by_itself() -> None:
    scene = gang().fault(9.5, "n1", "nic", "link_down").exit(10, "j", 3, "n1", CRASH, device=3, signal=11)
    assert scene.exit(10.1, "j", 8, "n2", PEER).end(10.2, "j").run(30).verdict("j").cause.code == "app.crash"


# --- what a job brings along -----------------------------------------------------------------------------


def meets(scene: Scene, name: str, user: str, *, number: int, minute: float, node: str) -> Scene:
    """Let an attempt of a job meet an illegal access on GPU 1 of a node, and end by it."""
    if number == 1:
        scene.job(name, node, minute=minute, user=user)
    else:
        scene.attempt(name, node, minute=minute, number=number)
    scene.fault(minute + 5, node, "xid", "31", 1)
    scene.exit(minute + 5.1, name, 1, node, ILLEGAL, number=number, device=1)
    return scene.end(minute + 5.2, name, number=number)


def fleet() -> Scene:
    return Scene().node("n1", "n2", until=120)


def test_a_device_that_does_it_to_two_users_is_broken() -> None:
    scene = meets(fleet(), "a", "ann", number=1, minute=0, node="n1")
    assert (
        meets(scene, "b", "bob", number=1, minute=20, node="n1").run(120).told("b")[0] == "gpu.compute.repeated_fault"
    )


def test_a_job_that_does_it_on_other_devices_too_accuses_none() -> None:
    scene = meets(fleet(), "a", "ann", number=1, minute=0, node="n1")
    meets(scene, "a", "ann", number=2, minute=10, node="n2")
    assert meets(scene, "b", "bob", number=1, minute=20, node="n1").run(120).told("b")[0] == "app.illegal_access"


def told_later() -> Run:
    scene = meets(fleet(), "a", "ann", number=1, minute=0, node="n1")
    meets(scene, "b", "bob", number=1, minute=20, node="n1")
    return meets(scene, "b", "bob", number=2, minute=40, node="n2").run(120)


def test_what_the_next_attempt_shows_amends_the_verdict_on_the_one_before() -> None:
    run = told_later()
    assert run.told("b")[0] == "app.illegal_access"
    assert run.statuses("b")[-1] == "amended"


def test_the_last_words_of_nodes_that_a_job_lost_and_outlived_say_nothing_of_its_end() -> None:
    scene = Scene().node("n1", "n2", "n3", until=90).job("j", "n1", "n2", "n3", gpus=range(8))
    scene.exit(10, "j", 0, "n1", TRACE + "ValueError: bad shape", device=0)
    gpus = tuple(range(8))
    left, gone = (Slot("n2", gpus), Slot("n3", gpus)), (Slot("n1", gpus),)
    scene.say(10.2, JobResized("j", 1, left, gone), "launcher/l").steps("j", 11, 40)
    run = scene.exit(40.1, "j", 9, "n2", "Killed", exit_code=137, signal=9, reason="oom_killed").end(40.2, "j").run(90)
    assert run.verdict("j").cause.code == "app.oom.host"
