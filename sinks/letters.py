"""Dead letters as people see them: which are meant, and what becomes of one that is sent again. Pure."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from faultlens.codec import Event
from faultlens.events import DeadLetter
from faultlens.topics import TOPICS

# Says on a record that is sent again how often it was, and which letter it comes from. Who buries it again keeps both.
RETRIES: Final = "faultlens-retries"
LETTER: Final = "faultlens-letter"


@dataclass(frozen=True)
class Letter:
    """A dead letter: where its record was, why it is dead, and what is left of it. `key` None: none is known."""

    id: str
    time_ms: int
    topic: str
    partition: int
    offset: int
    reason: str
    error: str
    value: bytes
    headers: Mapping[str, str]
    sha256: str = ""
    key: bytes | None = None

    @property
    def is_cut(self) -> bool:
        """Whether `value` is only the record's beginning."""
        return bool(self.sha256)

    @property
    def retries(self) -> int:
        """How often its record had been sent again when it failed."""
        count = self.headers.get(RETRIES, "")
        return int(count) if count.isdigit() and len(count) < 10 else 0


def letter_of(event: Event, key: bytes | None) -> Letter | None:
    """Return the letter in an event of the topic `dead-letters`; None: it is none that can be read."""
    data = event.data
    if not isinstance(data, DeadLetter):
        return None
    return Letter(
        event.id,
        event.time_ms,
        data.topic,
        data.partition,
        data.offset,
        data.reason,
        data.error,
        decoded(data.value),
        data.headers,
        data.sha256 or "",
        None if key == data.topic.encode() else key,
    )


def decoded(value: str) -> bytes:
    """Return the bytes of a letter's value; empty where it is not what it should be."""
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return b""


@dataclass(frozen=True)
class Chosen:
    """Which letters are meant: all that fit everything that is given."""

    ids: frozenset[str] = frozenset()
    reason: str | None = None
    topic: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None

    def fits(self, letter: Letter) -> bool:
        """Return whether the letter is meant."""
        return (
            (not self.ids or letter.id in self.ids)
            and self.reason in (None, letter.reason)
            and self.topic in (None, letter.topic)
            and (self.since_ms is None or letter.time_ms >= self.since_ms)
            and (self.until_ms is None or letter.time_ms < self.until_ms)
        )

    @property
    def is_everything(self) -> bool:
        """Whether nothing is said of which."""
        return self == Chosen()


def chosen(letters: Iterable[Letter], which: Chosen) -> list[Letter]:
    """Return the letters that are meant, each once, the newest first. One that was sent twice has the same id."""
    found = {letter.id: letter for letter in letters if which.fits(letter)}
    return sorted(found.values(), key=lambda letter: (-letter.time_ms, letter.topic, letter.partition, letter.offset))


Obstacle = Literal["no_topic", "failed_again", "cut"]

OBSTACLES: Final[dict[Obstacle, str]] = {
    "no_topic": "come from no topic: rows or lines of files",
    "failed_again": "were sent again before and failed again: --again sends them once more",
    "cut": "were too large to be kept whole, and their records are removed from their topics",
}


def obstacle(letter: Letter, *, again: bool) -> Obstacle | None:
    """Return why the letter is not sent again; None: it is."""
    if letter.topic not in TOPICS:
        return "no_topic"
    if letter.retries and not again:
        return "failed_again"
    return None


def is_whole(letter: Letter, value: bytes) -> bool:
    """Return whether the bytes are those of the record that the letter, which is cut, is about."""
    return hashlib.sha256(value).hexdigest() == letter.sha256


def headers_again(letter: Letter) -> list[tuple[str, str | bytes | None]]:
    """Return the headers of its record with the count of its retries, for who may have to bury it once more."""
    kept = {name: value for name, value in letter.headers.items() if name not in (RETRIES, LETTER)}
    return [*kept.items(), (LETTER, letter.id), (RETRIES, str(letter.retries + 1))]
