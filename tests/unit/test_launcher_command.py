"""The launcher as a command: how it ends, whose options are whose, and what its cluster is called."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from time import monotonic

import pytest

from faultlens.kafka import Connection
from producers.launcher.identity import identity_of
from producers.launcher.verdicts import KafkaVerdicts


@pytest.mark.parametrize(
    ("named", "environment", "cluster"),
    [
        ("gpu1", {"SLURM_CLUSTER_NAME": "s"}, "gpu1"),
        (None, {"SLURM_CLUSTER_NAME": "s"}, "s"),
        (None, {}, "local"),
    ],
)
def test_a_cluster_is_called_as_it_was_named_to_us_before_it_is_called_as_slurm_does(
    named: str | None, environment: Mapping[str, str], cluster: str
) -> None:
    assert identity_of(environment, node="here", cluster=named, fresh_id="fresh").cluster == cluster


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "faultlens.cli", "launch", *arguments]


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", -9), ("kill -TERM $$", -15)])
def test_the_command_line_ends_exactly_as_what_it_ran(script: str, code: int, tmp_path: Path) -> None:
    arguments = ["--out", str(tmp_path / "events.jsonl"), "--", "sh", "-c", script]
    assert subprocess.run(command(*arguments), capture_output=True, timeout=60, check=False).returncode == code


def test_what_does_not_exist_ends_as_in_a_shell() -> None:
    done = subprocess.run(command("--", "no-such-program"), capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (127, b"faultlens: no-such-program: No such file or directory\n")


def test_an_option_of_the_command_is_the_command_s_and_the_environment_names_the_cluster(tmp_path: Path) -> None:
    out = tmp_path / "events.jsonl"
    ran = subprocess.run(
        command("--out", str(out), "sh", "-c", "exit 4"),
        env=os.environ | {"FAULTLENS_CLUSTER": "c7"},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 4
    told = [json.loads(line)["data"] for line in out.read_text().splitlines()]
    assert {data["cluster"] for data in told if "cluster" in data} == {"c7"}


def test_a_home_that_takes_nothing_keeps_no_job_from_running(tmp_path: Path) -> None:
    ran = subprocess.run(
        command("--brokers", "127.0.0.1:1", "sh", "-c", "exit 4"),
        env={**os.environ, "HOME": "/proc/none", "XDG_DATA_HOME": "", "TMPDIR": str(tmp_path)},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 4
    assert f"takes nothing: events wait in {tmp_path}/faultlens-launch-".encode() in ran.stderr


def test_a_launcher_does_not_wait_for_brokers_that_are_away() -> None:
    began = monotonic()
    verdicts = KafkaVerdicts(Connection("127.0.0.1:1"), wait_s=0.0, since_ms=0)
    took_s = monotonic() - began
    assert verdicts.verdict("j", 1, decides=True) is None
    verdicts.close()
    assert took_s < 1


def test_signals_reach_the_command_and_its_end_is_a_cancellation(tmp_path: Path) -> None:
    pipe, out = tmp_path / "pipe", tmp_path / "events.jsonl"
    os.mkfifo(pipe)
    # Not one long wait: a signal that comes just before a shell begins to wait is only seen after it.
    script = f"trap 'exit 3' TERM; : > {pipe}; while :; do sleep 0.1; done"
    with subprocess.Popen(command("--out", str(out), "--", "sh", "-c", script)) as process:
        pipe.read_text()  # returns once the script has set its trap
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 3
    ends = [json.loads(line)["data"] for line in out.read_text().splitlines() if ".ended." in line]
    assert [(end["outcome"], end["exit_code"]) for end in ends] == [("cancelled", 3)]
