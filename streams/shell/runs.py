"""One Faust message for a whole run of records: what Faust does per message is paid once for up to 500 of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import faust
from faust.transport.utils import DefaultSchedulingStrategy
from faust.types import TP

MAX_RECORDS: Final = 500


class RunMessage:
    """Consecutive records of one partition in the shape of a record; it stands where the last of them stands."""

    key: None = None
    headers: tuple[()] = ()
    checksum: None = None
    serialized_key_size: int = 0
    serialized_value_size: int = 0

    def __init__(self, tp: TP, records: Sequence[Any]) -> None:
        last = records[-1]
        self.topic, self.partition = tp.topic, tp.partition
        self.offset, self.timestamp, self.timestamp_type = last.offset, last.timestamp, last.timestamp_type
        self.value = records


class RunScheduler(DefaultSchedulingStrategy):
    """Hands out fetched records as runs, each partition in turn, so that a full one does not hold up the others."""

    def __init__(self) -> None:
        """Keep nothing."""

    def iterate(self, records: Mapping[TP, Sequence[Any]]) -> Iterator[tuple[TP, RunMessage]]:
        """Yield partition and run until all fetched records are handed out."""
        begun = 0
        left = {tp: fetched for tp, fetched in records.items() if fetched}
        while left:
            for tp, fetched in left.items():
                yield tp, RunMessage(tp, fetched[begun : begun + MAX_RECORDS])
            begun += MAX_RECORDS
            left = {tp: fetched for tp, fetched in left.items() if len(fetched) > begun}


class RunSchema(faust.Schema[Any, Any]):
    """Leaves the records as they are: lanes decode them."""

    def loads_key(self, app: Any, message: Any, **options: Any) -> Any:
        """Return no key: every record has its own."""
        return message.key

    def loads_value(self, app: Any, message: Any, **options: Any) -> Any:
        """Return the records of the run."""
        return message.value
