"""`faultlens demo`, on a fleet of two nodes: every step runs, and what it says comes from what it did."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from faultlens.cli_demo import first_impressions, most_instructive
from slo.scoring import Key, Verdict

pytest.importorskip("chdb", reason="chDB is not installed (extra `store`)")
ROOT = Path(__file__).parents[2]


def demo(out: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "faultlens.cli", "demo", "--out", str(out), *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """Return what a demonstration shows and where it wrote."""
    out = tmp_path_factory.mktemp("demo") / "out"
    done = demo(out, "--nodes", "2", "--days", "0.5")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, out


def test_a_real_slurm_is_imported_and_one_of_its_failures_explained(shown: tuple[str, Path]) -> None:
    text, out = shown
    assert "$ faultlens import slurm examples/slurm" in text
    told = text.partition("$ faultlens why ")[2]
    asked, answer = told.splitlines()[0].split()[0], told.splitlines()[1]
    verdicts = [json.loads(line)["data"] for line in (out / "slurm" / "attributions.jsonl").read_text().splitlines()]
    job_id, _, attempt = asked.rpartition("/")
    [final] = [v for v in verdicts if (v["job_id"], str(v["attempt"]), v["status"]) == (job_id, attempt, "final")]
    assert f"{final['cause']['class']} is to blame" in answer


def test_the_verdicts_on_the_fleet_are_held_against_the_truth(shown: tuple[str, Path]) -> None:
    text, out = shown
    failures = len((out / "fleet" / "truth.jsonl").read_text().splitlines())
    assert f"Failures: {failures}, of which" in text


def test_it_ends_with_findings_and_where_the_report_is(shown: tuple[str, Path]) -> None:
    text, out = shown
    end = text.partition("What most GPU time is behind")[2]
    assert "  1. " in end
    assert f"The report: {(out / 'report.html').resolve()}" in end
    assert (out / "report.html").read_text("utf-8").startswith("<!DOCTYPE html>")


def test_without_a_terminal_it_writes_plain_text(shown: tuple[str, Path]) -> None:
    assert "\x1b" not in shown[0]


def test_a_directory_that_holds_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    done = demo(tmp_path)
    assert (done.returncode, [path.name for path in tmp_path.iterdir()]) == (2, ["thesis.tex"])
    assert "name another directory with --out" in done.stderr


def test_a_step_that_fails_ends_it_and_says_why(tmp_path: Path) -> None:
    (tmp_path / "exports").mkdir()
    done = demo(tmp_path / "out", "--slurm", str(tmp_path / "exports"), "--json")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no export of sacct" in done.stderr


# --- the failure that is explained ---------------------------------------------------------------------


def verdict(job: str, cause_class: str, basis: str, *, settled: bool = True, loss: int = 0) -> Verdict:
    return Verdict(Key(job, 1, loss), cause_class, "", basis, 0.9, "", settled, 0)  # type: ignore[arg-type]


def test_what_evidence_turned_away_from_its_first_impression_teaches_most() -> None:
    verdicts = [verdict("1", "hardware", "established"), verdict("2", "driver", "established")]
    first = {verdicts[0].key: "hardware", verdicts[1].key: "user"}
    assert most_instructive(verdicts, first) == verdicts[1]


def test_an_observed_fault_of_a_machine_teaches_more_than_a_guess_about_a_user() -> None:
    verdicts = [
        verdict("1", "user", "assumed"),
        verdict("2", "user", "established"),
        verdict("3", "hardware", "supported"),
        verdict("4", "hardware", "established"),
        verdict("5", "hardware", "established", settled=False),
        verdict("0", "hardware", "established", loss=1),
    ]
    assert most_instructive(verdicts, {}) == verdicts[3]


def test_where_nothing_failed_there_is_nothing_to_explain() -> None:
    assert most_instructive([], {}) is None


def test_the_first_impression_is_the_first_revision(tmp_path: Path) -> None:
    said = [("1", 1, "user"), ("1", 2, "driver"), ("2", 1, "platform")]
    records = [
        {"data": {"job_id": job, "attempt": 1, "revision": revision, "cause": {"class": cause_class}}}
        for job, revision, cause_class in said
    ]
    file = tmp_path / "attributions.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    assert first_impressions(file) == {Key("1", 1): "user", Key("2", 1): "platform"}
