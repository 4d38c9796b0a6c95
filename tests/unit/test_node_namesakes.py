"""Nodes of one name in several clusters: what was reported for one is no evidence against another's jobs."""

from __future__ import annotations

from pathlib import Path

from faultlens import topics
from faultlens.codec import encode
from faultlens.events import NodeState
from faultlens.internal import NodeEvidence
from faultlens.local import Places, replay
from faultlens.local_report import Run as Replayed
from faultlens.local_report import as_text
from faultlens.local_roles import load_roles
from faultlens.recordings import Recording
from streams.node_health.namesakes import NAMESAKES_MAX
from tests.unit.scenes import UNKNOWN, Run, Scene, at_ms


def failing(cluster: str, job: str, until: float = 30) -> Scene:
    scene = Scene(cluster).node("n1", "n2", until=until, every=5)
    scene.job(job, "n1").steps(job, 0.5, 10).exit(10, job, 0, "n1", UNKNOWN)
    return scene.end(10.1, job)


def told_of(run: Run, job_id: str) -> set[str]:
    found = [e for e in run.all(topics.EVIDENCE, NodeEvidence) if e.job_id == job_id]
    return {o.code for evidence in found for o in evidence.observations}


def test_a_fault_reported_for_one_cluster_convicts_no_job_on_a_node_of_that_name_in_another() -> None:
    ours, theirs = failing("c1", "ours"), failing("c2", "theirs").fault(9.99, "n1", "xid", "79", 0)
    run = ours.run(60, theirs)
    assert run.told("ours")[:3] != run.told("theirs")[:3]
    assert run.told("theirs") == ("gpu.off_bus", "established", "n1/0", "retry_elsewhere")
    assert "79" not in told_of(run, "ours")


def test_a_kernel_log_of_another_clusters_name_convicts_nobody_whichever_is_heard_first() -> None:
    for minute in (-5.0, 9.99):
        logged = Scene("typo").fault(minute, "n1", "xid", "79", 0).fault(9.99, "n1", "xid", "48", 0)
        run = failing("c1", "j").run(60, logged)
        assert told_of(run, "j") == set()
        assert run.told("j")[1:3] == ("assumed", None)


def test_boots_of_one_cluster_s_node_are_no_restarts_of_the_other_s() -> None:
    ours = Scene("c1").node("n1", until=30, boot_id="a").job("j", "n1").end(20, "j", "failed")
    theirs = Scene("c2").node("n1", until=30, boot_id="b")
    assert told_of(ours.run(60, theirs), "j") == set()


def test_each_cluster_has_its_own_node_state() -> None:
    ours, theirs = Scene("c1").node("n1", until=30), Scene("c2").node("n1", until=9)
    theirs.node("n1", since=10, until=30, failing={"gpu_count": "fail"})
    run = ours.run(31, theirs)
    states = {(s.cluster, s.state) for s in run.all(topics.NODE_STATES, NodeState) if s.node == "n1"}
    assert ("c1", "available") in states
    assert not {state for cluster, state in states if cluster == "c1"} - {"available", "silent"}
    assert len({state for cluster, state in states if cluster == "c2"}) > 1


def test_what_further_clusters_say_of_a_name_is_left_out_and_counted() -> None:
    scenes = [Scene(f"c{n}").fault(n / 10, "n1", "xid", "79", 0) for n in range(NAMESAKES_MAX + 5)]
    run = scenes[0].run(10, *scenes[1:])
    clusters = {s.cluster for s in run.all(topics.NODE_STATES, NodeState)}
    assert len(clusters) == NAMESAKES_MAX + 1


def test_a_replay_names_the_nodes_that_came_under_two_clusters_and_says_what_to_do(tmp_path: Path) -> None:
    told = [*failing("c1", "ours").events(), *Scene("typo").fault(9, "n1", "xid", "79", 0).events()]
    file = tmp_path / "events.jsonl"
    file.write_bytes(b"".join(encode(event) + b"\n" for _, event in told))
    tally = replay([Recording(str(file))], load_roles(), Places())
    assert tally.answer()["nodes_in_several_clusters"] == {"n1": ["c1", "typo"]}
    said = as_text(Replayed(tally, 1.0, None, None))
    assert "1 node name came under more than one cluster (n1 in c1, typo)" in said
    assert "--cluster" in said
    assert "--prefix" in said


def test_a_replay_names_the_nodes_whose_reports_ended_before_the_recording(tmp_path: Path) -> None:
    scene = Scene().node("n1", "removed", until=30).node("n2", until=300).act(31, "removed", "remove", planned=True)
    file = tmp_path / "events.jsonl"
    file.write_bytes(b"".join(encode(event) + b"\n" for _, event in scene.events()))
    assert replay([Recording(str(file))], load_roles(), Places()).stopped == {"n1": at_ms(30)}


def test_a_state_with_namesakes_goes_on_after_it_was_saved(tmp_path: Path) -> None:
    first = tmp_path / "first.jsonl"
    told = [*failing("c1", "ours").events(), *failing("c2", "theirs").events()]
    first.write_bytes(b"".join(encode(event) + b"\n" for _, event in told))
    places = Places(state=tmp_path / "state")
    replay([Recording(str(first))], load_roles(), places)
    later = tmp_path / "later.jsonl"
    later.write_bytes(b"".join(encode(e) + b"\n" for _, e in Scene("c2").fault(60, "n1", "xid", "79", 0).events()))
    tally = replay([Recording(str(later))], load_roles(), places)
    assert tally.namesakes == {"n1": ("c1", "c2"), "n2": ("c1", "c2")}
