"""Runs a command: its output passes through and its last words are kept, signals are passed on to it."""

from __future__ import annotations

import json
import os
import select
import selectors
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import Any, Final

from faultlens.clock import SECOND_MS, moment_of, ms_of
from faultlens.progress import INHERITED, MAX_WORKERS_BYTES, VARIABLE
from producers.launcher.capture import LOG_TAIL_BYTES, Capture
from producers.launcher.redaction import redacted
from producers.launcher.telling import Ending

READ_BYTES: Final = 1 << 16
FORWARDED: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
# Of these the first one is somebody's wish that the job end; a terminal sends SIGINT to the command itself too.
ENDING: Final = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})
# What runs several ranks terminates the others when one has failed: from there SIGTERM is nobody's wish.
ENDING_A_RANK: Final = ENDING - {signal.SIGTERM}
# The command has ended and something it started still holds its output: so long is waited for that.
DRAIN_S: Final = 5.0
ERROR_FILE_BYTES: Final = 64 << 10


class Run:
    """One run of a command; `wishes`: the signals by which somebody asks it to end.

    Called are `told` with each line of progress, `tick` about every second, and `watch` with what it prints on which
    stream.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        now_ms: Callable[[], int],
        told: Callable[[bytes], None] = lambda line: None,
        tick: Callable[[], None] = lambda: None,
        watch: Callable[[int, bytes], None] = lambda stream, data: None,
        wishes: frozenset[signal.Signals] = ENDING,
    ) -> None:
        self._command = list(command)
        self._environment = dict(environment)
        self._now_ms = now_ms
        self._told = told
        self._tick = tick
        self._watch = watch
        self._wishes = wishes
        self._capture = Capture()
        self._lines = b""
        self._process: subprocess.Popen[bytes] | None = None
        self._asked_to_end = False
        self._early: list[int] = []

    def run(self) -> Ending:
        """Run the command to its end and return how it ended. OSError: it cannot be started."""
        with _folder() as folder, self._forwarding():
            error_file = {} if folder is None else {"TORCHELASTIC_ERROR_FILE": str(folder / "error.json")}
            environment = error_file | self._environment
            environment[VARIABLE], read_end, write_end = channel(None if folder is None else folder / "progress")
            pipe = os.fstat(write_end)
            environment[INHERITED] = f"{write_end}:{pipe.st_dev}:{pipe.st_ino}"
            try:
                self._process = subprocess.Popen(  # noqa: S603 - the command is what the user asked to run
                    self._command,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env=environment,
                    # Whether or not it writes there: when nobody holds it any more, nobody will.
                    pass_fds=(write_end,),
                )
            except BaseException:
                os.close(read_end)
                raise
            finally:
                os.close(write_end)
            self._forward_early()
            self._pass_on(self._process, read_end)
            return self._ending(self._process.wait(), environment.get("TORCHELASTIC_ERROR_FILE"))

    # --- output ----------------------------------------------------------------------------------------

    def _pass_on(self, process: subprocess.Popen[bytes], progress: int) -> None:
        """Pass the output on until it ends, or for a while after the command has."""
        assert process.stdout is not None  # noqa: S101 - it was started with pipes
        assert process.stderr is not None  # noqa: S101
        with selectors.DefaultSelector() as selector, os.fdopen(progress, "rb", buffering=0) as lines:
            selector.register(process.stdout, selectors.EVENT_READ, 1)
            selector.register(process.stderr, selectors.EVENT_READ, 2)
            selector.register(lines, selectors.EVENT_READ, 0)
            gone_at: float | None = None
            ticked = monotonic()
            while selector.get_map():
                for key, _ in selector.select(timeout=0.5):
                    self._take(selector, key)
                if monotonic() - ticked >= 1.0:
                    ticked = monotonic()
                    self._tick()
                if gone_at is None and process.poll() is not None:
                    gone_at = monotonic()
                if gone_at is not None and monotonic() - gone_at > DRAIN_S:
                    break
        process.stdout.close()
        process.stderr.close()

    def _take(self, selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
        data = os.read(key.fd, READ_BYTES)
        if not data:
            selector.unregister(key.fileobj)
        elif key.data == 0:
            self._take_progress(data)
        else:
            self._capture.feed(data)
            _write_all(key.data, data)
            self._watch(key.data, data)

    def _take_progress(self, data: bytes) -> None:
        *lines, rest = (self._lines + data).split(b"\n")
        self._lines = rest if len(rest) <= MAX_WORKERS_BYTES else b""
        for line in lines:
            if line:
                self._told(line)

    # --- signals ---------------------------------------------------------------------------------------

    @contextmanager
    def _forwarding(self) -> Iterator[None]:
        # What is ignored here (nohup) is to be ignored by the command too, which inherits that and no handler.
        heard = [number for number in FORWARDED if signal.getsignal(number) is not signal.SIG_IGN]
        before = {number: signal.signal(number, self._forward) for number in heard}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _forward(self, number: int, frame: FrameType | None) -> None:
        self._asked_to_end |= number in self._wishes
        if self._process is None:
            self._early.append(number)
            return
        with suppress(ProcessLookupError):
            self._process.send_signal(number)

    def _forward_early(self) -> None:
        """Pass on what came while the command was being started."""
        while self._early:
            self._forward(self._early.pop(0), None)

    # --- the end ---------------------------------------------------------------------------------------

    def _ending(self, code: int, error_file: str | None) -> Ending:
        error = None if error_file is None else _error_of(Path(error_file))
        # A secret is known by how it begins, which may lie in what is cut.
        text = self._capture.text(cleaned=redacted)
        if error is not None and error[0] not in text:
            text = _with_error(error[0], text)
        return Ending(
            exit_code=code if code >= 0 else None,
            signal=-code if code < 0 else None,
            log_tail=redacted(text) or None,
            first_error_ms=None if error is None else error[1],
            at_ms=self._now_ms(),
            asked_to_end=self._asked_to_end,
        )


@contextmanager
def _folder() -> Iterator[Path | None]:
    """Make a folder for what the command leaves us; None: no disk takes one, for which the command is not to wait.

    One that cannot be taken away, since its disk has broken meanwhile, stays.
    """
    try:
        folder = tempfile.TemporaryDirectory(prefix="faultlens-", ignore_cleanup_errors=True)
    except OSError:
        yield None
        return
    with folder as name:
        yield Path(name)


def channel(path: Path | None) -> tuple[str, int, int]:
    """Make the pipe for the training's lines; return how `faultlens.progress` finds it, and both of its ends.

    It has a name, since torchrun and others hand no descriptor on to their workers. Where no folder takes one, only
    who inherits the descriptor writes.
    """
    if path is None or not _is_made(path):
        read_end, write_end = os.pipe()
        return f"fd:{write_end}", read_end, write_end
    read_end = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    return str(path), read_end, os.open(path, os.O_WRONLY)


def _is_made(pipe: Path) -> bool:
    try:
        os.mkfifo(pipe, 0o600)
    except OSError:
        return False
    return True


def _write_all(fd: int, data: bytes) -> None:
    """Pass output on; a reader that is gone, or a disk that is full or broken, does not end the job."""
    with suppress(OSError):
        while data:
            try:
                data = data[os.write(fd, data) :]
            except BlockingIOError:
                select.select([], [fd], [])


def _error_of(path: Path) -> tuple[str, int | None] | None:
    """Return what torchelastic wrote of the first error and when that was; None: nothing that can be read."""
    try:
        with path.open("rb") as file:
            found: Any = json.loads(file.read(ERROR_FILE_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    message = found.get("message") if isinstance(found, dict) else None
    if isinstance(message, str):
        return _sound(message), None
    if not isinstance(message, dict) or not isinstance(message.get("message"), str):
        return None
    extra = message.get("extraInfo")
    stamp = extra.get("timestamp") if isinstance(extra, dict) else None
    try:
        at_ms = None if stamp is None else ms_of(moment_of(int(stamp) * SECOND_MS))
    except (TypeError, ValueError, OverflowError):
        at_ms = None
    return _sound(message["message"]), at_ms


def _sound(text: str) -> str:
    """Return the text without the halves of characters that Python makes of names that are no UTF-8."""
    return text.encode("utf-8", "replace").decode()


def _with_error(error: str, text: str) -> str:
    """Return the tail with the error file's words before it, within the limit of a tail."""
    error = error[: LOG_TAIL_BYTES // 2]
    room = LOG_TAIL_BYTES - len(error.encode()) - 2
    return f"{error}\n{text.encode()[-room:].decode('utf-8', 'ignore')}"
