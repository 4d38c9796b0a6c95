"""What failed last, as the command line lists it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from faultlens.cli import main
from faultlens.objectives import load_objectives
from faultlens.store import open_store
from slo.pages import Asked, answer

pytest.importorskip("chdb", reason="chDB is not installed (extra `store`)")
pytestmark = pytest.mark.store

STORY = Path(__file__).parents[2] / "examples" / "one-fault.jsonl"


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    assert not ended.value.code
    return capsys.readouterr().out


def test_failures_are_listed_with_whose_fault_they_were_and_narrowed_to_what_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = ("--store", f"chdb://{tmp_path / 'store'}")
    said(capsys, "replay", str(STORY), *store)
    (failure,) = json.loads(said(capsys, "failures", "--json", *store))
    assert (failure["class"], failure["code"], failure["node"]) == ("hardware", "gpu.off_bus", "node-0042")
    listed = said(capsys, "failures", "--class", "hardware", "--code", "gpu", "--node", "node-0042", *store)
    assert f"{failure['job_id']}/{failure['attempt']}" in listed
    assert "GPU lost from the bus on node-0042 (established)" in listed
    assert said(capsys, "failures", "--class", "user", *store) == "No failure is known.\n"


@pytest.mark.parametrize("job", ["1234+1", "east:1234_7"])
def test_tasks_of_an_array_and_components_of_a_heterogeneous_job_are_asked_for_as_slurm_names_them(
    job: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (played := tmp_path / "story.jsonl").write_text(STORY.read_text("utf-8").replace("llm-7", job), "utf-8")
    store = ("--store", f"chdb://{tmp_path / 'store'}")
    said(capsys, "replay", str(played), *store)
    sentence = "failed: hardware is to blame. GPU is gone from the bus on node-0042 GPU 5."
    assert said(capsys, "why", job, *store).startswith(f"{job} (attempt 1) {sentence}")
    assert said(capsys, "why", f"{job}/1", *store).startswith(f"{job} (attempt 1) {sentence}")
    of_all = job.replace("_7", "").replace("+1", "")
    for asked in (job, of_all):
        assert [row["job_id"] for row in json.loads(said(capsys, "failures", "--json", "--job", asked, *store))] == [
            job
        ]
    assert said(capsys, "failures", "--job", of_all[:-1], *store) == "No failure is known.\n"
    with open_store(store[1]) as opened:
        # A plus that somebody types into an address arrives as a space.
        for name in (job, job.replace("+", " ")):
            assert sentence in answer(opened, Asked("/job", {"id": name}), load_objectives()).html
        assert f"{job}/1" in answer(opened, Asked("/failures", {"job": of_all}), load_objectives()).html
