"""`faultlens import`: what it is given, what it says, and what it writes."""

import gzip
import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from faultlens import cli
from faultlens.codec import Decoder, Event
from faultlens.events import NodeFault

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "slurm"
XID = "NVRM: Xid (PCI:0000:9b:00): 79, pid=1234, name=python3, GPU has fallen off the bus."
KERNEL_LOG = ("--node", "n1", "--family", "H100", "--cluster", "c1")


class Done(NamedTuple):
    """What a run of the program left."""

    returncode: int
    stdout: str
    stderr: str


Run = Callable[..., Done]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    def ran(*arguments: str, text: str = "") -> Done:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        with pytest.raises(SystemExit) as ended:
            cli.main(["import", *arguments])
        shown = capsys.readouterr()
        code = ended.value.code
        return Done(code if isinstance(code, int) else 0, shown.out, shown.err)

    return ran


@pytest.fixture
def kernel(run: Run) -> Run:
    def ran(*arguments: str, text: str) -> Done:
        return run("kernel-log", "-", *KERNEL_LOG, *arguments, text=text)

    return ran


def events(output: str) -> list[Event]:
    decoder = Decoder()
    return [decoder.decode(line.encode()) for line in output.splitlines()]


def test_a_folder_is_enough_and_what_was_chosen_is_said(run: Run) -> None:
    done = run("slurm", str(EXAMPLE), "--cluster", "lab", "--timezone", "UTC")
    assert done.returncode == 0
    assert len(events(done.stdout)) == 773
    assert "sacct: sacct_D_ALL_x1f.txt" in done.stderr
    assert "773 events, 152 jobs, 176 runs" in done.stderr


def test_events_go_to_a_file_and_the_summary_is_json(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "events.jsonl"
    done = run("slurm", str(EXAMPLE), "--cluster", "lab", "--timezone", "UTC", "--out", str(out), "--json")
    summary = json.loads(done.stdout)
    assert (summary["runs"], summary["outcomes"]["never_started"], summary["out"]) == (176, 11, str(out))
    assert len(events(out.read_text(encoding="utf-8"))) == summary["events"]
    assert [path.name for path in tmp_path.iterdir()] == ["events.jsonl"]


def test_times_without_a_zone_are_warned_of_loudly(run: Run) -> None:
    done = run("slurm", "--sacct", str(EXAMPLE / "sacct_D_ALL_x1f.txt"), "--cluster", "lab")
    assert "--timezone was not given: taken for UTC" in done.stderr
    assert "no node events" in done.stderr


def test_a_bad_line_is_named_and_everything_else_is_read(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt"
    path.write_text("JobID|State|Start|End\n1|FAILED|1795954000|1795954001\n2|\x1b[31mODD|1|2\n", encoding="utf-8")
    done = run("slurm", "--sacct", str(path), "--cluster", "lab")
    assert done.returncode == 0
    assert "sacct line 3 left out: not a job state: '\\x1b[31mODD'" in done.stderr
    assert {event.subject for event in events(done.stdout)} == {"1"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["slurm", "--cluster", "c"], "give a folder with exports, or --sacct FILE"),
        (["slurm", str(EXAMPLE), "--live", "--cluster", "c"], "give a folder with exports"),
        (["slurm", "/no/such/folder", "--cluster", "c"], "no such folder"),
        (["slurm", str(ROOT / "tests"), "--cluster", "c"], "no export of sacct"),
        (["slurm", "--sacct", "/no/such/file", "--cluster", "c"], "/no/such/file cannot be read: No such file"),
        (["slurm", "--events", str(EXAMPLE / "sacctmgr_event_epoch.psv"), "--cluster", "c"], "--sacct FILE is needed"),
        (["slurm", str(EXAMPLE), "--cluster", "c", "--timezone", "Mars/Base"], "no such time zone"),
        (["slurm", "--sacct", str(EXAMPLE / "scontrol_show_config.txt"), "--cluster", "c"], "--parsable2"),
        (
            ["kernel-log", "/no/such.log", "--node", "n", "--family", "H100", "--cluster", "c"],
            "/no/such.log cannot be read",
        ),
        (["kernel-log", "/", "--node", "n", "--family", "H100", "--cluster", "c"], "/ is a directory"),
        (["kernel-log", "/dev/null", "--node", "n", "--family", "H100", "--cluster", "c"], "/dev/null is a device"),
        (["slurm", str(ROOT / "Makefile"), "--cluster", "c"], "is a file and no folder"),
        (["slurm", str(EXAMPLE), "--cluster", ""], "Give --cluster NAME, or set FAULTLENS_CLUSTER"),
        (["kernel-log", "-", "--node", "n", "--family", "H100", "--cluster", "c", "--year", "12"], "--year 12"),
        (["kernel-log", "-", "--node", "n", "--family", "banana", "--cluster", "c"], "unknown GPU family 'banana'"),
    ],
)
def test_wrong_use_ends_with_2_and_says_what_to_do(run: Run, arguments: list[str], said: str) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_an_unwritable_file_is_the_worlds_fault(run: Run) -> None:
    done = run("slurm", str(EXAMPLE), "--cluster", "lab", "--out", "/proc/no/such/events.jsonl")
    assert done.returncode == 3
    assert "cannot be written" in done.stderr


