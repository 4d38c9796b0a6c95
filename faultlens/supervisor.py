"""Keeps programs running: starts them, starts those anew that end, with growing patience, and ends all together."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.context import ForkProcess
from threading import Event
from typing import Any, Final

from faultlens.clock import monotonic_s

FIRST_WAIT_SECONDS: Final = 0.5
LONGEST_WAIT_SECONDS: Final = 30.0
# One that ran this long before it ended is started anew at once: it did well.
SETTLED_SECONDS: Final = 60.0
_LOOK_EVERY_SECONDS: Final = 0.2
_STOP_SECONDS: Final = 30.0

Tell = Callable[[str], None]
Program = Callable[[], object]

# A copy of this process has all modules already: it takes them neither time nor memory of its own.
_fork: Final = get_context("fork").Process


@dataclass
class _Child:
    name: str
    program: Program
    process: ForkProcess | None = None
    started_s: float = 0.0
    failures: int = 0
    again_s: float = 0.0


def next_wait_s(failures: int) -> float:
    """Return how long to wait before starting anew what has ended for the n-th time in a row."""
    return min(LONGEST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2.0 ** max(0, min(failures, 16) - 1))


class Supervisor:
    """Runs programs by name, each in a copy of this process, until told to stop. `tell` hears of each start and end.

    A child that ends with one of `final` codes will not do better the next time: then all end, with that code. There
    must be no other thread in this process.
    """

    def __init__(self, programs: Mapping[str, Program], tell: Tell, *, final: frozenset[int]) -> None:
        self._children = [_Child(name, program) for name, program in programs.items()]
        self._tell = tell
        self._final = final
        self._stop = Event()

    def run(self) -> int:
        """Run until SIGTERM or SIGINT, then end all children; return the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stopped)
        code = 0
        try:
            while not self._stop.is_set() and not code:
                for child in self._children:
                    code = code or self._look(child)
                self._stop.wait(_LOOK_EVERY_SECONDS)
        finally:
            self._end_all()
        return code

    def _stopped(self, number: int, frame: Any) -> None:
        self._stop.set()

    def _look(self, child: _Child) -> int:
        """Start the child if it does not run and its time has come; return a code that ends everything, else 0."""
        now_s = monotonic_s()
        if child.process is not None:
            code = child.process.exitcode
            if code is None:
                return 0
            child.process = None
            child.failures = 0 if now_s - child.started_s > SETTLED_SECONDS else child.failures + 1
            child.again_s = now_s + (next_wait_s(child.failures) if child.failures else 0.0)
            self._tell(f"{child.name} ended with {code}; again in {child.again_s - now_s:.1f} s")
            if code in self._final:
                return code
        if now_s >= child.again_s:
            child.process = _fork(target=_begun, args=(child.program,), name=child.name)
            child.process.start()
            child.started_s = now_s
            self._tell(f"{child.name} runs as {child.process.pid}")
        return 0

    def _end_all(self) -> None:
        running = [child for child in self._children if child.process is not None]
        for child in running:
            if child.process is not None:
                child.process.terminate()
        for child in running:
            _await_end(child)


def _begun(program: Program) -> None:
    """Run the program; signals are no more the supervisor's."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    program()


def _await_end(child: _Child) -> None:
    if child.process is None:
        return
    child.process.join(_STOP_SECONDS)
    if child.process.exitcode is None:
        child.process.kill()
        child.process.join()
