"""What a training script tells of its progress, and that telling it never gets in the script's way."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import count
from math import ceil, nan
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultlens.codec import Decoder, Event
from faultlens.events import JobCheckpoint, JobProgress, Quantiles
from faultlens.progress import (
    MAX_LINE_BYTES,
    MAX_RANKS,
    MAX_WAITING,
    SLOWEST_RANKS,
    VARIABLE,
    Progress,
    named_job,
    rank_fields,
)
from faultlens.topics import JOB_EVENTS, TYPES

ROOT = Path(__file__).parents[2]
START_NS = 1_795_000_000_000_000_000
SECOND_NS = 1_000_000_000


def told(lines: list[bytes]) -> list[Event]:
    """Return the events in the lines, each checked against the contract."""
    decoder = Decoder({name: t for name, t in TYPES.items() if t.topic == JOB_EVENTS})
    return [decoder.decode(line) for line in lines]


def data_of(lines: list[bytes]) -> list[Any]:
    return [event.data for event in told(lines)]


def every_second() -> Any:
    """Return a clock that goes on by a second each time it is read."""
    ticks = count()
    return lambda: START_NS + next(ticks) * SECOND_NS


def test_a_step_is_told_as_the_contract_wants_it() -> None:
    lines: list[bytes] = []
    with Progress("llm-7", 3, to=lines.append, clock_ns=lambda: START_NS) as progress:
        progress.step(41, seconds=1.5, tokens=4096)
    [event] = told(lines)
    assert event.data == JobProgress("llm-7", 3, 41, 1.5, tokens=4096.0)
    assert (event.source, event.subject, event.time_ms) == ("launcher/llm-7", "llm-7", START_NS // 1_000_000)


def test_steps_within_the_interval_become_one_record_with_their_mean_time_and_all_their_tokens() -> None:
    lines: list[bytes] = []
    with Progress("job", 1, to=lines.append, every_s=10, clock_ns=every_second()) as progress:
        for step in range(1, 15):
            progress.step(step, seconds=float(step), tokens=10)
    assert data_of(lines) == [
        JobProgress("job", 1, 1, 1.0, tokens=10.0),
        JobProgress("job", 1, 11, sum(range(2, 12)) / 10, tokens=100.0),
        JobProgress("job", 1, 14, 13.0, tokens=30.0),
    ]


def test_a_save_is_told_with_its_duration_and_one_that_raises_as_failed() -> None:
    lines: list[bytes] = []
    with Progress("job", 1, to=lines.append) as progress:
        with progress.saving(100):
            pass
        with pytest.raises(OSError, match="disk full"), progress.saving(200, blocking=False):
            raise OSError("disk full")
        progress.checkpoint(100, 2.5, restored=True)
    good, bad, restored = data_of(lines)
    assert (good.step, good.ok, good.blocking, bad.step, bad.ok, bad.blocking) == (100, True, True, 200, False, False)
    assert 0 <= good.duration_s < 60
    assert restored == JobCheckpoint("job", 1, 100, 2.5, ok=True, restored=True)


def test_no_two_records_have_the_same_id_even_when_a_step_is_done_again() -> None:
    lines: list[bytes] = []
    for _ in range(2):
        with Progress("job", 1, to=lines.append, every_s=0) as progress:
            progress.step(1)
            progress.step(1)
    assert len({event.id for event in told(lines)}) == 4


# --- ranks ---------------------------------------------------------------------------------------------


def test_of_a_small_job_every_rank_is_named() -> None:
    lines: list[bytes] = []
    with Progress("job", 1, to=lines.append) as progress:
        progress.step(1, ranks={0: 1.0, 1: 1.25})
    assert data_of(lines) == [JobProgress("job", 1, 1, ranks={"0": 1.0, "1": 1.25})]


def test_of_a_large_job_the_slowest_ranks_are_named_and_the_quantiles_of_all() -> None:
    lines: list[bytes] = []
    with Progress("job", 1, to=lines.append) as progress:
        progress.step(1, ranks={rank: float(rank + 1) for rank in range(1000)})
    [data] = data_of(lines)
    assert data.ranks == {str(rank): float(rank + 1) for rank in range(999, 999 - SLOWEST_RANKS, -1)}
    assert data.quantiles == Quantiles(500.0, 900.0, 990.0, 1000.0)


@given(st.lists(st.floats(0, 1e6), min_size=MAX_RANKS + 1, max_size=400))
def test_a_quantile_is_the_smallest_time_that_so_many_ranks_do_not_exceed(times: list[float]) -> None:
    quantiles = rank_fields(dict(enumerate(times)))["quantiles"]
    ascending = sorted(times)
    expected = {
        name: ascending[ceil(len(times) * of / 100) - 1] for name, of in (("p50", 50), ("p90", 90), ("p99", 99))
    }
    assert quantiles == expected | {"max": ascending[-1]}


# --- never in the way ----------------------------------------------------------------------------------


def test_a_reader_that_never_comes_costs_records_and_no_time(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    progress = Progress("job", 1, to=pipe, every_s=0)
    for step in range(3 * MAX_WAITING):
        progress.step(step)
    progress.close(timeout_s=0.01)
    assert progress.dropped >= MAX_WAITING
    # Lets the thread end, which waits for a reader of the pipe.
    os.close(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK))


@pytest.mark.parametrize("to", ["/does/not/exist/progress", "fd:987654", "fd:three", 987654])
def test_what_cannot_be_written_is_counted_and_logged_once(to: str | int, caplog: pytest.LogCaptureFixture) -> None:
    with Progress("job", 1, to=to, every_s=0) as progress:
        progress.step(1)
        progress.step(2)
    assert progress.dropped == 2
    assert [record.getMessage() for record in caplog.records] == [f"progress is not told: {progress.problem}"]


def test_whatever_is_reported_nothing_is_raised_and_good_records_still_come() -> None:
    lines: list[bytes] = []
    anything: Any = "three"
    with Progress("job", 1, to=lines.append, every_s=0) as progress:
        progress.step(anything)
        progress.step(1, seconds=nan)
        progress.step(1, ranks=anything)
        progress.checkpoint(1, anything)
        progress.step(2)
    assert data_of(lines) == [JobProgress("job", 1, 2)]
    assert progress.dropped == 4


def test_a_record_that_is_too_long_to_be_written_at_once_is_dropped() -> None:
    lines: list[bytes] = []
    with Progress("j" * MAX_LINE_BYTES, 1, to=lines.append) as progress:
        progress.step(1)
    assert (lines, progress.dropped) == ([], 1)


def test_a_line_that_was_torn_is_ended_before_the_next_one(tmp_path: Path) -> None:
    """A file that may grow to 300 bytes takes a part of the second line; when it may grow again, all is well."""
    path = tmp_path / "progress"
    subprocess.run([sys.executable, "-c", TEARS, path], check=True, cwd=ROOT, timeout=60)
    first, torn, last = path.read_bytes().splitlines()
    assert [event.data for event in told([first, last])] == [JobProgress("job", 1, 1), JobProgress("job", 1, 3)]
    assert first.startswith(torn[:60])


TEARS = """
import resource, signal, sys
from faultlens.progress import Progress
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
_, most = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (300, most))
progress = Progress("job", 1, to=sys.argv[1], every_s=0)
progress.step(1)
progress.step(2)
progress._writer.close(60)
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
progress.step(3)
progress.close(60)
"""


def test_a_forked_child_tells_with_ids_of_its_own() -> None:
    script = """
