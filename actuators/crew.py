"""Carries commands out side by side, and ends when it is told to, whatever is still being done."""

from __future__ import annotations

from collections import deque
from threading import Condition, Thread
from typing import Final

from actuators.worker import Stopped, Worker
from faultlens.clock import monotonic_s
from faultlens.errors import WorldError
from faultlens.events import RemediationCommand

# A drain may take an hour: others must not wait behind it.
AT_ONCE: Final = 32


class Crew:
    """A worker's hands. `begin` takes any number of commands; so many at once are carried out, in their order.

    A hand that is in the middle of something that cannot be interrupted does not hold up the end of the process: that
    is a kill, after which the next worker goes on.
    """

    def __init__(self, worker: Worker, *, at_once: int = AT_ONCE, name: str = "act") -> None:
        self._worker = worker
        self._waiting: deque[RemediationCommand] = deque()
        self._changed = Condition()
        self._busy = self._left = 0
        self._is_over = False
        self._trouble: Exception | None = None
        self._hands = [Thread(target=self._work, name=f"{name}-{n}", daemon=True) for n in range(at_once)]
        for hand in self._hands:
            hand.start()

    def begin(self, command: RemediationCommand) -> None:
        """Have a command carried out when a hand is free."""
        with self._changed:
            self._waiting.append(command)
            self._changed.notify()

    def check(self) -> None:
        """WorldError: a command could not be written down or told, and nothing more is to be begun."""
        if self._trouble is not None:
            raise self._trouble

    def finish(self, pause_s: float = 1.0) -> None:
        """Return when all commands have ended. Raises what `check` does."""
        with self._changed:
            while (self._waiting or self._busy) and self._trouble is None:
                self._changed.wait(pause_s)
        self.check()

    def stop(self, patience_s: float) -> int:
        """Begin nothing more, wait at most so long for what is being done; return how many commands have not ended."""
        self._worker.stop()
        until_s = monotonic_s() + patience_s
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
            while self._busy and (left_s := until_s - monotonic_s()) > 0:
                self._changed.wait(left_s)
            return self._busy + self._left + len(self._waiting)

    def _work(self) -> None:
        while (command := self._next()) is not None:
            trouble: Exception | None = None
            is_left = False
            try:
                self._worker.take(command)
            except Stopped:
                is_left = True
            except WorldError as error:
                trouble, is_left = error, True
            with self._changed:
                self._busy, self._left = self._busy - 1, self._left + is_left
                self._trouble = self._trouble or trouble
                self._changed.notify_all()

    def _next(self) -> RemediationCommand | None:
        with self._changed:
            while not self._waiting and not self._is_over:
                self._changed.wait()
            if self._is_over:
                return None
            self._busy += 1
            return self._waiting.popleft()
