"""The launcher: real processes, what is told of them, and whether they are run again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultlens.clock import MINUTE_MS, moment_of, wall_ms
from faultlens.codec import Event
from faultlens.events import (
    Advice,
    Cause,
    CauseClass,
    Culprit,
    JobAllocated,
    JobAttributed,
    JobEnded,
    JobProgress,
    Lost,
    Retry,
    Slot,
)
from faultlens.local_judge import LocalJudge
from faultlens.progress import Progress
from producers.launcher import telling
from producers.launcher.capture import HEAD_BYTES, LOG_TAIL_BYTES, TAIL_BYTES, Capture
from producers.launcher.identity import Identity, excluding, identity_of
from producers.launcher.launching import Launcher, Options
from producers.launcher.process import Run, channel
from producers.launcher.redaction import REPLACED, load_redaction, redacted
from producers.launcher.retrying import Here, decide
from producers.launcher.telling import Ending

MISTAKE = "raise ValueError('num_heads must divide hidden_size')"
WHO = Identity(job_id="j", attempt=1, rank=0, ranks=1, node="n1", cluster="c1", nodes=("n1",), devices=(0,))


# --- what is kept of the output ----------------------------------------------------------------------------


@given(st.lists(st.binary(max_size=40_000), max_size=12))
def test_whatever_is_printed_the_tail_is_bounded_and_holds_the_first_and_the_last(chunks: list[bytes]) -> None:
    capture = Capture()
    for chunk in chunks:
        capture.feed(chunk)
    whole = b"".join(chunks)
    text = capture.text()
    assert capture.total == len(whole)
    if len(whole) <= LOG_TAIL_BYTES:
        assert text == whole.decode("utf-8", "replace").replace("\0", "\N{SYMBOL FOR NULL}")
    else:
        assert len(text) <= LOG_TAIL_BYTES


def test_of_a_long_log_the_first_and_last_lines_are_kept_whole() -> None:
    capture = Capture()
    for number in range(100_000):
        capture.feed(f"line {number}\n".encode())
    lines = capture.text().splitlines()
    assert (lines[0], lines[-1]) == ("line 0", "line 99999")
    assert any("bytes …]" in line for line in lines)
    assert all(line.startswith(("line ", "[… ")) for line in lines)
    assert HEAD_BYTES + TAIL_BYTES < 100_000


@pytest.mark.parametrize("entry", load_redaction().patterns, ids=lambda entry: entry.name)
def test_every_pattern_of_a_secret_replaces_its_example(entry: Any) -> None:
    assert REPLACED in redacted(entry.example)


def test_what_is_no_secret_stays() -> None:
    text = "tokens/s: 5123, tokenizer=llama, step 10, loss 2.31, https://host/path?step=3, num_tokens: 12"
    assert redacted(text) == text


# --- who we are ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environment", "job", "attempt", "rank", "nodes", "devices"),
    [
        ({}, "fresh", 1, 0, ("here",), None),
        (
            {"FAULTLENS_JOB_ID": "j", "FAULTLENS_ATTEMPT": "3", "CUDA_VISIBLE_DEVICES": "3,1"},
            "j", 3, 0, ("here",), (1, 3),
        ),
        (
            {"SLURM_JOB_ID": "77", "SLURM_PROCID": "5", "SLURM_NTASKS": "8", "SLURM_JOB_NODELIST": "gpu[1-2]",
             "SLURMD_NODENAME": "gpu2", "SLURM_RESTART_COUNT": "1", "SLURM_STEP_GPUS": "0,1,2,3"},
            "77", 2, 5, ("gpu1", "gpu2"), (0, 1, 2, 3),
        ),
        ({"SLURM_JOB_ID": "78", "SLURM_JOB_NODELIST": "gpu[1-"}, "78", 1, 0, ("here",), None),
        ({"OMPI_COMM_WORLD_RANK": "2", "CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b"}, "fresh", 1, 2, ("here",), None),
        ({"RANK": "x"}, "fresh", 1, 0, ("here",), None),
        ({"FAULTLENS_JOB_ID": "j", "PET_NODE_RANK": "2", "PET_NNODES": "4"}, "j", 1, 2, ("here",), None),
        ({"FAULTLENS_JOB_ID": "j", "PET_NODE_RANK": "2", "RANK": "9"}, "j", 1, 9, ("here",), None),
    ],
)  # fmt: skip
def test_who_we_are_is_read_from_what_launchers_set(
    environment: Mapping[str, str],
    job: str,
    attempt: int,
    rank: int,
    nodes: tuple[str, ...],
    devices: tuple[int, ...] | None,
) -> None:
    who = identity_of(environment, node="here", cluster="c1", fresh_id="fresh")
    assert (who.job_id, who.attempt, who.rank, who.nodes, who.devices) == (job, attempt, rank, nodes, devices)


def test_of_other_nodes_it_is_not_said_which_devices_are_held() -> None:
    who = Identity(job_id="j", attempt=1, rank=0, ranks=4, node="a", cluster="c", nodes=("a", "b"), devices=(0, 1))
    assert who.allocation() == (Slot("a", (0, 1), ranks=(0, 1)), Slot("b", None, ranks=(2, 3)))


def test_where_nobody_names_the_other_nodes_their_ranks_are_not_said_to_be_here() -> None:
    environment = {"RANK": "0", "WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8", "TORCHELASTIC_RUN_ID": "r"}
    who = identity_of(environment, node="n1", cluster="c1", fresh_id="f")
    assert who.allocation() == (Slot("n1", ranks=tuple(range(8))),)
    slurm = environment | {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]"}
    slots = identity_of(slurm, node="n1", cluster="c1", fresh_id="f").allocation()
    assert [slot.ranks for slot in slots] == [tuple(range(8)), tuple(range(8, 16))]


def test_nodes_to_keep_away_from_are_told_to_what_starts_the_next_attempt() -> None:
    assert excluding(["n1", "n2"])["SBATCH_EXCLUDE"] == "n1,n2"
    assert excluding([]) == {}


# --- whether to run it again -----------------------------------------------------------------------------------


def verdict(cause_class: CauseClass, advice: Advice, exclude: tuple[str, ...] = ()) -> JobAttributed:
    return JobAttributed(
        "j", 1, "c1", 1, "final", Cause(cause_class, f"{cause_class}.x"), "established", 0.9, Culprit(), (), (),
        Retry(advice, exclude), Lost(0.0, 0.0), "a_rule", "1", moment_of(0),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("ending", "said", "left", "again"),
    [
        (Ending(exit_code=0), None, 3, False),
        (Ending(exit_code=1), None, 3, True),
        (Ending(exit_code=1), None, 0, False),
        (Ending(signal=15, asked_to_end=True), None, 3, False),
        (Ending(exit_code=1), ("user", "do_not_retry", ()), 3, False),
        (Ending(exit_code=1), ("platform", "retry", ()), 3, True),
        (Ending(exit_code=1), ("hardware", "retry_elsewhere", ("n1",)), 3, False),
        (Ending(exit_code=1), ("hardware", "retry_elsewhere", ("n2",)), 3, True),
        (Ending(exit_code=1), ("platform", "retry", ()), 0, False),
    ],
)
def test_the_verdict_decides_whether_it_is_run_again(
    ending: Ending, said: tuple[CauseClass, Advice, tuple[str, ...]] | None, left: int, *, again: bool
) -> None:
    decision = decide(ending, None if said is None else verdict(*said), retries_left=left, here=Here("n1"))
    assert decision.again is again
    assert decision.why


# --- real processes ----------------------------------------------------------------------------------------------


def ran(code: str, **more: Any) -> Ending:
    return Run([sys.executable, "-c", code], os.environ, now_ms=wall_ms, **more).run()


@pytest.mark.parametrize(
    ("code", "exit_code", "number"),
    [("pass", 0, None), ("raise SystemExit(7)", 7, None), ("import os; os.kill(os.getpid(), 9)", None, 9)],
)
def test_it_ends_as_the_command_ended(code: str, exit_code: int | None, number: int | None) -> None:
    ending = ran(code)
    assert (ending.exit_code, ending.signal) == (exit_code, number)


def test_the_last_words_of_both_streams_are_kept_and_passed_on(capfd: pytest.CaptureFixture[str]) -> None:
    ending = ran(f"import sys; print('step 1', flush=True); {MISTAKE}")
    assert ending.log_tail is not None
    assert ending.log_tail.startswith("step 1\nTraceback")
    shown = capfd.readouterr()
    assert shown.out == "step 1\n"
    assert shown.err.rstrip().endswith("num_heads must divide hidden_size")


def test_a_flood_passes_through_whole_in_bounded_memory(capfd: pytest.CaptureFixture[str]) -> None:
    count = 20_000
    ending = ran(f"import sys; [sys.stdout.write('x' * 499 + chr(10)) for _ in range({count})]")
    assert len(capfd.readouterr().out) == 500 * count
    assert len((ending.log_tail or "").encode()) <= LOG_TAIL_BYTES


FLOOD = """
import os, sys
def used():
    fields = open(f"/proc/{os.getppid()}/stat").read().rpartition(")")[2].split()
    peak = [line.split()[1] for line in open(f"/proc/{os.getppid()}/status") if line.startswith("VmHWM")]
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), int(peak[0])
line = (b"epoch 3 loss 0.123456789 " + b"x" * 74 + bytes([10])) * 655
before = used()
for _ in range(100_000_000 // len(line)):
    left = memoryview(line)
    while left:
        left = left[os.write(1, left):]
after = used()
print(*(late - early for late, early in zip(after, before)), file=sys.stderr)
"""


@pytest.mark.parametrize("asked", [(), ("--progress-pattern", r".*step (?P<step>\d+)")])
def test_a_second_of_output_at_100_mb_costs_the_launcher_less_than_a_second_and_no_memory(
    asked: tuple[str, ...],
) -> None:
    arguments = [sys.executable, "-m", "faultlens.cli", "launch", *asked, "--", sys.executable, "-c", FLOOD]
    done = subprocess.run(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=60, check=True)
    cpu_s, grown_kib = map(float, done.stderr.split())
    assert cpu_s < 1.0
    assert grown_kib < 4 * 1_024


def test_a_grandchild_that_keeps_the_output_open_does_not_hold_the_end_up() -> None:
    began = monotonic()
    wait = "import threading; threading.Event().wait(60)"
    ending = ran(f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', {wait!r}]).pid)")
    os.kill(int((ending.log_tail or "").strip()), signal.SIGKILL)
    assert ending.exit_code == 0
    assert monotonic() - began < 30


def test_torchelastic_s_error_file_says_what_went_wrong_first_and_when() -> None:
    extra = {"timestamp": "1800000000"}
    error = {"message": {"message": "RuntimeError: CUDA error: device-side assert", "extraInfo": extra}}
    write = f"json.dump({error!r}, open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w'))"
    ending = ran(f"import os, json; {write}; print('end'); exit(1)")
    assert ending.log_tail == "RuntimeError: CUDA error: device-side assert\nend\n"
    assert ending.first_error_ms == 1_800_000_000_000


def test_progress_of_the_training_comes_through_its_own_pipe() -> None:
    lines: list[bytes] = []
    code = "from faultlens.progress import Progress\nwith Progress.from_environment() as p:\n  p.step(41); p.step(42)"
    environment = {**os.environ, "FAULTLENS_JOB_ID": "j"}
    Run([sys.executable, "-c", code], environment, now_ms=wall_ms, told=lines.append).run()
    assert [json.loads(line)["data"]["step"] for line in lines] == [41, 42]


def test_progress_comes_from_workers_to_whom_no_descriptor_was_handed_on() -> None:
    lines: list[bytes] = []
    worker = "from faultlens.progress import Progress\nwith Progress.from_environment() as p:\n  p.step(7)"
    code = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {worker!r}], close_fds=True, check=True)"
    environment = {**os.environ, "FAULTLENS_JOB_ID": "j"}
    ending = Run([sys.executable, "-c", code], environment, now_ms=wall_ms, told=lines.append).run()
    assert ending.log_tail is None
    assert [json.loads(line)["data"]["step"] for line in lines] == [7]


@pytest.mark.parametrize(
    ("closes", "steps"), [("", [7]), ("os.close(number); os.open('/dev/null', os.O_WRONLY)\n", [])]
)
def test_where_its_name_is_not_to_be_seen_the_pipe_that_was_inherited_is_taken_and_no_other(
    closes: str, steps: list[int]
) -> None:
    lines: list[bytes] = []
    code = (
        "import os\nfrom faultlens.progress import Progress\nos.environ['FAULTLENS_PROGRESS'] = '/not/here/progress'\n"
        "number = int(os.environ['FAULTLENS_PROGRESS_FD'].partition(':')[0])\n"
        f"{closes}with Progress.from_environment() as p:\n  p.step(7)"
    )
    environment = {**os.environ, "FAULTLENS_JOB_ID": "j"}
    ending = Run([sys.executable, "-c", code], environment, now_ms=wall_ms, told=lines.append).run()
    assert [json.loads(line)["data"]["step"] for line in lines] == steps
    assert ("progress is not told" in (ending.log_tail or "")) == (not steps)


def test_where_no_named_pipe_can_be_made_the_command_itself_is_handed_one(tmp_path: Path) -> None:
    target, read_end, write_end = channel(tmp_path / "nowhere" / "progress")
    with os.fdopen(read_end, "rb") as reading, Progress("j", 1, to=target) as progress:
        progress.step(3)
        progress.close()
        os.close(write_end)
        assert json.loads(reading.read())["data"]["step"] == 3


# --- attempt after attempt -----------------------------------------------------------------------------------------


class Heard:
    """Keeps what is told, and says what a test wants."""

    def __init__(self, *verdicts: JobAttributed | None) -> None:
        self.events: list[Event] = []
        self.said: list[str] = []
        self.asked: list[bool] = []
        self._verdicts = list(verdicts)

    def put(self, event: Event) -> None:
        self.events.append(event)

    def tell(self, event: Event) -> None:
        return

    def verdict(self, job_id: str, attempt: int, *, decides: bool) -> JobAttributed | None:
        self.asked.append(decides)
        return self._verdicts.pop(0)

    @property
    def types(self) -> list[str]:
        return [event.type.split(".")[2] for event in self.events]


def launched(heard: Heard, code: str, who: Identity = WHO, **options: Any) -> Ending:
    return Launcher(
        who,
        [sys.executable, "-c", code],
        os.environ,
        options=Options(**options),
        sink=heard,
        judge=heard,
        now_ms=wall_ms,
        say=heard.said.append,
    ).run()


def test_all_of_a_job_s_life_is_told() -> None:
    heard = Heard()
    assert launched(heard, "pass").succeeded
    assert heard.types == ["submitted", "allocated", "started", "rank_exited", "ended"]
    assert isinstance(heard.events[1].data, JobAllocated)
    assert heard.events[1].data.allocation == (Slot("n1", (0,), ranks=(0,)),)


def test_only_the_first_rank_tells_of_the_job_and_none_does_where_a_bridge_does() -> None:
    other = Identity(job_id="j", attempt=1, rank=3, ranks=4, node="n1", cluster="c1", nodes=("n1",), devices=None)
    for heard, who, job_events in ((Heard(), other, True), (Heard(), WHO, False)):
        assert launched(heard, "exit(3)", who, retries=5, job_events=job_events).exit_code == 3
        assert heard.types == ["rank_exited"]


def test_it_is_run_again_until_it_succeeds_and_each_attempt_has_its_number() -> None:
    heard = Heard(None, verdict("platform", "retry"))
    ending = launched(heard, "import os; exit(os.environ['FAULTLENS_ATTEMPT'] != '3')", retries=5)
    assert ending.succeeded
    ends = [event.data for event in heard.events if isinstance(event.data, JobEnded)]
    assert [(end.attempt, end.outcome) for end in ends] == [(1, "failed"), (2, "failed"), (3, "succeeded")]
    assert len({event.id for event in heard.events}) == len(heard.events)


def test_what_the_training_tells_is_passed_on_and_nonsense_is_counted() -> None:
    code = (
        "import os\nfrom faultlens.progress import Progress\npipe = open(os.environ['FAULTLENS_PROGRESS'], 'wb')\n"
        "pipe.write(b'nonsense\\n'); pipe.close()\nwith Progress.from_environment() as p: p.step(7)"
    )
    heard = Heard()
    launched(heard, code)
    steps = [event.data.step for event in heard.events if isinstance(event.data, JobProgress)]
    assert steps == [7]


def test_alone_the_same_processors_say_whose_fault_it_was_and_a_mistake_is_not_repeated() -> None:
    heard, judge = Heard(), LocalJudge()
    launcher = Launcher(
        WHO,
        [sys.executable, "-c", MISTAKE],
        os.environ,
        options=Options(retries=5),
        sink=heard,
        judge=judge,
        now_ms=wall_ms,
        say=heard.said.append,
    )
    assert launcher.run().exit_code == 1
    assert heard.types.count("ended") == 1
    assert "user is to blame (app.exception, supported)" in heard.said[0]


def test_a_job_that_was_asked_to_end_was_cancelled() -> None:
    assert telling.outcome_of(Ending(signal=15, asked_to_end=True)) == "cancelled"
    assert telling.outcome_of(Ending(exit_code=0, asked_to_end=True)) == "succeeded"
    assert telling.ended(WHO, 1, Ending(exit_code=1, at_ms=MINUTE_MS), None).time_ms == MINUTE_MS
