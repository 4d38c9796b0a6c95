"""`faultlens slo` and `faultlens why` over an embedded store, as they are called."""

import json
from pathlib import Path
from typing import Any

import pytest

from faultlens.cli import main

DRILLS = Path(__file__).parents[1] / "data" / "drills"

pytest.importorskip("chdb", reason="chDB is not installed (extra `store`)")
pytestmark = pytest.mark.store


def called(*arguments: str) -> int:
    """Run the program and return its exit code."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return int(ended.value.code or 0)


def answered(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:
    assert called(*arguments, "--json") == code
    return json.loads(capsys.readouterr().out)


# --- slo -------------------------------------------------------------------------------------------------


def test_a_missed_objective_ends_with_1_and_is_named(fortnight: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = answered(capsys, "slo", "--store", fortnight, code=1)
    assert set(said["missed"]) == {"node_availability", "gpu_availability", "job_start", "job_success", "goodput"}
    by_name = {entry["objective"]: entry for entry in said["objectives"]}
    success = by_name["job_success"]
    assert (success["recomputed"]["good"], success["recomputed"]["total"]) == (2, 5)
    assert success["recomputed"]["by_cause"] == {"hardware": 2, "driver": 1}
    assert success["recomputed"]["bounds"] == {"low": 2 / 6, "high": 2 / 4}
    assert success["agreement"] == "alone"
    assert by_name["coverage"]["streamed"]["good"] == 999.5
    assert by_name["serving_capacity"]["attained"] is None


def test_a_shorter_window_looks_at_less(fortnight: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = answered(capsys, "slo", "--window", "7d", "--store", fortnight, code=1)
    success = next(entry for entry in said["objectives"] if entry["objective"] == "job_success")
    assert (success["window"], success["recomputed"]["total"]) == ("P7D", 4)


def test_of_a_pool_its_nodes_and_their_jobs_are_shown_and_of_a_team_the_jobs(
    fortnight: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def measured(*scope: str) -> set[str]:
        said = answered(capsys, "slo", *scope, "--store", fortnight, code=1)
        return {entry["objective"] for entry in said["objectives"] if entry["attained"] is not None}

    of_jobs = {"job_start", "job_success", "goodput"}
    assert measured("--pool", "h100") == {"node_availability", "gpu_availability"} | of_jobs
    assert measured("--team", "nlp") == of_jobs


def test_the_table_is_readable_without_json(fortnight: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert called("slo", "--store", fortnight) == 1
    said = capsys.readouterr().out
    assert "Objectives of cluster c1, as of 2026-11-23 00:00 UTC" in said
    assert "weighted by GPU time: 40 %" in said


def test_a_cluster_that_the_store_does_not_know_is_wrong_use(
    fortnight: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called("slo", "--cluster", "c2", "--store", fortnight) == 2
    assert "no cluster 'c2' in the store (known: c1)" in capsys.readouterr().err


@pytest.mark.parametrize(("option", "known"), [("--pool", "h100"), ("--team", "nlp")])
def test_a_pool_or_team_that_the_store_does_not_know_is_wrong_use(
    option: str, known: str, fortnight: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called("slo", option, "misspelt", "--store", fortnight) == 2
    assert f"no {option[2:]} 'misspelt' in the store (known: {known})" in capsys.readouterr().err


def test_where_no_store_was_named_the_answer_says_which_it_came_from_and_how_old_it_is(
    fortnight: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAULTLENS_STORE", fortnight)
    called("slo")
    said = capsys.readouterr()
    assert f"From chdb://{fortnight} (it covers " in said.err
    assert "to 2026-11-23 00:00 UTC)" in said.err
    called("slo", "--store", fortnight)
    assert not capsys.readouterr().err


def test_a_window_that_is_no_duration_is_wrong_use(fortnight: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert called("slo", "--window", "forever", "--store", fortnight) == 2
    assert "write 5m, 1h, 28d" in capsys.readouterr().err


# --- why -------------------------------------------------------------------------------------------------


def test_why_tells_the_whole_story_of_a_job(fortnight: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert called("why", "hw", "--store", fortnight) == 0
    said = capsys.readouterr().out
    assert said.startswith("hw (attempt 1) failed: hardware is to blame. A fault on n1.")
    for words in (
        "allocated 1 node: n1",
        "last good checkpoint: step 6",
        "xid 79 on n1 GPU 3",
        "n1 is down (host.lost.silent)",
        "final verdict: hardware, gpu.off_bus (established)",
        r"xid 79 on n1 \x1b[31mGPU 3",
        "retry it, away from n1",
        "lost since the last good checkpoint: 2.0 GPU-hours (15 min of work)",
    ):
        assert words in said


def test_why_tells_what_a_job_waited_for_that_was_never_placed(
    fortnight: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called("why", "stuck", "--store", fortnight) == 0
    said = capsys.readouterr().out
    assert "waits, Unschedulable: 8 devices are tainted" in said
    assert "ended: never_started (FailedScheduling)" in said


def test_why_finds_the_attempt_in_the_name_and_says_when_there_is_none(
    fortnight: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert answered(capsys, "why", "good/1", "--store", fortnight)["outcome"] == "succeeded"
    said = answered(capsys, "why", "good", "--attempt", "4", "--store", fortnight, code=1)
    assert said["error"] == "no attempt 4 of it is known (known: 1)"


def test_a_verdict_that_was_taken_back_blames_nobody(fortnight: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert called("why", "taken-back", "--store", fortnight) == 0
    assert "its verdict was withdrawn" in capsys.readouterr().out


def test_an_attempt_that_failed_before_it_was_requeued_is_called_failed_whatever_the_scheduler_calls_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = str(tmp_path / "store")
    recorded = str(DRILLS / "slurm-requeues.jsonl.zst")
    assert called("replay", recorded, "--store", store, "--out", str(tmp_path)) == 0
    capsys.readouterr()
    said = answered(capsys, "why", "1001", "--store", store)
    assert (said["attempt"], said["outcome"], said["verdict"]["cause_class"]) == (1, "failed", "user")
    assert [line["outcome"] for line in said["attempts"]] == ["failed", "succeeded"]
    assert any("ended: failed" in moment["what"] and "REQUEUED" in moment["what"] for moment in said["timeline"])


def test_an_unknown_job_ends_with_1_and_the_likest_are_offered(
    fortnight: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called("why", "hw-asumed", "--store", fortnight) == 1
    said = capsys.readouterr().err
    assert "hw-asumed: no such job" in said
    assert "Did you mean hw-assumed, " in said


# --- empty and absent stores -----------------------------------------------------------------------------


def test_an_empty_store_misses_nothing_and_knows_no_job(empty: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert called("slo", "--store", empty) == 0
    assert capsys.readouterr().out.count("no data") == 7
    assert called("why", "x", "--store", empty) == 1


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for verb in (("slo",), ("report",), ("why", "x")):
        assert called(*verb, "--store", str(tmp_path / "typo")) == 3
        assert "there is no store at" in capsys.readouterr().err
    assert not (tmp_path / "typo").exists()
