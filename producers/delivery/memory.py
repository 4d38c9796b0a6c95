"""A broker in memory for tests: it can be away, and take only so many records at a time."""

from __future__ import annotations

from collections.abc import Sequence

from producers.delivery.outbox import Parcel


class MemoryBroker:
    """Keeps what arrives in `records`. `away`: nothing arrives; `takes`: at most so many of a hand-over do."""

    def __init__(self) -> None:
        self.records: list[Parcel] = []
        self.away = False
        self.takes: int | None = None

    def publish(self, records: Sequence[Parcel]) -> int:
        """Keep the records; return how many of the first ones have arrived."""
        arrived = 0 if self.away else len(records) if self.takes is None else min(self.takes, len(records))
        self.records += records[:arrived]
        return arrived
