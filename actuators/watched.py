"""Runs a program of the host that may take long: with signs of life, an end in time, and none left behind."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

import msgspec
from msgspec import Struct

from actuators.others_words import one_line
from actuators.sdk import Beat, Failed, Memory

_LOOK_EVERY_S: Final = 1.0
_SAID_BYTES: Final = 8_192
_GONE_WITHIN_S: Final = 10.0

Execute = Callable[[Sequence[Sequence[str]], Beat, Memory], None]


class Running(Struct, frozen=True, omit_defaults=True):
    """A program of ours as it was begun: its process, since when by the kernel, and how many before it are through."""

    pid: int = 0
    started: str = ""
    through: int = 0


def run_all(programs: Sequence[Sequence[str]], beat: Beat, memory: Memory) -> None:
    """Run programs one after the other; one that goes on after a kill leaves out those that are through.

    What a killed one left running is ended first: it would run beside itself. Raises Failed: a program cannot be run,
    failed, or cannot be ended.
    """
    before = _noted(memory)
    if before.pid:
        _end_orphan(before)
    for number, program in enumerate(programs):
        if number >= before.through:
            _run(program, beat, memory, number)
            memory.keep(msgspec.json.encode(Running(through=number + 1)))


def _noted(memory: Memory) -> Running:
    note = memory.recall()
    return Running() if note is None else msgspec.json.decode(note, type=Running)


def _run(program: Sequence[str], beat: Beat, memory: Memory, through: int) -> None:
    with tempfile.TemporaryFile() as said:
        try:
            process = subprocess.Popen(  # noqa: S603 - an argument list, from configuration and checked names
                list(program), stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True
            )
        except OSError as error:
            raise Failed(f"{program[0]} cannot be run: {error.strerror or error}") from None
        try:
            memory.keep(msgspec.json.encode(Running(process.pid, started_at(process.pid), through)))
            _wait(process, beat)
        except BaseException:  # out of time, or told to stop: what it has begun ends with it
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        if process.returncode != 0:
            raise Failed(f"{program[0]} ended with {process.returncode}: {_last_of(said)}")


def _wait(process: subprocess.Popen[bytes], beat: Beat) -> None:
    while True:
        try:
            process.wait(_LOOK_EVERY_S)
        except subprocess.TimeoutExpired:
            beat()
        else:
            return


def _last_of(said: IO[bytes]) -> str:
    """Return the end of what a program said: what went wrong stands there."""
    size = said.seek(0, os.SEEK_END)
    said.seek(max(0, size - _SAID_BYTES))
    return one_line(said.read().decode("utf-8", "replace").strip()[-300:])


def _end_orphan(before: Running) -> None:
    try:
        process = os.pidfd_open(before.pid)
    except ProcessLookupError:
        return
    try:
        if started_at(before.pid) != before.started:
            return  # another program has the number by now
        with suppress(ProcessLookupError):
            os.killpg(before.pid, signal.SIGKILL)
        if not select.select([process], [], [], _GONE_WITHIN_S)[0]:
            raise Failed(f"process {before.pid} of before a kill goes on, and cannot be ended")
    finally:
        os.close(process)


def started_at(pid: int) -> str:
    """Return since when a process runs, in the kernel's ticks; empty: there is none of that number, or it is over."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in (b"Z", b"X") else fields[19].decode()
