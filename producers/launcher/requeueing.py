"""Running a job again where a scheduler has it: the scheduler is asked, since it counts attempts and chooses nodes."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from faultlens.errors import WorldError

_ANSWER_S: Final = 60.0


class SlurmQueue:
    """Slurm's, by `scontrol`. `restarts`: how often the job was started anew already; `ready`: is called before it is
    asked, since it then ends all that runs in the job."""

    def __init__(self, environment: Mapping[str, str], program: str, ready: Callable[[], object]) -> None:
        self._ready = ready
        self._job = environment["SLURM_JOB_ID"]
        self._program = program
        text = environment.get("SLURM_RESTART_COUNT", "0")
        self.restarts = int(text) if text.isascii() and text.isdigit() else 0

    def again(self, exclude: Sequence[str]) -> None:
        """Put the job back into the queue, to run anywhere but on these nodes. WorldError: Slurm does not do it."""
        self._ready()
        with _not_ended():
            if not exclude:
                self._ask("requeue", self._job)
                return
            # Nodes can only be excluded while it waits, and it may not start before they are.
            self._ask("requeuehold", self._job)
            self._ask("update", f"JobId={self._job}", f"ExcNodeList={','.join(exclude)}")
            self._ask("release", self._job)

    def _ask(self, *arguments: str) -> None:
        try:
            done = subprocess.run(  # noqa: S603 - a fixed list
                [self._program, *arguments], capture_output=True, timeout=_ANSWER_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise WorldError(f"{self._program} {arguments[0]}: {error}") from None
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip()
            raise WorldError(f"{self._program} {arguments[0]}: {said[-300:] or f'exit status {done.returncode}'}")


@contextmanager
def _not_ended() -> Iterator[None]:
    """Let SIGTERM end neither us nor what we start meanwhile: Slurm sends it to the whole job, half a minute (KillWait)
    before it kills."""
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def queue_of(environment: Mapping[str, str], ready: Callable[[], object] = lambda: None) -> SlurmQueue | None:
    """Return the queue that this job came from; None: no scheduler started it, or it cannot be asked from here."""
    program = shutil.which("scontrol", path=environment.get("PATH"))
    if program is None or not environment.get("SLURM_JOB_ID"):
        return None
    return SlurmQueue(environment, program, ready)
