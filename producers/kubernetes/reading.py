"""From what the API writes to the part of an object that is read."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Raw

from producers.kubernetes.device_objects import Claim, Slice, TaintRule
from producers.kubernetes.objects import Node, Notice, Pod, Work

TYPES: Final[dict[str, type[Any]]] = {
    "Pod": Pod,
    "Node": Node,
    "ResourceClaim": Claim,
    "ResourceSlice": Slice,
    "DeviceTaintRule": TaintRule,
    "Event": Notice,
}
_decoders: Final = {kind: msgspec.json.Decoder(type_).decode for kind, type_ in TYPES.items()}
_decode_work: Final = msgspec.json.Decoder(Work).decode


def read_object(kind: str, raw: bytes | Raw) -> Any:
    """Return what is read of an object of that kind. msgspec.DecodeError: it is none."""
    return _decoders.get(kind, _decode_work)(raw)
