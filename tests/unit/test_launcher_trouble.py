"""The launcher in trouble of its own: full disks, broken folders, odd words. The command runs and ends as it would."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from faultlens import cli_launch
from faultlens.clock import wall_ms
from producers.launcher.capture import LOG_TAIL_BYTES, Capture
from producers.launcher.identity import Identity
from producers.launcher.process import Run
from producers.launcher.redaction import redacted
from producers.launcher.telling import Ending

FULL = Path("/dev/full")
# What a pipe holds on Linux (man 7 pipe).
PIPE_BYTES = 65_536
WHO = Identity(job_id="j", attempt=1, rank=0, ranks=1, node="n1", cluster="c1", nodes=("n1",), devices=(0,))


def ran(script: str) -> Ending:
    return Run(["sh", "-c", script], os.environ, now_ms=wall_ms).run()


@contextmanager
def full(descriptor: int) -> Iterator[None]:
    """Let nothing more be written to a descriptor, as on a disk that is full."""
    before, place = os.dup(descriptor), os.open(FULL, os.O_WRONLY)
    os.dup2(place, descriptor)
    try:
        yield
    finally:
        os.dup2(before, descriptor)
        os.close(before)
        os.close(place)


def test_output_that_a_full_disk_does_not_take_ends_no_job() -> None:
    with full(1), full(2):
        ending = ran("echo on; echo off >&2; sleep 0.1; echo last; exit 3")
    assert (ending.exit_code, (ending.log_tail or "").endswith("last\n")) == (3, True)


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_the_exit_code_is_the_command_s_where_the_launcher_can_say_nothing(stream: str) -> None:
    arguments = [sys.executable, "-m", "faultlens.cli", "launch", "--", "sh", "-c", "echo said; exit 4"]
    with FULL.open("wb") as place:
        streams: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, stream: place}
        done = subprocess.run(arguments, **streams, timeout=60, check=False)
    assert done.returncode == 4


def test_events_that_a_full_disk_does_not_take_end_no_job() -> None:
    arguments = [sys.executable, "-m", "faultlens.cli", "launch", "--out", str(FULL), "--", "sh", "-c", "exit 4"]
    done = subprocess.run(arguments, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr.count(b"what is told of this job is lost")) == (4, 1)


def test_where_no_disk_takes_a_spool_the_command_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", fails)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    with cli_launch._surroundings(WHO, None, "127.0.0.1:1", 0.0) as (sink, _):
        assert sink.settle(0.0)
    assert list(tmp_path.rglob("*spool*")) == []


def test_a_reader_that_takes_its_time_gets_all_of_it_from_a_pipe_that_does_not_block() -> None:
    run = "Run(['sh', '-c', 'head -c 300000 /dev/zero'], os.environ, now_ms=lambda: 0).run()"
    script = f"import os; from producers.launcher.process import Run; os.set_blocking(1, False); {run}"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        deadline_s, waiting = monotonic() + 60, 0
        while waiting < PIPE_BYTES and monotonic() < deadline_s:
            (waiting,) = struct.unpack("i", fcntl.ioctl(process.stdout, termios.FIONREAD, b"\0" * 4))
            sleep(0.01)
        assert len(process.stdout.read()) == 300_000


def test_where_no_folder_can_be_made_the_command_runs_without(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "mkdtemp", fails)
    assert ran("exit 3").exit_code == 3


def test_a_folder_that_cannot_be_taken_away_changes_no_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(os, "rmdir", fails)
    assert ran("exit 3").exit_code == 3


@pytest.mark.parametrize("stamp", ["Infinity", "1e999", "1795954000000000", '"soon"', "-1e18"])
def test_an_error_file_with_no_time_that_can_be_is_believed_without(stamp: str) -> None:
    error = '{"message":{"message":"lost","extraInfo":{"timestamp":%s}}}' % stamp  # noqa: UP031 - braces all over
    ending = ran(f"printf '%s' '{error}' > $TORCHELASTIC_ERROR_FILE; exit 3")
    assert (ending.exit_code, ending.log_tail, ending.first_error_ms) == (3, "lost\n", None)


def test_an_error_that_names_a_file_that_is_no_utf_8_is_told() -> None:
    error = json.dumps({"message": "no file " + os.fsdecode(b"caf\xe9")})
    ending = ran(f"printf '%s' '{error}' > $TORCHELASTIC_ERROR_FILE; exit 3")
    assert (ending.exit_code, ending.log_tail) == (3, "no file caf?\n")


def test_an_error_file_of_brackets_only_is_none() -> None:
    assert ran("head -c 60000 /dev/zero | tr '\\0' '[' > $TORCHELASTIC_ERROR_FILE; exit 3").exit_code == 3


def test_what_is_ignored_around_the_launcher_is_ignored_by_the_command() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        ending = ran("kill -HUP $$; exit 3")
    finally:
        signal.signal(signal.SIGHUP, before)
    assert (ending.exit_code, ending.signal) == (3, None)


def test_a_signal_that_comes_while_the_command_is_being_started_reaches_it(monkeypatch: pytest.MonkeyPatch) -> None:
    start = subprocess.Popen

    def slow(*arguments: Any, **more: Any) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        sleep(0.01)
        return start(*arguments, **more)

    monkeypatch.setattr(subprocess, "Popen", slow)
    ending = ran("sleep 20")
    assert (ending.signal, ending.asked_to_end) == (signal.SIGTERM, True)


KEY = "\n".join(("-----BEGIN PRIVATE KEY-----", *["MIIEpAIBAAKCAQEA" * 4] * 50, "-----END PRIVATE KEY-----", ""))


@pytest.mark.parametrize("after", range(4_600, 7_400, 400))
def test_of_a_key_whose_beginning_is_cut_nothing_is_kept(after: int) -> None:
    capture = Capture()
    capture.feed(b"step\n" * 2_000 + KEY.encode() + b"trace\n" * (after // 6))
    assert "MIIEp" in redacted(capture.text())
    assert "MIIEp" not in capture.text(cleaned=redacted)


def test_a_tail_of_binary_output_keeps_the_limit_too() -> None:
    for count in (LOG_TAIL_BYTES - 100, 4 * LOG_TAIL_BYTES):
        capture = Capture()
        capture.feed(b"\xff\xfe" * (count // 2))
        assert len(capture.text().encode()) <= LOG_TAIL_BYTES


@pytest.mark.parametrize("unit", ["a.", "a-", "token", "secret", "x=y&", "eyJ"])
def test_secrets_are_looked_for_in_time_that_does_not_explode(unit: str) -> None:
    began = monotonic()
    redacted((unit * 16_384)[:16_384])
    assert monotonic() - began < 1.0
