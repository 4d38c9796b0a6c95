"""What is kept of an attempt with more exits and observations than may be: what decides is among it."""

from __future__ import annotations

import pytest

from faultlens.clock import MINUTE_MS
from faultlens.events import DeviceRef, JobAlive, JobProgress, JobResized, RankExited, Slot, Stalled
from tests.unit.scenes import ILLEGAL, PEER, TRACE, UNKNOWN, WATCHDOG, Run, Scene, at, play

ECC = TRACE + "RuntimeError: CUDA error: uncorrectable ECC error encountered"
GANG = tuple(f"m{number}" for number in range(20))


def gang(first: str, ranks: int, last: str) -> Run:
    """Let so many ranks of a gang print one text within milliseconds, and the last one another six seconds later."""
    scene = Scene().node(*GANG, until=30).job("j", *GANG, gpus=(0,)).steps("j", 0.5, 10)
    for rank in range(ranks):
        scene.exit(10 + rank / 60_000, "j", rank, GANG[rank], first)
    return scene.exit(10.1, "j", 19, "m19", last).end(10.2, "j").run(30)


@pytest.mark.parametrize(("first", "last"), [(PEER.replace("n1", "m19"), UNKNOWN), ("UnexpectedAdmissionError", ECC)])
def test_what_one_rank_of_a_gang_says_decides_however_many_others_spoke_before_it(first: str, last: str) -> None:
    assert gang(first, 19, last).told("j") == gang(first, 5, last).told("j")


def test_the_last_words_of_nodes_that_were_outlived_crowd_out_none_of_the_end() -> None:
    scene = Scene().node("n1", "n2", "n3", until=80).job("j", "n1", "n2", "n3", gpus=range(8)).steps("j", 0.5, 10)
    for rank in range(8):
        scene.exit(10, "j", 8 + rank, "n2", ECC).exit(10.01, "j", 16 + rank, "n3", ECC)
    lost = tuple(Slot(node, tuple(range(8))) for node in ("n2", "n3"))
    scene.say(10.1, JobResized("j", 1, (Slot("n1", tuple(range(8))),), lost), "launcher/l")
    run = scene.exit(40, "j", 0, "n1", ILLEGAL).end(40.1, "j").run(80)
    assert run.told("j")[0] == "app.illegal_access"
    assert run.told("j", loss=1)[0] == "gpu.memory.uncorrectable"


def test_an_exit_that_is_told_again_after_hundreds_of_others_counts_once() -> None:
    scene = Scene().node("n1", "n2", until=40).job("j", "n1", "n2").steps("j", 0.5, 10).exit(10, "j", 0, "n1", PEER)
    for rank in range(260):
        scene.exit(10.01, "j", 100 + rank, "n2")
    told = scene.end(10.2, "j").events()
    first = next(one for one in told if isinstance(one[1].data, RankExited))
    again = play([*told, (first[0] + MINUTE_MS, first[1])], 40)
    assert again.verdict("j").evidence == play(told, 40).verdict("j").evidence


def test_faults_that_a_job_went_on_after_crowd_out_none_that_ended_it() -> None:
    nodes = GANG[:4]
    scene = Scene().node(*nodes, until=60).job("j", *nodes, gpus=range(8)).steps("j", 0.5, 40)
    for number in range(26):
        for node in nodes:
            scene.fault(1 + number / 2, node, "nic", "link_down", DeviceRef(link=f"mlx5_{number}"))
    scene.fault(39.99, "m0", "nic", "link_down", DeviceRef(link="mlx5_99"))
    run = scene.exit(40, "j", 8, "m1", PEER.replace("n1", "m0")).end(40.1, "j").run(60)
    assert run.told("j") == ("network.link.down", "established", "m0", "retry_elsewhere")


def test_a_step_that_is_told_again_does_not_end_a_stall() -> None:
    scene = Scene().node("n1", "n2", until=60).job("j", "n1", "n2").steps("j", 0.5, 10)
    scene.say(15, JobAlive("j", 1, interval_s=60, stalled=Stalled(at(10), (3,))), "launcher/l")
    scene.say(16, JobProgress("j", 1, 19, step_time_s=30.0), "launcher/l")
    run = scene.end(20, "j", text=WATCHDOG).run(60)
    assert run.told("j") == ("app.hang", "supported", None, "do_not_retry")


def stalled(scene: Scene, minute: float, since: float, arrives: float | None = None) -> Scene:
    data = JobAlive("j", 1, interval_s=60, stalled=Stalled(at(since), (3,)))
    return scene.say(minute, data, "launcher/l", arrives=arrives)


def test_a_stall_that_is_dated_a_little_later_each_time_is_one_stall() -> None:
    scene = Scene().node("n1", "n2", until=60).job("j", "n1", "n2").steps("j", 0.5, 10)
    for minute in range(20):
        stalled(scene, 13 + minute, 10.5 + minute / 600)
    run = scene.end(34, "j", text=WATCHDOG).run(60)
    assert [finding.kind for finding in run.findings("j")] == ["hang"]
    assert run.ledger("j")["stalled user"] == 23.5 * 4


def test_a_stall_that_is_told_after_the_step_that_ended_it_is_over() -> None:
    scene = Scene().node("n1", "n2", until=80).job("j", "n1", "n2").steps("j", 0.5, 50)
    run = stalled(scene, 13, 10.2, arrives=14).exit(50, "j", 0, "n1").end(50.1, "j").run(70)
    assert run.findings("j") == []
    assert run.told("j") == ("app.exception", "supported", None, "do_not_retry")


def test_an_error_that_is_dated_before_the_allocation_is_dated_by_its_exit() -> None:
    scene = Scene().node("n1", "n2", since=-120, until=60).job("j", "n1", "n2").steps("j", 0.5, 30)
    scene.fault(29.99, "n1", "xid", "79", 0).exit(30, "j", 0, "n1", UNKNOWN, first_error_at=at(-90))
    assert scene.end(30.1, "j").run(60).told("j")[:3] == ("gpu.off_bus", "established", "n1/0")
