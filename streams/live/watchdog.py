"""When a worker must end, because it stands still: whoever takes over may be luckier."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread
from typing import Final

from faultlens.clock import monotonic_s

# A run of records that is not done with after this long never will be. It contains loading a lane's states, and the
# longest that a broker may be away before a transaction fails by itself.
STUCK_SECONDS: Final = 90.0
# One that is told to end and cannot say good-bye to its brokers is not waited for: what is open is rolled back.
ENDING_SECONDS: Final = 15.0
_LOOK_EVERY_SECONDS: Final = 1.0


def stuck(oldest_s: float | None, alive_s: float, now_s: float, ending_s: float | None = None) -> str | None:
    """Return why the worker must end; None: it goes on. `oldest_s`: when the oldest run came that is not done with;
    `alive_s`: when the worker's loop last said that it turns; `ending_s`: since when it is to end."""
    if ending_s is not None and now_s - ending_s > ENDING_SECONDS:
        return f"it was told to end {now_s - ending_s:.0f} s ago, and the brokers do not let it go"
    if oldest_s is not None and now_s - oldest_s > STUCK_SECONDS:
        return f"records that came {now_s - oldest_s:.0f} s ago are not done with"
    if now_s - alive_s > STUCK_SECONDS:
        return f"the worker's loop stands still for {now_s - alive_s:.0f} s"
    return None


class Watchdog:
    """Looks each second, in a thread of its own: a worker that stands still cannot be trusted to notice."""

    def __init__(
        self,
        oldest_s: Callable[[], float | None],
        bark: Callable[[str], None],
        is_ending: Callable[[], bool] = lambda: False,
    ) -> None:
        self._oldest_s = oldest_s
        self._bark = bark
        self._is_ending = is_ending
        self._ending_s: float | None = None
        self._alive_s = monotonic_s()
        self._over = Event()
        self._thread = Thread(target=self._watch, name="watchdog", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._over.set()

    def alive(self) -> None:
        """Say that the worker's loop turns."""
        self._alive_s = monotonic_s()

    def _watch(self) -> None:
        while not self._over.wait(_LOOK_EVERY_SECONDS):
            if self._ending_s is None and self._is_ending():
                self._ending_s = monotonic_s()
            why = stuck(self._oldest_s(), self._alive_s, monotonic_s(), self._ending_s)
            if why is not None:
                self._bark(why)
