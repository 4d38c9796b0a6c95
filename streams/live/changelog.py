"""What a lane writes to its changelog, as records of a compacted topic, and what it reads back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec
import zstandard
from msgspec import Struct

from streams.context import Context
from streams.runtime.records import LaneRecord, Role
from streams.runtime.state import Kept, KeptCodec, MemoryStates

# Every record key begins with what it is: a state, a part of a large one, the lane's own record, its context.
_STATE: Final = b"s"
_PART: Final = b"p"
_LANE: Final = b"l"
_CONTEXT: Final = b"c"
# A value that is larger is cut into parts; brokers take messages of a mebibyte.
PART_BYTES: Final = 512 * 1024
# No value of ours begins with this byte: MessagePack never uses it.
_IN_PARTS: Final = b"\xc1"
# What begins a compressed value: zstandard's own magic.
_PACKED: Final = zstandard.FRAME_HEADER
_PACKED_FROM_BYTES: Final = 4 * 1024
# Raise it whenever states can no longer be read as what they were: an older program then refuses them.
FORMAT: Final = 1

Change = tuple[bytes, bytes | None]


class _Lane(Struct, frozen=True, array_like=True):
    """The lane record without its context, which changes seldom and can be large."""

    clock_ms: int
    next: dict[str, int]
    surveyed_ms: int | None
    ticked_ms: int | None
    format: int


def offsets_of(key: bytes | None, value: bytes | None) -> dict[str, int] | None:
    """Return the next offset of each topic that a changelog's record tells; None: it is about something else."""
    if key != _LANE or not value:
        return None
    return msgspec.msgpack.decode(value, type=_Lane).next


class DamagedError(Exception):
    """The changelog does not hold together: a part is missing, or a value is of another version."""


class Changelog:
    """Encodes what changes of a lane. It knows which keys lie there in parts, so that none is left behind.

    `size`: the bytes of all values as they were last written or read.
    """

    def __init__(self, role: Role) -> None:
        self._codec = KeptCodec(role.processor.state_type)
        self._pack = zstandard.ZstdCompressor(level=1).compress
        self._unpack = zstandard.ZstdDecompressor().decompress
        self._parts: dict[bytes, int] = {}
        self._sizes: dict[bytes, int] = {}
        self.size = 0
        self._context: Context | None = None

    def changes(self, changed: Mapping[str, Kept | None], lane: LaneRecord) -> Iterator[Change]:
        """Yield the records for a batch: each changed state (None: it is forgotten) and the lane's own record."""
        for key, kept in changed.items():
            yield from self._cut(_STATE + key.encode(), None if kept is None else self._codec.encode(kept))
        if lane.context is not self._context:
            self._context = lane.context
            yield from self._cut(_CONTEXT, self._packed(msgspec.msgpack.encode(lane.context)))
        yield _LANE, msgspec.msgpack.encode(_Lane(lane.clock_ms, lane.next, lane.surveyed_ms, lane.ticked_ms, FORMAT))

    def _cut(self, key: bytes, value: bytes | None) -> Iterator[Change]:
        before = self._parts.pop(key, 0)
        count = 0
        self._weigh(key, value)
        if value is not None and len(value) > PART_BYTES:
            pieces = [value[at : at + PART_BYTES] for at in range(0, len(value), PART_BYTES)]
            count = self._parts[key] = len(pieces)
            for number, piece in enumerate(pieces):
                yield _part_key(key, number), piece
            value = _IN_PARTS + count.to_bytes(2, "big")
        for number in range(count, before):
            yield _part_key(key, number), None
        yield key, value

    def _weigh(self, key: bytes, value: bytes | None) -> None:
        self.size -= self._sizes.pop(key, 0)
        if value is not None:
            self._sizes[key] = len(value)
            self.size += len(value)

    def _packed(self, value: bytes) -> bytes:
        return value if len(value) < _PACKED_FROM_BYTES else self._pack(value)

    # --- and back --------------------------------------------------------------------------------------

    def restore(self, records: Iterable[tuple[bytes, bytes]]) -> tuple[MemoryStates, LaneRecord | None]:
        """Return states and lane record from the latest record of every key; DamagedError if they are no use."""
        found = dict(records)
        states = MemoryStates()
        for key in found:
            if key.startswith(_STATE):
                value = self._whole(key, found)
                self._weigh(key, value)
                states.put(key[1:].decode(), self._kept(key, value))
        if _LANE not in found:
            return states, None
        return states, self._lane(found)

    def _whole(self, key: bytes, found: Mapping[bytes, bytes]) -> bytes:
        value = found[key]
        if not value.startswith(_IN_PARTS):
            return value
        count = self._parts[key] = int.from_bytes(value[1:3], "big")
        try:
            return b"".join(found[_part_key(key, number)] for number in range(count))
        except KeyError:
            raise DamagedError(f"of {key!r} a part is missing") from None

    def _kept(self, key: bytes, raw: bytes) -> Kept:
        try:
            return self._codec.decode(raw)
        except msgspec.DecodeError as error:
            raise DamagedError(f"the state of {key[1:].decode()} cannot be read: {error}") from error

    def _lane(self, found: Mapping[bytes, bytes]) -> LaneRecord:
        try:
            lane = msgspec.msgpack.decode(found[_LANE], type=_Lane)
            context = Context()
            if _CONTEXT in found:
                raw = self._whole(_CONTEXT, found)
                raw = self._unpack(raw) if raw.startswith(_PACKED) else raw
                context = msgspec.msgpack.decode(raw, type=Context)
        except (msgspec.DecodeError, zstandard.ZstdError) as error:
            raise DamagedError(f"the lane's own record cannot be read: {error}") from error
        if lane.format > FORMAT:
            raise DamagedError(f"it is of format {lane.format}, of a newer program; this one knows {FORMAT}")
        self._context = context
        return LaneRecord(lane.clock_ms, lane.next, lane.surveyed_ms, context, lane.ticked_ms)


def _part_key(key: bytes, number: int) -> bytes:
    return _PART + number.to_bytes(2, "big") + key
