"""Whether and where a job is run again: founded words stop it, schedulers run it, checkpoints are handed on."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from faultlens.clock import wall_ms
from faultlens.events import JobAttributed, JobEnded
from faultlens.local_judge import LocalJudge
from faultlens.progress import named_job
from producers.launcher.identity import identity_of
from producers.launcher.launching import Launcher, Options
from producers.launcher.requeueing import queue_of
from producers.launcher.retrying import Here, decide
from producers.launcher.telling import Ending
from tests.unit.test_launcher import WHO, Heard, launched, verdict


@pytest.mark.parametrize(
    ("status", "basis", "alike", "again"),
    [
        ("final", "supported", 1, False),
        ("amended", "established", 1, False),
        ("provisional", "supported", 1, True),
        ("final", "assumed", 1, True),
        ("final", "assumed", 2, True),
        ("final", "assumed", 3, False),
    ],
)
def test_it_stops_only_for_a_founded_final_word_or_the_third_failure_alike(
    status: Any, basis: Any, alike: int, *, again: bool
) -> None:
    said = replace(verdict("user", "do_not_retry"), status=status, basis=basis)
    assert decide(Ending(exit_code=1), said, retries_left=9, here=Here("n1"), alike=alike).again is again


def test_the_third_failure_alike_ends_a_job_of_which_little_is_known() -> None:
    vague = replace(verdict("user", "do_not_retry"), basis="assumed")
    heard = Heard(vague, vague, vague, vague)
    launched(heard, "exit(1)", retries=9)
    assert heard.types.count("ended") == 3


def test_the_next_attempt_learns_of_the_last_checkpoint_that_was_saved() -> None:
    code = (
        "import os\nfrom faultlens.progress import Progress\nwith Progress.from_environment() as p:\n"
        " with p.saving(500): pass\nexit(os.environ.get('FAULTLENS_CHECKPOINT_STEP') != '500')"
    )
    assert launched(Heard(None, None), code, retries=2).succeeded


@pytest.fixture
def slurm(tmp_path: Path) -> dict[str, str]:
    """The environment of a Slurm job, with a stand-in for scontrol that writes down what it is asked."""
    tool = tmp_path / "scontrol"
    tool.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n', "utf-8")
    tool.chmod(0o755)
    return {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "77"}


def queued(environment: dict[str, str], said: JobAttributed, restarts: int, folder: Path) -> str:
    heard = Heard(said)
    ending = Launcher(
        WHO, [sys.executable, "-c", "exit(1)"], os.environ | environment, options=Options(retries=3), sink=heard,
        judge=heard, now_ms=wall_ms, say=heard.said.append,
        queue=queue_of(environment | {"SLURM_RESTART_COUNT": str(restarts)}),
    ).run()  # fmt: skip
    assert (ending.exit_code, heard.types.count("ended")) == (1, 1)
    asked = folder / "asked"
    return asked.read_text("utf-8") if asked.exists() else ""


def test_where_a_scheduler_has_the_job_it_is_put_back_and_not_run_here(slurm: dict[str, str], tmp_path: Path) -> None:
    assert queued(slurm, verdict("user", "do_not_retry"), 0, tmp_path) == ""
    assert queued(slurm, verdict("platform", "retry"), 3, tmp_path) == ""
    assert queued(slurm, verdict("platform", "retry"), 2, tmp_path) == "requeue 77\n"
    asked = queued(slurm, verdict("hardware", "retry_elsewhere", ("n1", "n2")), 0, tmp_path)
    assert asked.splitlines()[1:] == ["requeuehold 77", "update JobId=77 ExcNodeList=n1,n2", "release 77"]


# Slurm ends all that runs in the job from the first word on: the launcher, and the program that asks for more.
ENDS_THE_JOB = """#!/bin/sh
echo "$@" >> "$(dirname "$0")/asked"
case $1 in requeue*) kill -TERM "$PPID" $$ && sleep 0.1 ;; esac
"""


def test_a_job_that_is_put_back_is_ended_at_once_and_is_released_all_the_same(
    slurm: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "scontrol").write_text(ENDS_THE_JOB, "utf-8")
    queued(slurm, verdict("hardware", "retry_elsewhere", ("n1",)), 0, tmp_path)
    asked = (tmp_path / "asked").read_text("utf-8").splitlines()
    assert asked == ["requeuehold 77", "update JobId=77 ExcNodeList=n1", "release 77"]


def test_before_a_job_is_put_back_all_that_was_told_is_delivered(slurm: dict[str, str], tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    asked_before: list[bool] = []
    queue = queue_of(os.environ | slurm, lambda: asked_before.append(asked.exists()))
    assert queue is not None
    queue.again(())
    assert (asked_before, asked.read_text("utf-8")) == ([False], "requeue 77\n")


def test_without_a_scheduler_or_its_program_nothing_is_put_back(tmp_path: Path) -> None:
    assert queue_of({"PATH": str(tmp_path), "SLURM_JOB_ID": "77"}) is None
    assert queue_of({"PATH": os.environ["PATH"]}) is None


@pytest.mark.parametrize(
    ("last_words", "attempts", "said"),
    [
        ("ValueError: num_heads must divide hidden_size", 1, "user is to blame"),
        ("RuntimeError: CUDA error: uncorrectable ECC error encountered", 1, "it must run elsewhere"),
        ("OSError: [Errno 116] Stale file handle", 3, "platform is to blame"),
    ],
)
def test_a_mistake_is_not_repeated_a_broken_device_is_left_and_a_platform_s_fault_is_tried_again(
    last_words: str, attempts: int, said: str
) -> None:
    heard = Heard()
    code = f"import os, sys; print({last_words!r}, file=sys.stderr); exit(os.environ['FAULTLENS_ATTEMPT'] != '3')"
    Launcher(
        WHO, [sys.executable, "-c", code], os.environ, options=Options(retries=4), sink=heard, judge=LocalJudge(),
        now_ms=wall_ms, say=heard.said.append,
    ).run()  # fmt: skip
    assert heard.types.count("ended") == attempts
    assert said in heard.said[0]


@pytest.mark.parametrize(
    ("environment", "under"),
    [
        ({"TORCHELASTIC_RUN_ID": "r1", "RANK": "0", "WORLD_SIZE": "2", "SLURM_PROCID": "0"}, "torchrun"),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}, "mpirun"),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "PMI_RANK": "0"}, "srun"),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, None),
        ({}, None),
    ],
)
def test_one_of_several_ranks_is_not_run_again_alone(environment: dict[str, str], under: str | None) -> None:
    who = identity_of(environment, node="n1", cluster="c1", fresh_id="fresh")
    assert who.under == under
    heard = Heard(None, None)
    launched(heard, "exit(1)", who, retries=1)
    assert heard.types.count("ended") == (2 if under is None else 1)


@pytest.mark.parametrize(("under", "outcome"), [("torchrun", "failed"), ("srun", "cancelled"), (None, "cancelled")])
def test_a_rank_that_torchrun_takes_down_was_not_asked_to_end_by_anybody(under: Any, outcome: str) -> None:
    heard = Heard(None)
    launched(heard, "import os; os.kill(os.getppid(), 15); import time; time.sleep(60)", replace(WHO, under=under))
    assert [e.data.outcome for e in heard.events if isinstance(e.data, JobEnded)] == [outcome]


@pytest.mark.parametrize(
    ("environment", "job", "attempt"),
    [
        ({"TORCHELASTIC_RUN_ID": "r1", "TORCHELASTIC_RESTART_COUNT": "2"}, "r1", 3),
        ({"TORCHELASTIC_RUN_ID": "none"}, None, 1),
        ({"TORCHELASTIC_RUN_ID": "r1", "TORCHELASTIC_RESTART_COUNT": "2", "SLURM_JOB_ID": "77"}, "77", 1),
        ({"TORCHELASTIC_RESTART_COUNT": "1", "FAULTLENS_JOB_ID": "j"}, "j", 2),
        ({"TORCHELASTIC_RESTART_COUNT": "1", "FAULTLENS_JOB_ID": "j", "FAULTLENS_ATTEMPT": "1"}, "j", 1),
    ],
)
def test_torchrun_names_a_job_that_nobody_else_names_and_counts_its_attempts(
    environment: dict[str, str], job: str | None, attempt: int
) -> None:
    assert named_job(environment) == (job, attempt)


def test_who_asked_for_retries_and_gets_none_reads_why_and_how_to_get_them() -> None:
    decision = decide(Ending(exit_code=1), verdict("user", "do_not_retry"), retries_left=2, here=Here("n1"))
    assert not decision.again
    assert "user is to blame" in decision.why
    assert "2 retries are left, and --retry-on failure uses them" in decision.why


@pytest.mark.parametrize(
    ("retries", "anyway", "asked"), [(0, False, [False]), (1, False, [True, False]), (1, True, [False, False])]
)
def test_a_failed_job_waits_for_a_verdict_only_where_that_decides(
    retries: int, asked: list[bool], *, anyway: bool
) -> None:
    heard = Heard(None, None)
    launched(heard, "exit(1)", retries=retries, retry_anyway=anyway)
    assert heard.asked == asked


@pytest.mark.parametrize("advice", ["do_not_retry", "retry_elsewhere"])
def test_with_retry_on_failure_no_verdict_keeps_a_command_from_being_run_again(advice: Any) -> None:
    said = verdict("user", advice)
    where = {"here": Here("n1"), "anyway": True}
    assert decide(Ending(exit_code=1), said, retries_left=1, **where).again  # type: ignore[arg-type]
    assert not decide(Ending(exit_code=1), said, retries_left=0, **where).again  # type: ignore[arg-type]
    asked = Ending(signal=15, asked_to_end=True)
    assert not decide(asked, said, retries_left=1, **where).again  # type: ignore[arg-type]


# --- what a requeued attempt is handed -------------------------------------------------------------------

SAVES = """
import os
from faultlens.progress import Progress
with Progress.from_environment() as p:
    with p.saving(500, path="/scratch/step-500"): pass
