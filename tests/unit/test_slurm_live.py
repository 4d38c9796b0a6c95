"""Asking Slurm's own programs: what they are asked, and what is said when they do not answer."""

import os
import stat
from pathlib import Path

import pytest

from faultlens.errors import WorldError
from producers.slurm.importing import import_slurm
from producers.slurm.job_events import Names
from producers.slurm.live import DELIMITER, FIELDS, ask_slurm

SACCT = """
case "$*" in
*--helpformat*) echo "JobID State Start End   NodeList Submit ExitCode User"; exit 0;;
esac
test "$SLURM_TIME_FORMAT" = %s || exit 9
case "$*" in
*--duplicates*--format=JobID,User,State,ExitCode,Submit,Start,End,NodeList) ;;
*) echo "unexpected: $*" >&2; exit 8;;
esac
printf 'JobID\\037User\\037State\\037ExitCode\\037Submit\\037Start\\037End\\037NodeList\\n'
printf '7\\037ann\\037FAILED\\0371:0\\0371795954000\\0371795954001\\0371795954009\\037node1\\n'
"""
ROW = "lab|node1|1795954009|Unknown|DOWN*|Not responding|slurm(1)"
SACCTMGR = f"printf 'Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User\\n{ROW}\\n'"
SCONTROL = "case \"$*\" in *config) printf 'SlurmdTimeout = 20 sec\\n';; *) printf 'No jobs in the system\\n';; esac"


def program(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, script in (("sacct", SACCT), ("sacctmgr", SACCTMGR), ("scontrol", SCONTROL)):
        program(tmp_path, name, script)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


def test_programs_are_asked_for_epochs_and_only_for_columns_that_they_have(slurm: Path) -> None:
    imported = import_slurm(ask_slurm("now-1day"), Names("lab"))
    assert [event.subject for event in imported.events if event.source == "scheduler/slurm"] == ["7"] * 4
    assert [event.subject for event in imported.events if event.source == "bridge/slurm"] == ["node1"] * 2
    assert imported.counts.times_without_zone == 0


def test_the_delimiter_is_one_that_nobody_types() -> None:
    assert not DELIMITER.isprintable()
    assert {"JobID", "State", "Start", "End"} <= set(FIELDS)


def test_a_missing_program_is_named_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(WorldError, match="sacct: not found; run this where Slurm's programs are"):
        ask_slurm("now-1day")


def test_a_program_that_fails_is_quoted(slurm: Path) -> None:
    program(slurm, "sacctmgr", "echo 'sacctmgr: error: Problem talking to the database' >&2; exit 1")
    with pytest.raises(WorldError, match="exit status 1: sacctmgr: error: Problem talking to the database"):
        ask_slurm("now-1day")


def test_a_program_that_does_not_answer_is_not_waited_for(slurm: Path) -> None:
    program(slurm, "sacct", "exec sleep 30")
    with pytest.raises(WorldError, match=r"no answer within 0\.2 s"):
        ask_slurm("now-1day", deadline_s=0.2)
