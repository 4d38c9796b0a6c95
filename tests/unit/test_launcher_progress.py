"""Progress by patterns, stalls, and what flight recorders say of who is absent: dumps as PyTorch writes them."""

from __future__ import annotations

import json
import os
import pickle
import sys
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultlens.clock import MINUTE_MS, ms_of, wall_ms
from faultlens.codec import Event
from faultlens.errors import UsageError
from faultlens.events import JobAlive, JobCheckpoint, JobEnded, JobProgress, JobResized, Slot
from faultlens.progress import MAX_LINE_BYTES, MAX_WORKERS_BYTES, Progress
from producers.launcher import flight
from producers.launcher.flight import Entry, read_dumps, suspects
from producers.launcher.following import Follower
from producers.launcher.identity import Identity
from producers.launcher.launching import Launcher, Options
from producers.launcher.watching import LINE_BYTES, STEP_FIRST, Watch, pattern_of

WHO = Identity(job_id="j", attempt=1, rank=0, ranks=4, node="n1", cluster="c1", nodes=("n1",), devices=(0,))
STEP = pattern_of(r"step (?P<step>[\d,]+)(?:.*tokens (?P<tokens>[\d,]+))?", "--progress-pattern")


def watched(*pieces: tuple[int, bytes], every_ms: int = 2_000, at_last: bool = False) -> list[tuple[int, float | None]]:
    """Return step and tokens of what a watch tells of pieces that come so far apart."""
    told: list[Event] = []
    clock = [1_000_000]

    def now_ms() -> int:
        clock[0] += every_ms
        return clock[0]

    watch = Watch(WHO, 1, told=lambda event, path: told.append(event), now_ms=now_ms, steps=STEP)
    for stream, data in pieces:
        watch.feed(stream, data)
    if at_last:
        watch.tell(at_last=True)
    return [(event.data.step, event.data.tokens) for event in told if isinstance(event.data, JobProgress)]


def test_steps_are_found_in_lines_that_come_in_pieces_and_streams_that_alternate() -> None:
    pieces = [(1, b"epoch 1 ste"), (2, b"warning: st"), (1, b"p 3 loss 1\n"), (2, b"ep 9\n")]
    pieces.append((1, b"step 1,204 tokens 8,000\n"))
    assert watched(*pieces) == [(3, None), (9, None), (1204, 8000.0)]


def test_of_many_steps_at_once_the_newest_is_told_and_of_too_many_a_second_only_some() -> None:
    assert watched((1, b"step 1\nstep 2\nstep 3\n"), (1, b"step 2\n")) == [(3, None)]
    assert watched((1, b"step 1\n"), (1, b"step 2\n"), (1, b"step 3\n"), every_ms=600) == [(1, None), (3, None)]


def test_what_came_too_soon_is_told_later_and_the_last_line_needs_no_end() -> None:
    soon = [(1, b"step 1\n"), (1, b"step 2\n"), (1, b"nothing\n"), (1, b"nothing\n")]
    assert watched(*soon, every_ms=600) == [(1, None), (2, None)]
    assert watched((1, b"step 1\n"), (1, b"step 2"), every_ms=1, at_last=True) == [(1, None), (2, None)]


def test_a_bar_of_progress_that_draws_over_itself_is_read_line_by_line() -> None:
    assert watched((1, b"\rstep 1 [#   ]\rstep 2 [##  ]"), (1, b"\rstep 3")) == [(1, None), (2, None)]


@given(st.lists(st.binary(max_size=3 * LINE_BYTES), max_size=6))
def test_whatever_is_printed_the_watch_keeps_little_and_breaks_nothing(pieces: list[bytes]) -> None:
    watch = Watch(WHO, 1, told=lambda event, path: None, now_ms=lambda: 1, steps=STEP)
    for piece in pieces:
        watch.feed(1, piece)
    watch.tell(at_last=True)
    assert all(len(rest) <= LINE_BYTES for rest in watch._rests.values())


@pytest.mark.parametrize("text", ["step (", r"step \d+"])
def test_a_pattern_that_names_no_step_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="progress-pattern"):
        pattern_of(text, "--progress-pattern")


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

    def verdict(self, job_id: str, attempt: int, *, decides: bool) -> None:
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
    options = Options(steps=STEP, stall_after_s=60.0, alive_every_s=60.0)
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


# --- files, checkpoints, and who takes part ------------------------------------------------------------------


def run_with(code: str, who: Identity = WHO, **options: Any) -> Heard:
    heard = Heard()
    Launcher(
        who, [sys.executable, "-c", code], os.environ,
        options=Options(**options), sink=heard, judge=heard, now_ms=wall_ms, say=lambda line: None,
    ).run()  # fmt: skip
    return heard


