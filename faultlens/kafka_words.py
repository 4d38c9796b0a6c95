"""What Kafka's client complains of, in words that a person reads, and the same ones for the same trouble."""

from __future__ import annotations

import re
from typing import Any, Final

# Which of our clients says it, in which thread, and after how long, is another each time.
_VARIES: Final = re.compile(
    r"\[[\w.-]+#\w+-\d+\] ?|\[thrd:[^\]]*\]: ?"
    r"| ?\(after \d+ms in state \w+(?:, \d+ identical error\(s\) suppressed)?\)"
)
_REFUSED: Final = frozenset({"_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED"})
# Says less than what led to it.
_ALL_DOWN: Final = "_ALL_BROKERS_DOWN"


def plain(text: str) -> str:
    """Return what librdkafka says without what differs from one time to the next."""
    return _VARIES.sub("", text)


def explained(error: Any) -> str:
    """Return what an error of the client means to people."""
    if error.name() in _REFUSED:
        return f"they refuse our user or password ({plain(error.str())})"
    return plain(error.str()) or str(error.name())


class Complaints:
    """Hears what a client meets while it tries (`error_cb`): why nobody answers is said there, and only there."""

    def __init__(self) -> None:
        self._last: Any = None

    def __call__(self, error: Any) -> None:
        """Take note of what the client says of itself or its brokers."""
        if error.name() != _ALL_DOWN:
            self._last = error

    def behind(self, error: Any = None) -> str:
        """Return why a call failed with `error`, in words."""
        last = error if self._last is None else self._last
        return "no word from them" if last is None else explained(last)
