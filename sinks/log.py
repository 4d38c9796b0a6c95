"""What the sink reads from and sends dead letters to: a log of partitions, Kafka or a fake."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from msgspec import Struct

Place = tuple[str, int]


class Taken(Struct, frozen=True, gc=False):
    """A record as it was read: where it was, when it was appended, and its bytes."""

    topic: str
    partition: int
    offset: int
    appended_ms: int
    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()


class Holding(NamedTuple):
    """A partition that is ours: since which assignment (they are counted up), and from which offset it is read."""

    epoch: int
    start: int


class Log(Protocol):
    """A member of a group that shares the partitions of some topics. One thread at a time.

    Every record of a partition is handed out in the order of its offsets, committed ones only. WorldError: the log
    cannot be read, and trying again is no use.
    """

    @property
    def held(self) -> Mapping[Place, Holding]:
        """The partitions that are ours now; they change only within `poll`."""

    @property
    def expired(self) -> Counter[str]:
        """How many offsets of each topic were removed before they were read."""

    def poll(self, limit: int, timeout_s: float) -> list[Taken]:
        """Return up to `limit` records, those that come within the time; keeps up the membership, also while paused."""

    def pause(self) -> None:
        """Hand out nothing until `resume`, whatever is assigned meanwhile."""

    def resume(self) -> None:
        """Go on where the log was paused."""

    def commit(self, following: Mapping[Place, int]) -> None:
        """Let the next owner of each partition begin at the offset; a commit that fails is made good by the next."""

    def lags(self) -> Mapping[Place, int]:
        """Return how many offsets of each partition of ours have not been handed out, as far as it is known."""

    def close(self) -> None:
        """Leave the group."""


class Letters(Protocol):
    """Where dead letters are sent."""

    def send(self, letters: Sequence[tuple[bytes, bytes]]) -> None:
        """Send (key, value) and return when all are delivered; WorldError if one was not."""

    def close(self) -> None:
        """Let go of the connection."""