def test_steps_are_read_from_a_file_from_where_it_ended_and_from_its_beginning_when_it_is_made_anew(
    tmp_path: Path,
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_text("7 of an earlier run\n", "utf-8")
    steps = pattern_of(STEP_FIRST, "--progress-pattern")
    for path, mode in ((old, "a"), (new, "w")):
        code = f"print('10 is no step'); open({str(path)!r}, {mode!r}).write('8 x\\n9')"
        heard = run_with(code, steps=steps, progress_file=path)
        assert [event.data.step for event in heard.events if isinstance(event.data, JobProgress)] == [8, 9]


def test_a_file_that_is_cut_short_is_read_again_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "steps"
    path.write_text("1\n2\n3\n", "utf-8")
    follower = Follower(path)
    path.write_text("4\n", "utf-8")
    assert follower.close() == b"4\n"


def test_a_file_on_storage_that_hangs_holds_nobody_up(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)  # opening it waits for a writer, as a mount that hangs makes everybody wait
    began = monotonic()
    assert Follower(pipe).close() == b""
    assert monotonic() - began < 10


def test_the_next_attempt_learns_where_the_last_checkpoint_lies() -> None:
    told = (
        "import os\nfrom faultlens.progress import Progress\nwith Progress.from_environment() as p:\n"
        " with p.saving(500, path='/ckpt/500'): pass\n"
    )
    printed = "import os; print('saved step 500 to /ckpt/500 in 12.5 s', flush=True)\n"
    saves = pattern_of(r"saved step (?P<step>\d+) to (?P<path>\S+) in (?P<seconds>[\d.]+) s", "--checkpoint-pattern")
    learns = "exit([os.environ.get('FAULTLENS_CHECKPOINT_' + w) for w in ('STEP', 'PATH')] != ['500', '/ckpt/500'])"
    heard = Heard()
    for code, options in ((told, {}), (printed, {"saves": saves})):
        heard = run_with(code + learns, retries=1, **options)
        ends = [event.data.outcome for event in heard.events if isinstance(event.data, JobEnded)]
        assert ends == ["failed", "succeeded"]
    [first, *_] = [event.data for event in heard.events if isinstance(event.data, JobCheckpoint)]
    assert (first.step, first.duration_s, first.ok, first.blocking) == (500, 12.5, True, True)


@pytest.mark.parametrize("path", ["'a' + chr(0) + 'b'", "200_000 * 'x'"])
def test_what_cannot_be_a_path_does_not_keep_the_next_attempt_from_starting(path: str) -> None:
    code = (
        "import os, sys\nfrom faultlens.codec import encode, event_of\nfrom faultlens.events import JobCheckpoint\n"
        "if 'FAULTLENS_CHECKPOINT_STEP' in os.environ: exit('FAULTLENS_CHECKPOINT_PATH' in os.environ)\n"
        "import json\nline = json.loads(encode(event_of(JobCheckpoint('j', 1, 5, 1.0, ok=True), source='s', id_='i', "
        f"time_ms=1)))\nline['checkpointpath'] = {path}\n"
        "with open(os.environ['FAULTLENS_PROGRESS'], 'w') as pipe: print(json.dumps(line), file=pipe)\nexit(1)"
    )
    heard = run_with(code, retries=1)
    ends = [event.data.outcome for event in heard.events if isinstance(event.data, JobEnded)]
    assert ends == ["failed", "succeeded"]


def workers(*rounds: Sequence[str]) -> str:
    """Return training whose workers meet so often, on these nodes."""
    return "from faultlens.progress import Progress\nwith Progress.from_environment() as p:\n" + "".join(
        f" p.workers({list(nodes)!r})\n" for nodes in rounds
    )


def resizes(heard: Heard) -> list[tuple[tuple[Slot, ...], tuple[Slot, ...]]]:
    return [(e.data.allocation, e.data.lost) for e in heard.events if isinstance(e.data, JobResized)]


GANG = Identity(job_id="j", attempt=1, rank=0, ranks=4, node="n1", cluster="c1", nodes=("n1", "n2"), devices=(0, 1))


def test_an_elastic_job_that_goes_on_without_a_node_is_told_with_what_it_lost() -> None:
    heard = run_with(workers(["n1.lab", "n1.lab", "n2.lab", "n2.lab"], ["n1.lab", "n1.lab"], ["n1.lab"] * 2), GANG)
    assert resizes(heard) == [((Slot("n1", (0, 1), ranks=(0, 1)),), (Slot("n2", None, ranks=(2, 3)),))]
    assert [event.data.outcome for event in heard.events if isinstance(event.data, JobEnded)] == ["succeeded"]


def test_fewer_ranks_on_a_node_are_a_loss_more_are_none_and_the_first_word_only_counts() -> None:
    heard = run_with(workers(["n1", "n1", "n1", "n2"], ["n1", "n2"], ["n1", "n2", "n2"]), GANG)
    one, two = resizes(heard)
    assert one[1] == (Slot("n1", None, ranks=(1, 2)),)
    assert (two[0][1].ranks, two[1]) == ((1, 2), ())


def test_a_node_that_is_missing_from_the_first_word_is_lost_and_where_a_bridge_tells_nothing_is() -> None:
    assert resizes(run_with(workers(["n1", "n1"]), GANG)) == [
        ((Slot("n1", (0, 1), ranks=(0, 1)),), (Slot("n2", None, ranks=(2, 3)),))
    ]
    assert resizes(run_with(workers(["n1", "n1"]), GANG, job_events=False)) == []


def test_a_large_gang_can_say_who_takes_part() -> None:
    lines: list[bytes] = []
    with Progress("j", 1, to=lines.append) as progress:
        progress.workers([f"node-{rank // 8:04}" for rank in range(8 * 1_024)])
        progress.workers([f"node-{rank:08}" for rank in range(100_000)])
    assert (len(lines), progress.dropped) == (1, 1)
    assert MAX_LINE_BYTES < len(lines[0]) <= MAX_WORKERS_BYTES
