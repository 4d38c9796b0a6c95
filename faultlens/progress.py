"""Steps and checkpoints of a training script, told as events: standard library only, and never in the script's way.

    progress = Progress.from_environment()
    for step in range(first, last):
        train(batch)
        progress.step(step)
        if step % 500 == 0:
            with progress.saving(step):
                save(model)

Where the lines go is said by FAULTLENS_PROGRESS: a path (a file, or the named pipe that the launcher makes), or `fd:3`
for a descriptor. Without it nothing happens. Nothing here raises, and nothing waits for a disk or a reader: a thread
writes, what it cannot take is dropped and counted (`dropped`), and the first trouble is logged.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import wraps
from queue import SimpleQueue
from types import MappingProxyType
from typing import Any, Concatenate, Final, ParamSpec, Self

VARIABLE: Final = "FAULTLENS_PROGRESS"
# The same pipe as descriptor, device and inode: who inherited it may not see its name.
INHERITED: Final = "FAULTLENS_PROGRESS_FD"
# At most so many lines wait for the thread, each at most so long: a pipe takes that much from several writers
# without mixing their lines (PIPE_BUF).
MAX_WAITING: Final = 1_000
MAX_LINE_BYTES: Final = 4_096
# Who takes part is told by one process alone; the contract's limit of a record.
MAX_WORKERS_BYTES: Final = 256 << 10
# The CloudEvents extension that says where a checkpoint lies.
CHECKPOINT_PATH: Final = "checkpointpath"
# Of a larger job only the slowest ranks are named, with the quantiles of all.
MAX_RANKS: Final = 64
SLOWEST_RANKS: Final = 16
# Steps may take milliseconds; a record every ten seconds tells as much.
EVERY_S: Final = 10.0
CLOSE_S: Final = 2.0

Target = str | os.PathLike[str] | int | Callable[[bytes], object]
P = ParamSpec("P")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_log: Final = logging.getLogger("faultlens.progress")


def _harmless(
    method: Callable[Concatenate[Progress, P], None],
) -> Callable[Concatenate[Progress, P], None]:
    """Return the method such that whatever goes wrong in it is counted and told, and the training goes on."""

    @wraps(method)
    def harmless(self: Progress, /, *args: P.args, **kwargs: P.kwargs) -> None:
        if not self._writer.is_on:
            return
        try:
            method(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - telling of the training must not end it
            self._writer.lose(repr(error))

    return harmless


class Progress:
    """Tells of one attempt of a job (from 1). `to`: a path, `fd:N`, a descriptor, or what gets each line, in the
    writing thread; None: nobody is told.

    `every_s`: at most one record of progress in that time; the steps between are folded into it. `clock_ns` is this
    machine's clock, in nanoseconds since the epoch.
    """

    def __init__(
        self,
        job_id: str,
        attempt: int,
        *,
        to: Target | None = None,
        every_s: float = EVERY_S,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._writer = _Writer(to)
        self._job_id = job_id
        self._attempt = attempt
        self._every_ns = round(every_s * 1e9)
        self._clock_ns = clock_ns
        self._due_ns = 0
        self._folded = _Folded()
        if to is not None:
            atexit.register(self.close)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ, *, every_s: float = EVERY_S) -> Progress:
        """Return what tells of the job that the environment names: FAULTLENS_JOB_ID and FAULTLENS_ATTEMPT, or Slurm's.

        Of several ranks (RANK, SLURM_PROCID) only the first one tells.
        """
        target = environment.get(VARIABLE) or None
        job_id, attempt = named_job(environment)
        if target is not None and job_id is None:
            _log.warning("%s is set, but neither FAULTLENS_JOB_ID nor SLURM_JOB_ID: no progress is told", VARIABLE)
        first = environment.get("RANK", environment.get("SLURM_PROCID", "0")) == "0"
        return cls(job_id or "", attempt, to=target if first and job_id is not None else None, every_s=every_s)

    @property
    def dropped(self) -> int:
        """How many records were lost because nobody took them, they could not be written, or made no sense."""
        return self._writer.dropped

    @property
    def problem(self) -> str:
        """What the first of them was lost by; empty: none was."""
        return self._writer.problem

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @_harmless
    def step(
        self,
        step: int,
        *,
        seconds: float | None = None,
        ranks: Mapping[int, float] | None = None,
        tokens: float | None = None,
    ) -> None:
        """Tell that a step is complete: how long it took, here or on each rank (seconds), and tokens done in it."""
        now_ns = self._clock_ns()
        self._folded.add(step, now_ns, seconds=seconds, ranks=ranks, tokens=tokens)
        if now_ns >= self._due_ns:
            self._due_ns = now_ns + self._every_ns
            self._tell_progress()

    @_harmless
    def checkpoint(
        self,
        step: int,
        duration_s: float,
        *,
        ok: bool = True,
        restored: bool = False,
        blocking: bool = True,
        path: str | os.PathLike[str] | None = None,
    ) -> None:
        """Tell that a checkpoint of `step` was saved or restored just now; `blocking`: no steps were done meanwhile.

        `path`: where it lies, which the launcher hands to the next attempt (FAULTLENS_CHECKPOINT_PATH).
        """
        data = {"step": int(step), "duration_s": float(duration_s), "ok": bool(ok)}
        flags = {"restored": bool(restored), "blocking": bool(blocking)}
        where = {} if path is None else {CHECKPOINT_PATH: os.fspath(path)}
        self._tell("checkpoint", self._clock_ns(), data | flags, where)

    @contextmanager
    def saving(self, step: int, *, blocking: bool = True, path: str | os.PathLike[str] | None = None) -> Iterator[None]:
        """Tell of the checkpoint that the body saves and how long that took; a body that raises did not save it."""
        began = time.monotonic()
        try:
            yield
        except BaseException:
            self.checkpoint(step, time.monotonic() - began, ok=False, blocking=blocking)
            raise
        self.checkpoint(step, time.monotonic() - began, blocking=blocking, path=path)

    @_harmless
    def workers(self, nodes: Sequence[str]) -> None:
        """Tell which workers take part: the node of each rank, in the order of ranks.

        For elastic training, each time that its workers have met. The launcher knows who took part before, and tells
        of those that are lost.
        """
        ranks: dict[str, list[int]] = {}
        for rank, node in enumerate(nodes):
            ranks.setdefault(str(node), []).append(rank)
        slots = [{"node": node, "ranks": numbers} for node, numbers in ranks.items()]
        self._tell("resized", self._clock_ns(), {"allocation": slots, "lost": []}, limit=MAX_WORKERS_BYTES)

    @_harmless
    def close(self, timeout_s: float = CLOSE_S) -> None:
        """Tell of the last step and let the thread finish, for at most so long. Called at the interpreter's exit."""
        atexit.unregister(self.close)
        if self._folded.steps:
            self._tell_progress()
        self._writer.close(timeout_s)

    def _tell_progress(self) -> None:
        folded, self._folded = self._folded, _Folded()
        self._tell("progress", folded.at_ns, folded.fields())

    def _tell(
        self,
        what: str,
        at_ns: int,
        data: dict[str, Any],
        extension: Mapping[str, str] = MappingProxyType({}),
        limit: int = MAX_LINE_BYTES,
    ) -> None:
        """Hand a record on. Its id is new in every process, since a step may be done twice in one attempt."""
        record = {
            "specversion": "1.0",
            "type": f"faultlens.job.{what}.v1",
            "source": f"launcher/{self._job_id}",
            "id": self._writer.next_id(),
            "subject": self._job_id,
            "time": (_EPOCH + timedelta(microseconds=at_ns // 1_000)).isoformat(timespec="milliseconds"),
            "data": {"job_id": self._job_id, "attempt": self._attempt} | data,
            **extension,
        }
        line = json.dumps(record, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"
        if len(line) > limit:
            raise ValueError(f"a record of {len(line)} bytes is longer than {limit}")
        self._writer.put(line)


def named_job(environment: Mapping[str, str]) -> tuple[str | None, int]:
    """Return the job's id and attempt as the launcher names them, as Slurm's sacct does (`1099_5`, `1105+1`), or as
    torchrun does, whose restarts are attempts where nobody else counts them."""
    run = environment.get("TORCHELASTIC_RUN_ID") or "none"
    again = _number(environment.get("TORCHELASTIC_RESTART_COUNT"))
    if job_id := environment.get("FAULTLENS_JOB_ID"):
        return job_id, max(1, _number(environment.get("FAULTLENS_ATTEMPT")) or 1 + again)
    array, task = environment.get("SLURM_ARRAY_JOB_ID"), environment.get("SLURM_ARRAY_TASK_ID")
    leader, part = environment.get("SLURM_HET_JOB_ID"), environment.get("SLURM_HET_JOB_OFFSET", "0")
    if array and task:
        job_id = f"{array}_{task}"
    elif leader:
        job_id = f"{leader}+{part}"
    elif not (job_id := environment.get("SLURM_JOB_ID")):
        return None if run == "none" else run, 1 + again
    return job_id, 1 + _number(environment.get("SLURM_RESTART_COUNT"))


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isdecimal() else 0


class _Folded:
    """Steps that one record tells of: the last one, the mean of their times, the sum of their tokens."""

    def __init__(self) -> None:
        self.steps = 0
        self.at_ns = 0
        self._step = 0
        self._timed = 0
        self._seconds = 0.0
        self._tokens: float | None = None
        self._ranks: Mapping[int, float] | None = None

    def add(
        self,
        step: int,
        at_ns: int,
        *,
        seconds: float | None,
        ranks: Mapping[int, float] | None,
        tokens: float | None,
    ) -> None:
        """Take one more step."""
        self._step, self.at_ns = int(step), at_ns
        self.steps += 1
        if seconds is not None:
            self._timed += 1
            self._seconds += float(seconds)
        if tokens is not None:
            self._tokens = (self._tokens or 0.0) + float(tokens)
        self._ranks = ranks or self._ranks

    def fields(self) -> dict[str, Any]:
        """Return the data of the record."""
        fields: dict[str, Any] = {"step": self._step}
        if self._timed:
            fields["step_time_s"] = self._seconds / self._timed
        if self._tokens is not None:
            fields["tokens"] = self._tokens
        return fields | (rank_fields(self._ranks) if self._ranks else {})


def rank_fields(times: Mapping[int, float]) -> dict[str, Any]:
    """Return what a record says of the ranks' step times (seconds): all of a small job, else the slowest and quantiles.

    A quantile is the smallest time that at least this share of all ranks does not exceed.
    """
    slowest = sorted(((float(time_s), int(rank)) for rank, time_s in times.items()), reverse=True)
    named = slowest if len(slowest) <= MAX_RANKS else slowest[:SLOWEST_RANKS]
    fields: dict[str, Any] = {"ranks": {str(rank): time_s for time_s, rank in named}}
    if len(slowest) > MAX_RANKS:
        shares = {"p50": 50, "p90": 90, "p99": 99, "max": 100}
        fields["quantiles"] = {name: slowest[len(slowest) * (100 - of) // 100][0] for name, of in shares.items()}
    return fields


class _Writer:
    """Hands lines on in a thread of its own, so that a full disk, a dead mount or a slow reader holds nobody up.

    There is no lock that the training could wait for, not even in a signal handler that interrupts it: the queue may
    be entered again, and its bound is looked at, not enforced to the line. A forked child begins anew.
    """

    def __init__(self, to: Target | None) -> None:
        self._to = to
        self._write: Callable[[bytes], object] | None = None
        self.is_on = to is not None
        self.dropped = 0
        self.problem = ""
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._run = os.urandom(6).hex()
        self._told = 0
        self._queue: SimpleQueue[bytes | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def next_id(self) -> str:
        """Return an id that no other record of this source has."""
        if self._process != os.getpid():
            self._begin()
        self._told += 1
        return f"{self._run}-{self._told}"

    def lose(self, why: str) -> None:
        """Count a record that is lost; the first one is logged with its reason."""
        self.dropped += 1
        if not self.problem:
            self.problem = why
            _log.warning("progress is not told: %s", why)

    def put(self, line: bytes) -> None:
        """Let the thread write the line when it comes to it."""
        if self._queue.qsize() >= MAX_WAITING:
            self.lose(f"{MAX_WAITING} records wait to be written already")
            return
        self._queue.put(line)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="faultlens-progress", daemon=True)
            self._thread.start()

    def close(self, timeout_s: float) -> None:
        """Let the thread end when it has written what waits, and give it so long."""
        thread, self._thread = self._thread, None
        if thread is not None and self._process == os.getpid():
            self._queue.put(None)
            thread.join(timeout_s)

    def _work(self) -> None:
        queue = self._queue
        while (line := queue.get()) is not None:
            try:
                self._write = self._write or _opened(self._to)
                self._write(line)
            except Exception as error:  # noqa: BLE001 - a reader that is gone, a full disk, whatever a callable raises
                self.lose(f"{self._to}: {error}")


def _opened(to: Target | None) -> Callable[[bytes], object]:
    """Return what writes a line to the target; OSError or ValueError if there is none."""
    if callable(to):
        return to
    path = f"fd:{to}" if isinstance(to, int) else os.fspath(to or "")
    number = int(path.removeprefix("fd:")) if path.startswith("fd:") else _inherited(path, os.environ)
    if number is None:
        number = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    return _Descriptor(number).write


def _inherited(path: str, environment: Mapping[str, str]) -> int | None:
    """Return the descriptor that is the pipe of this name; None: it was not handed on, or is another file by now."""
    number, _, pipe = environment.get(INHERITED, "").partition(":")
    with suppress(OSError, ValueError):
        found = os.fstat(int(number))
        if path == environment.get(VARIABLE) and pipe == f"{found.st_dev}:{found.st_ino}":
            return int(number)
    return None


class _Descriptor:
    """An open file; a line of which only a part could be written is ended before the next one."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._torn = False

    def write(self, line: bytes) -> None:
        """Write the whole line; OSError."""
        left = b"\n" + line if self._torn else line
        while left:
            written = os.write(self._number, left)
            left = left[written:]
            self._torn = bool(left)
