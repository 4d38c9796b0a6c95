"""Progress by patterns, stalls, and what flight recorders say of who is absent: dumps as PyTorch writes them."""

from __future__ import annotations

import json
import os
import pickle
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultlens.clock import MINUTE_MS, ms_of
from faultlens.codec import Event
from faultlens.errors import UsageError
from faultlens.events import JobAlive, JobProgress
from producers.launcher import flight
from producers.launcher.flight import Entry, read_dumps, suspects
from producers.launcher.identity import Identity
from producers.launcher.launching import Launcher, Options
from producers.launcher.watching import LINE_BYTES, Watch, pattern_of

WHO = Identity(job_id="j", attempt=1, rank=0, ranks=4, node="n1", cluster="c1", nodes=("n1",), devices=(0,))
STEP = re.compile(r"step (?P<step>[\d,]+)(?:.*tokens (?P<tokens>[\d,]+))?")


def watched(*pieces: tuple[int, bytes], every_ms: int = 2_000) -> list[tuple[int, float | None]]:
    """Return step and tokens of what a watch tells of pieces that come so far apart."""
    told: list[Event] = []
    clock = [1_000_000]

    def now_ms() -> int:
        clock[0] += every_ms
        return clock[0]

    watch = Watch(STEP, WHO, told.append, now_ms)
    for stream, data in pieces:
        watch.feed(stream, data, 1)
    return [(event.data.step, event.data.tokens) for event in told if isinstance(event.data, JobProgress)]


def test_steps_are_found_in_lines_that_come_in_pieces_and_streams_that_alternate() -> None:
    pieces = [(1, b"epoch 1 ste"), (2, b"warning: st"), (1, b"p 3 loss 1\n"), (2, b"ep 9\n")]
    pieces.append((1, b"step 1,204 tokens 8,000\n"))
    assert watched(*pieces) == [(3, None), (9, None), (1204, 8000.0)]


def test_of_many_steps_at_once_the_newest_is_told_and_of_too_many_a_second_only_some() -> None:
    assert watched((1, b"step 1\nstep 2\nstep 3\n"), (1, b"step 2\n")) == [(3, None)]
    assert watched((1, b"step 1\n"), (1, b"step 2\n"), (1, b"step 3\n"), every_ms=600) == [(1, None), (3, None)]


@given(st.lists(st.binary(max_size=3 * LINE_BYTES), max_size=6))
def test_whatever_is_printed_the_watch_keeps_little_and_breaks_nothing(pieces: list[bytes]) -> None:
    watch = Watch(STEP, WHO, lambda event: None, lambda: 1)
    for piece in pieces:
        watch.feed(1, piece, 1)
    assert all(len(rest) <= LINE_BYTES for rest in watch._rests.values())


@pytest.mark.parametrize("text", ["step (", r"step \d+"])
def test_a_pattern_that_names_no_step_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="progress-pattern"):
        pattern_of(text)


# --- flight recorders ------------------------------------------------------------------------------------


def dump(path: Path, rank: int, last: int, state: str = "started", group: str = "0", **more: Any) -> None:
    """Write a rank's dump as PyTorch 2.6 does: the last collectives of a group."""
    entries = [
        {
            "record_id": number,
            "process_group": (group, "default_pg"),
            "collective_seq_id": number,
            "profiling_name": "nccl:all_reduce",
            "state": "completed" if number < last else state,
            "is_p2p": False,
        }
        for number in range(max(0, last - 3), last + 1)
    ]
    content = {"version": "2.5", "entries": entries, "pg_config": {"0": {"name": "0", "ranks": "[0, 1, 2, 3]"}}} | more
    path.with_name(f"{path.name}{rank}").write_bytes(pickle.dumps(content))


def test_the_rank_that_never_came_to_the_collective_is_the_suspect_and_those_that_wait_are_not(tmp_path: Path) -> None:
    prefix = tmp_path / "nccl_trace_rank_"
    for rank in range(4):
        dump(prefix, rank, 41 if rank == 2 else 42)
    assert suspects(read_dumps(str(prefix)), 4) == (2,)