def test_a_kernel_log_becomes_faults_of_its_node(kernel: Run, tmp_path: Path) -> None:
    gpus = tmp_path / "gpus.csv"
    gpus.write_text("index, pci.bus_id, uuid, serial\n4, 00000000:9B:00.0, GPU-aa, 1650\n", encoding="utf-8")
    done = kernel("--gpus", str(gpus), "--pool", "train", text=f"2026-11-23T04:12:07,512000+00:00 {XID}\n")
    [event] = events(done.stdout)
    assert isinstance(event.data, NodeFault)
    assert (event.source, event.data.code, event.data.pool) == ("agent/n1", "79", "train")
    assert event.data.device is not None
    assert (event.data.device.index, event.data.device.uuid, event.data.device.serial) == (4, "GPU-aa", "1650")
    assert "1 events, 1 lines" in done.stderr


def test_a_log_comes_through_a_pipe_too_which_can_be_read_once(run: Run) -> None:
    reading, writing = os.pipe()
    os.write(writing, f"2026-11-23T04:12:07Z n1 kernel: {XID}\n".encode())
    os.close(writing)
    done = run("kernel-log", f"/dev/fd/{reading}", *KERNEL_LOG)
    os.close(reading)
    assert [event.data.code for event in events(done.stdout) if isinstance(event.data, NodeFault)] == ["79"]


def test_a_packed_log_is_unpacked(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "kern.log.gz"
    path.write_bytes(gzip.compress(f"[Sun Feb 23 16:24:18 2025] {XID}\n".encode()))
    done = run("kernel-log", str(path), *KERNEL_LOG)
    assert len(events(done.stdout)) == 1
    assert "1 times carry no time zone" in done.stderr


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (f"[  123.456789] {XID}", "--boot-time"),
        (f"Nov 23 04:12:07 n1 kernel: {XID}", "--year"),
    ],
)
def test_what_a_time_lacks_is_named_by_the_option_that_gives_it(kernel: Run, line: str, said: str) -> None:
    done = kernel(text=line + "\n")
    assert done.returncode == 2
    assert said in done.stderr


def test_the_boot_time_is_a_moment_or_an_epoch(kernel: Run) -> None:
    for given in ("2026-11-23T04:00:00Z", "1795406400"):
        [event] = events(kernel("--boot-time", given, text=f"[  100.500000] {XID}\n").stdout)
        assert event.time_ms == 1_795_406_500_500
    assert kernel("--boot-time", "yesterday", text="").returncode == 2


def test_lines_that_user_space_wrote_are_tests_unless_trusted(kernel: Run) -> None:
    line = f"12,1,100000000,-;{XID}\n"
    for options, synthetic in (((), True), (("--trust-user-space",), False)):
        [event] = events(kernel("--boot-time", "2026-11-23T04:00:00Z", *options, text=line).stdout)
        assert isinstance(event.data, NodeFault)
        assert event.data.synthetic is synthetic


def test_a_second_clusters_kernel_log_names_its_node_as_its_jobs_do(kernel: Run) -> None:
    done = kernel("--prefix", "--boot-time", "2026-11-23T04:00:00Z", text=f"[ 12.5] {XID}\n")
    (event,) = events(done.stdout)
    assert isinstance(event.data, NodeFault)
    assert (event.subject, event.data.node, event.data.cluster) == ("c1:n1", "c1:n1", "c1")