import os, sys
from faultlens.progress import Progress
progress = Progress("job", 1, to=1, every_s=0)
progress.step(1)
if os.fork() == 0:
    progress.step(2)
    progress.close(60)
    os._exit(0)
os.wait()
progress.step(3)
"""
    done = subprocess.run([sys.executable, "-c", script], check=True, cwd=ROOT, stdout=subprocess.PIPE, timeout=60)
    events = told(done.stdout.splitlines())
    assert sorted(event.data.step for event in events if isinstance(event.data, JobProgress)) == [1, 2, 3]
    assert len({event.id for event in events}) == 3


# --- from the environment ------------------------------------------------------------------------------


def test_without_the_variable_nothing_happens() -> None:
    progress = Progress.from_environment({"FAULTLENS_JOB_ID": "job"})
    progress.step(1)
    progress.close()
    assert (progress.dropped, progress.problem) == (0, "")


def test_of_several_ranks_the_first_one_tells(tmp_path: Path) -> None:
    path = tmp_path / "progress"
    for rank in ("1", "0"):
        environment = {VARIABLE: str(path), "SLURM_JOB_ID": "1105", "RANK": rank}
        with Progress.from_environment(environment) as progress:
            progress.step(int(rank))
    assert data_of(path.read_bytes().splitlines()) == [JobProgress("1105", 1, 0)]


def test_a_variable_without_a_job_is_said_to_have_no_effect(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    with Progress.from_environment({VARIABLE: str(tmp_path / "progress")}) as progress:
        progress.step(1)
    assert [record.getMessage() for record in caplog.records] == [
        "FAULTLENS_PROGRESS is set, but neither FAULTLENS_JOB_ID nor SLURM_JOB_ID: no progress is told"
    ]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("environment", "named"),
    [
        ({"FAULTLENS_JOB_ID": "ml/train", "FAULTLENS_ATTEMPT": "4", "SLURM_JOB_ID": "9"}, ("ml/train", 4)),
        ({"FAULTLENS_JOB_ID": "ml/train"}, ("ml/train", 1)),
        ({"SLURM_JOB_ID": "1105"}, ("1105", 1)),
        ({"SLURM_JOB_ID": "1105", "SLURM_RESTART_COUNT": "2"}, ("1105", 3)),
        ({"SLURM_JOB_ID": "1104", "SLURM_ARRAY_JOB_ID": "1099", "SLURM_ARRAY_TASK_ID": "5"}, ("1099_5", 1)),
        ({"SLURM_JOB_ID": "1106", "SLURM_HET_JOB_ID": "1105", "SLURM_HET_JOB_OFFSET": "1"}, ("1105+1", 1)),
        ({}, (None, 1)),
    ],
)
def test_the_job_is_named_as_its_launcher_or_scheduler_names_it(
    environment: dict[str, str], named: tuple[str | None, int]
) -> None:
    assert named_job(environment) == named


def test_it_needs_the_standard_library_alone() -> None:
    """An interpreter without site-packages can import it, and nothing but itself and the package's head comes along."""
    script = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import faultlens.progress; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", script], check=True, stdout=subprocess.PIPE, text=True)
    ours = {name for name in done.stdout.split() if name.partition(".")[0] == "faultlens"}
    others = {name.partition(".")[0] for name in done.stdout.split()} - sys.stdlib_module_names - {"faultlens"}
    assert ours == {"faultlens", "faultlens.progress"}
    assert others <= {"__main__"}
