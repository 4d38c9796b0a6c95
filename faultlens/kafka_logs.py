"""What the Kafka client says of its connections: each thing once a minute, and how often it was held back."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic
from typing import Final

from faultlens.kafka_words import plain

QUIET_SECONDS: Final = 60.0
# So many different things are remembered; then all are forgotten, and may be said again.
_REMEMBERED: Final = 1_000


class Seldom(logging.Filter):
    """Lets what is said again pass once in `quiet_s` seconds, with how many like it were held back."""

    def __init__(self, quiet_s: float = QUIET_SECONDS, clock_s: Callable[[], float] = monotonic) -> None:
        super().__init__()
        self._quiet_s = quiet_s
        self._clock_s = clock_s
        self._said: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record is to be written."""
        text = record.getMessage()
        what = plain(text)
        now_s = self._clock_s()
        since_s, held_back = self._said.get(what, (now_s - self._quiet_s, 0))
        if now_s - since_s < self._quiet_s:
            self._said[what] = (since_s, held_back + 1)
            return False
        if len(self._said) >= _REMEMBERED:
            self._said.clear()
        self._said[what] = (now_s, 0)
        if held_back:
            record.msg, record.args = f"{text} (and {held_back} times more before)", ()
        return True


# A broker that is away is tried again twenty times a second, by each client.
KAFKA_LOG: Final = logging.getLogger("librdkafka")
KAFKA_LOG.addFilter(Seldom())
# Without anybody who listens to libraries (`faultlens.logs`) nothing is written: a command that ends says why itself.
KAFKA_LOG.addHandler(logging.NullHandler())
