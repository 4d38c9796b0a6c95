"""The loop that bridges share: it outlives whoever does not answer, and ends when it is told to."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest

from faultlens.cli_bridge_looking import AWAKE_S, HELD, look_until_stopped
from faultlens.errors import WorldError


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_who_does_not_answer_is_asked_again_until_it_is_told_to_stop() -> None:
    looks: list[int] = []

    def look() -> dict[str, int]:
        looks.append(len(looks))
        if len(looks) < 3:
            raise WorldError("nobody there")
        os.kill(os.getpid(), signal.SIGTERM)
        return {"new": 1}

    look_until_stopped(look, whom="it", every_s=0.001, once=False)
    assert looks == [0, 1, 2]


SCRIPT = Path(__file__).parents[2] / "examples" / "bridge" / "faultlens-slurm-wake"


def hook(wake: Path) -> subprocess.CompletedProcess[bytes]:
    """Run the hook as slurmctld does: by its path alone, with a job's variables."""
    environment = {"SLURM_JOB_ID": "77", "FAULTLENS_WAKE": str(wake)}
    return subprocess.run([SCRIPT], env=environment, capture_output=True, timeout=10, check=False)


def test_a_hook_of_slurm_has_the_bridge_look_long_before_its_time(tmp_path: Path) -> None:
    looks: list[float] = []
    wake = tmp_path / "wake"

    def look() -> dict[str, int]:
        looks.append(monotonic())
        if len(looks) == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        assert hook(wake).returncode == 0  # a job ends while it looks: what that look shows may be from before
        return {}

    look_until_stopped(look, whom="it", every_s=3_600.0, once=False, wake=wake)
    assert AWAKE_S <= looks[1] - looks[0] < 60


@pytest.mark.parametrize("place", ["no/such/folder/wake", "."])
def test_the_hook_never_fails_a_job_and_says_nothing(place: str, tmp_path: Path) -> None:
    done = hook(tmp_path / place)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_the_hook_does_not_wait_for_whoever_put_a_pipe_in_its_place(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "wake")
    assert hook(tmp_path / "wake").returncode == 0


def test_what_is_held_back_is_looked_at_again_soon() -> None:
    looks: list[float] = []

    def look() -> dict[str, int]:
        looks.append(monotonic())
        if len(looks) == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return {HELD: 1}

    look_until_stopped(look, whom="it", every_s=3_600.0, once=False)
    assert looks[1] - looks[0] < 60


def test_of_a_single_look_the_error_is_raised_and_no_other_follows() -> None:
    looks: list[int] = []

    def look() -> dict[str, int]:
        looks.append(1)
        raise WorldError("nobody there")

    with pytest.raises(WorldError, match="nobody there"):
        look_until_stopped(look, whom="it", every_s=0.001, once=True)
    assert looks == [1]
