"""What the bridge tells of jobs as the real controllers of JobSet, LeaderWorkerSet and Kubeflow Trainer run them.

Recorded by tests/drills/controllers.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import pytest
import zstandard

from tests.unit.kubernetes_world import START_MS, Lab

RECORDED: Final = Path(__file__).parents[1] / "data" / "kubernetes" / "controllers.jsonl.zst"
KINDS: Final = frozenset({"TrainJob", "JobSet", "LeaderWorkerSet", "Job", "StatefulSet"})
# Kinds are watched each by itself: what is told of one may come so much after what was told of another.
BEHIND_MS: Final = 700


def recorded() -> list[dict[str, Any]]:
    lines = zstandard.decompress(RECORDED.read_bytes()).splitlines()
    return sorted((json.loads(line) for line in lines), key=lambda entry: int(entry["ms"]))


def bridged(entries: Iterable[dict[str, Any]], restarts_every: int = 10_000) -> Lab:
    """Return the bridge after it saw all of it, started anew now and then."""
    lab = Lab(watched=KINDS)
    second = 0.0
    for number, entry in enumerate(entries, 1):
        second = max(second, (entry["ms"] - START_MS) / 1_000)
        (lab.loses if entry.get("gone") else lab.sees)(entry["kind"], entry["object"], second)
        lab.waits(second)
        if number % restarts_every == 0:
            lab.restarts()
    for later in (10, 700):
        lab.waits(second + later)
    return lab


def ends(lab: Lab) -> list[tuple[str, int, str, str | None]]:
    return sorted((e["job_id"], e["attempt"], e["outcome"], e.get("reason")) for e in lab.of("job.ended"))


@pytest.fixture(scope="module")
def lab() -> Lab:
    return bridged(recorded())


def test_each_of_them_is_one_job_with_the_attempts_that_there_were_and_their_reasons(lab: Lab) -> None:
    assert {e["job_id"] for e in lab.of("job.submitted")} == {
        "drill/gang", "drill/once", "drill/serve", "drill/stopped", "drill/train",
    }  # fmt: skip
    assert [end for end in ends(lab) if end[0] != "drill/serve"] == [
        ("drill/gang", 1, "failed", "Error"),
        ("drill/gang", 2, "succeeded", "AllJobsCompleted"),
        ("drill/once", 1, "failed", "OOMKilled"),
        ("drill/stopped", 1, "cancelled", "Deleted"),
        ("drill/train", 1, "succeeded", "AllJobsCompleted"),
    ]


def test_a_group_whose_worker_failed_ends_with_that_and_is_made_anew(lab: Lab) -> None:
    first = next(e for e in lab.of("job.ended") if e["job_id"] == "drill/serve" and e["attempt"] == 1)
    assert (first["outcome"], first["exit_code"]) == ("failed", 139)
    whole = [e["attempt"] for e in lab.of("job.started") if e["job_id"] == "drill/serve"]
    ended = {e["attempt"] for e in lab.of("job.ended") if e["job_id"] == "drill/serve"}
    assert len(whole) == 3
    assert len(set(whole) - ended) == 2


def test_a_pod_that_its_job_replaced_is_a_loss_that_the_attempt_survives(lab: Lab) -> None:
    resized = [e for e in lab.of("job.resized") if e["job_id"] == "drill/train"]
    assert [[slot["ranks"] for slot in e["lost"]] for e in resized] == [[[0]], []]


def test_no_two_pods_of_an_attempt_have_the_same_rank(lab: Lab) -> None:
    ranks: dict[tuple[str, int], list[int]] = {}
    for told in lab.of("job.allocated"):
        for slot in told["allocation"]:
            ranks.setdefault((told["job_id"], told["attempt"]), []).extend(slot["ranks"])
    assert ranks["drill/gang", 1] == ranks["drill/gang", 2][::-1] == [0, 1]
    assert sorted(ranks["drill/serve", 2]) == [0, 1]
    assert all(len(set(held)) == len(held) for held in ranks.values())


def test_pods_may_be_seen_before_what_made_them(lab: Lab) -> None:
    def late(entry: dict[str, Any]) -> int:
        return int(entry["ms"]) + (BEHIND_MS if entry["kind"] in KINDS else 0)

    behind = bridged(sorted(recorded(), key=late))
    assert ends(behind) == ends(lab)
    assert {e["job_id"] for e in behind.of("job.submitted")} == {e["job_id"] for e in lab.of("job.submitted")}


@pytest.mark.parametrize("every", [1, 7])
def test_a_bridge_that_is_started_anew_in_between_tells_the_same(lab: Lab, every: int) -> None:
    assert ends(bridged(recorded(), restarts_every=every)) == ends(lab)