exit({code})
"""
FINDS = "import os; exit(os.environ.get('FAULTLENS_CHECKPOINT_PATH') != '/scratch/step-500')"


def attempt(code: str, number: int, state: Path, *, job: str = "77", rank: int = 0) -> tuple[int | None, list[str]]:
    heard = Heard(None)
    who = replace(WHO, job_id=job, attempt=number, rank=rank)
    ending = Launcher(
        who, [sys.executable, "-c", code], os.environ, options=Options(job_state=state), sink=heard,
        judge=heard, now_ms=wall_ms, say=heard.said.append,
    ).run()  # fmt: skip
    return ending.exit_code, heard.said


def test_the_last_checkpoint_waits_for_the_attempt_that_slurm_starts_elsewhere(tmp_path: Path) -> None:
    assert attempt(SAVES.format(code=1), 1, tmp_path)[0] == 1
    assert attempt(FINDS, 2, tmp_path, rank=3)[0] == 0
    assert attempt(FINDS, 2, tmp_path, job="78")[0] == 1


def test_a_first_attempt_takes_nothing_that_another_job_of_its_id_has_left(tmp_path: Path) -> None:
    attempt(SAVES.format(code=1), 1, tmp_path)
    assert attempt(FINDS, 1, tmp_path)[0] == 1


def test_a_job_that_is_done_leaves_nothing(tmp_path: Path) -> None:
    attempt(SAVES.format(code=1), 1, tmp_path)
    assert list(tmp_path.iterdir())
    assert attempt(SAVES.format(code=0), 2, tmp_path)[0] == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("left", [b"", b"{", b'{"step": "x"}', b"[5]", b"\xff" * 9])
def test_what_cannot_be_believed_is_told_once_and_breaks_nothing(left: bytes, tmp_path: Path) -> None:
    attempt(SAVES.format(code=1), 1, tmp_path)
    next(tmp_path.iterdir()).write_bytes(left)
    code, said = attempt(FINDS, 2, tmp_path)
    assert code == 1
    assert sum("not handed" in line for line in said) == 1


def test_a_folder_that_cannot_be_written_is_told_once_and_breaks_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    code, said = attempt(SAVES.format(code=0), 1, tmp_path / "file")
    assert code == 0
    assert sum("not handed" in line for line in said) == 1


def test_a_jobs_name_never_leaves_the_folder(tmp_path: Path) -> None:
    attempt(SAVES.format(code=1), 1, tmp_path / "state", job="../../etc/x")
    assert [path.name for path in tmp_path.iterdir()] == ["state"]
