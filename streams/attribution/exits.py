"""How a program ended: by its own doing, or because somebody ended it."""

from __future__ import annotations

from typing import Final

# Signals that the kernel sends a program for what the program did. SIGBUS is not one: host memory and storage raise it.
OWN_SIGNALS: Final = frozenset({4, 5, 6, 8, 11, 31})
_SIGBUS: Final = 7
# Shells report a command's signal as 128 + its number; beyond stands what exits with -1 and the like.
_HIGHEST_SIGNAL: Final = 64


def signal_of(exit_code: int | None, signal: int | None) -> int | None:
    """Return the signal that ended a program; a shell's 128 + n is signal n."""
    if signal is None and exit_code is not None and 128 < exit_code <= 128 + _HIGHEST_SIGNAL:
        signal = exit_code - 128
    return signal or None


def ended_by_nobody(exit_code: int | None, signal: int | None) -> bool:
    """Return whether a program failed and nobody ended it: an exit code, or a signal that only the kernel sends."""
    signal = signal_of(exit_code, signal)
    return bool(exit_code) if signal is None else signal in OWN_SIGNALS or signal == _SIGBUS
