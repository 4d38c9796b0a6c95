"""Where a lane keeps the state of its keys: in memory as it is, or as the bytes that a changelog carries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Protocol

import msgspec
import zstandard
from msgspec import Struct

# Most states are a few kilobytes; below this packing them would cost more than it saves.
PACKED_FROM_BYTES: Final = 16 * 1024
# How MessagePack begins a binary value, by the size of its length.
_BINARY: Final = (b"\xc4", b"\xc5", b"\xc6")
_decode_binary: Final = msgspec.msgpack.Decoder(bytes).decode


class Kept(Struct, frozen=True, gc=False):
    """What a lane keeps of a key: its state, when to wake it, and how often its last wake failed in a row."""

    state: Struct
    wake_ms: int | None = None
    failures: int = 0


class StateStore(Protocol):
    """Keys and what is kept of them; what was put is what is got, until it is put or dropped again."""

    def get(self, key: str) -> Kept | None:
        """Return what is kept of the key; None: nothing."""

    def put(self, key: str, kept: Kept) -> None:
        """Keep this of the key from now on."""

    def drop(self, key: str) -> None:
        """Forget the key; nothing happens where it is not known."""

    def items(self) -> Iterator[tuple[str, Kept]]:
        """Yield every key with what is kept of it, in the order in which the keys were first put."""

    def __len__(self) -> int:
        """Return the number of keys."""


class MemoryStates:
    """States as the frozen structures they are: nothing is copied, nothing encoded."""

    def __init__(self) -> None:
        self._kept: dict[str, Kept] = {}

    def get(self, key: str) -> Kept | None:
        """Return what is kept of the key."""
        return self._kept.get(key)

    def put(self, key: str, kept: Kept) -> None:
        """Keep this of the key."""
        self._kept[key] = kept

    def drop(self, key: str) -> None:
        """Forget the key."""
        self._kept.pop(key, None)

    def items(self) -> Iterator[tuple[str, Kept]]:
        """Yield every key with what is kept of it."""
        return iter(self._kept.items())

    def __len__(self) -> int:
        return len(self._kept)


class KeptCodec:
    """What is kept of a key as bytes (MessagePack) and back; the same state gives the same bytes.

    Large states say the same names over and over (a gang's nodes, a storm's faults): they are packed, as one binary
    value whose content is compressed.
    """

    def __init__(self, state_type: Any) -> None:
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(tuple[state_type, int | None, int]).decode
        self._pack = zstandard.ZstdCompressor(level=1).compress
        self._unpack = zstandard.ZstdDecompressor().decompress

    def encode(self, kept: Kept) -> bytes:
        """Return the bytes for a changelog or a saved state."""
        raw = self._encode((kept.state, kept.wake_ms, kept.failures))
        return raw if len(raw) <= PACKED_FROM_BYTES else self._encode(self._pack(raw))

    def decode(self, raw: bytes | memoryview) -> Kept:
        """Return what `encode` was given; msgspec.DecodeError when the bytes are of another version or damaged."""
        if bytes(memoryview(raw)[:1]) in _BINARY:
            try:
                raw = self._unpack(_decode_binary(raw))
            except zstandard.ZstdError as error:
                raise msgspec.DecodeError(f"the packed state is damaged: {error}") from error
        state, wake_ms, failures = self._decode(raw)
        return Kept(state, wake_ms, failures)


class EncodedStates:
    """States as bytes: what is read is a fresh copy, as after a restart. Smaller in memory, slower to step."""

    def __init__(self, codec: KeptCodec) -> None:
        self._codec = codec
        self._raw: dict[str, bytes] = {}

    def get(self, key: str) -> Kept | None:
        """Return what is kept of the key, decoded."""
        raw = self._raw.get(key)
        return None if raw is None else self._codec.decode(raw)

    def put(self, key: str, kept: Kept) -> None:
        """Keep this of the key, encoded."""
        self._raw[key] = self._codec.encode(kept)

    def drop(self, key: str) -> None:
        """Forget the key."""
        self._raw.pop(key, None)

    def items(self) -> Iterator[tuple[str, Kept]]:
        """Yield every key with what is kept of it, decoded one at a time."""
        return ((key, self._codec.decode(raw)) for key, raw in self._raw.items())

    def __len__(self) -> int:
        return len(self._raw)