def test_a_rank_that_left_no_dump_is_the_suspect_only_where_nearly_all_others_did(tmp_path: Path) -> None:
    prefix = tmp_path / "trace"
    for rank in range(15):
        dump(prefix, rank, 42)
    assert suspects(read_dumps(str(prefix)), 16) == (15,)
    assert suspects(read_dumps(str(prefix)), 64) == ()


def test_where_all_have_come_or_nothing_is_stuck_nobody_is_accused() -> None:
    assert suspects({rank: [Entry("0", 7, False)] for rank in range(4)}, 4) == ()
    assert suspects({0: [Entry("0", 7, True)], 1: [Entry("0", 6, True)]}, 2) == ()
    assert suspects({}, 4) == ()


def test_in_nested_groups_the_one_in_which_most_wait_decides() -> None:
    world = {rank: [Entry("world", 9, False)] for rank in range(8)}
    world[5] = [Entry("world", 8, True), Entry("pair", 3, False)]
    world[4] = [*world[4], Entry("pair", 2, True)]
    assert suspects(world, 8) == (5,)


class Evil:
    def __reduce__(self) -> Any:
        return os.system, ("touch evil",)


def test_a_dump_that_would_run_something_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trace0").write_bytes(pickle.dumps({"entries": [Evil()]}))
    (tmp_path / "trace1").write_bytes(b"nonsense")
    (tmp_path / "trace2").write_bytes(pickle.dumps([1]))
    (tmp_path / "trace3.txt").write_bytes(b"")
    dump(tmp_path / "trace", 4, 7)
    assert list(read_dumps(str(tmp_path / "trace"))) == [2, 4]
    assert not (tmp_path / "evil").exists()


def test_dumps_are_asked_for_by_the_pipes_that_somebody_reads(tmp_path: Path) -> None:
    prefix = str(tmp_path / "pipe")
    for rank in (0, 1):
        os.mkfifo(f"{prefix}{rank}.pipe")
    reader = os.open(f"{prefix}0.pipe", os.O_RDONLY | os.O_NONBLOCK)
    assert flight.ask_for_dumps({"TORCH_NCCL_DEBUG_INFO_PIPE_FILE": prefix}, 4) == 1
    assert os.read(reader, 10) == b"1\n"
    os.close(reader)
    assert flight.ask_for_dumps({}, 4) == 0


# --- stalls ----------------------------------------------------------------------------------------------


class Heard:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def put(self, event: Event) -> None:
        self.events.append(event)

    def tell(self, event: Event) -> None:
        return

    def verdict(self, job_id: str, attempt: int) -> None:
        return None


def test_a_job_that_stops_making_progress_is_told_to_be_stalled_with_who_is_absent(tmp_path: Path) -> None:
    prefix = tmp_path / "trace"
    for rank in range(4):
        dump(prefix, rank, 41 if rank == 3 else 42)
    heard, minutes = Heard(), [0]
    environment = os.environ | {"TORCH_NCCL_DEBUG_INFO_TEMP_FILE": str(prefix)}

    def now_ms() -> int:
        minutes[0] += 1  # each look at the clock is a minute later, so that nothing has to be waited for
        return minutes[0] * MINUTE_MS

    code = "import time; print('step 7', flush=True); time.sleep(2.6)"
    options = Options(pattern=STEP, stall_after_s=60.0, alive_every_s=60.0)
    Launcher(
        WHO, [sys.executable, "-c", code], environment,
        options=options, sink=heard, judge=heard, now_ms=now_ms, say=lambda line: None,
    ).run()  # fmt: skip
    [step] = [event for event in heard.events if isinstance(event.data, JobProgress)]
    stalls = [event.data.stalled for event in heard.events if isinstance(event.data, JobAlive)]
    told = [stalled for stalled in stalls if stalled is not None]
    assert {(ms_of(stalled.since), stalled.suspects) for stalled in told} == {(step.time_ms, (3,))}


def test_the_command_takes_a_pattern(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from faultlens.cli import app

    out = tmp_path / "events.jsonl"
    arguments = ["launch", "--progress-pattern", r"step (?P<step>\d+)", "--out", str(out), "--", "echo", "step 12"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0
    told = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    assert [event["data"]["step"] for event in told if event["type"] == "faultlens.job.progress.v1"] == [12]
