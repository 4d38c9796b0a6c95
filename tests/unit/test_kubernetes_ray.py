"""What the bridge tells of RayJobs as a real KubeRay operator runs them (recorded by tests/drills/ray.py)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import zstandard

from producers.kubernetes.owners import end_of
from producers.kubernetes.reading import read_object
from tests.unit.kubernetes_world import START_MS, Lab

RECORDED: Final = Path(__file__).parents[1] / "data" / "kubernetes" / "ray.jsonl.zst"


def recorded() -> Iterator[dict[str, Any]]:
    for line in zstandard.decompress(RECORDED.read_bytes()).splitlines():
        yield json.loads(line)


@pytest.fixture(scope="module")
def lab() -> Lab:
    """Return the bridge after it saw all of it, started anew in between."""
    lab = Lab()
    entries = list(recorded())
    for number, entry in enumerate(entries):
        second = (entry["ms"] - START_MS) / 1_000
        (lab.loses if entry.get("gone") else lab.sees)(entry["kind"], entry["object"], second)
        if number % 7 == 0:
            lab.restarts()
    lab.waits((entries[-1]["ms"] - START_MS) / 1_000 + 700)
    return lab


def test_a_ray_job_is_one_job_of_its_cluster_s_devices_with_one_attempt_that_ends_as_ray_says(lab: Lab) -> None:
    asked = {s["job_id"]: (s["workload"], s["gpus"], s["nodes"]) for s in lab.of("job.submitted")}
    assert asked["drill/tune"] == ("training", 16, 3)
    told = {
        type_: [(e["attempt"], e.get("outcome")) for e in lab.of(type_) if e["job_id"] == "drill/tune"]
        for type_ in ("job.started", "job.ended")
    }
    assert told == {"job.started": [(1, None)], "job.ended": [(1, "succeeded")]}


def test_each_of_its_clusters_is_one_attempt_though_pods_of_the_first_are_seen_after_those_of_the_second(
    lab: Lab,
) -> None:
    ends = [(e["attempt"], e["outcome"]) for e in lab.of("job.ended") if e["job_id"] == "drill/again"]
    assert ends == [(1, "failed"), (2, "failed")]


def test_what_submits_a_ray_job_is_no_part_of_it_however_often_it_is_tried(lab: Lab) -> None:
    """Its retries ask about the same submission: the Ray job goes on, or is over, whatever becomes of them."""
    submitters = [e for e in recorded() if e["kind"] == "Pod" and "job-name" in e["object"]["metadata"]["labels"]]
    assert len({e["object"]["metadata"]["uid"] for e in submitters}) > 4
    assert lab.of("job.resized") == []
    # The head and its two workers are taken down with each cluster that failed, and nothing else ends.
    exits = [e for e in lab.of("job.rank_exited") if e["job_id"] == "drill/again"]
    assert {e["rank"] for e in exits} <= {0, 1, 2}


def test_an_operator_has_no_condition_that_would_say_the_end_of_a_ray_job() -> None:
    """Which is why its end is read from its deployment's status, and not as that of other jobs."""
    works = [read_object(e["kind"], json.dumps(e["object"]).encode()) for e in recorded() if e["kind"] == "RayJob"]
    over = [work for work in works if end_of(work) is not None]
    assert {work.status.job_deployment_status for work in over} == {"Complete", "Failed", "ValidationFailed"}
    assert all(not work.status.conditions for work in works)
