"""NVSentinel's health events as faults of the contract."""

from __future__ import annotations

import re
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Struct
from pydantic import AfterValidator, BaseModel, ConfigDict

from faultlens.clock import ms_of
from faultlens.codec import Event, event_of
from faultlens.errors import InvalidEventError
from faultlens.events import DeviceRef, FaultKind, NodeFault
from faultlens.yaml_lines import compiles, load_model

TYPE: Final = "com.nvidia.nvsentinel.health.v1"
_SOURCE: Final = "nvsentinel://"
_FILE: Final = Path(__file__).parent / "nvsentinel.yaml"
_MESSAGE_CHARS: Final = 500


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class CheckWord(_Strict):
    """What a check watches; without a code of its own the event's error code is it."""

    kind: FaultKind
    code: str | None = None


class ErrorWord(_Strict):
    """What an error code says; without a kind it is the code itself, of the check's kind."""

    pattern: Annotated[str, AfterValidator(compiles)]
    kind: FaultKind | None = None
    code: str | None = None


class Words(_Strict):
    """`nvsentinel.yaml`."""

    version: Literal[1]
    checks: dict[str, CheckWord]
    errors: tuple[ErrorWord, ...]


@cache
def load_words() -> Words:
    """Return the table; ConfigurationError names file, line and what is wrong."""
    return load_model(_FILE, Words, "the table of NVSentinel's words cannot be used:")


class _Entity(Struct, rename="camel"):
    entity_type: str = ""
    entity_value: str = ""


class _Health(Struct, rename="camel"):
    node_name: str
    check_name: str
    agent: str = ""
    is_fatal: bool = False
    is_healthy: bool = False
    error_code: tuple[str, ...] | None = None
    entities_impacted: tuple[_Entity, ...] | None = None
    message: str = ""
    generated_timestamp: datetime | None = None


class _Data(Struct, rename="camel"):
    health_event: _Health


class _Envelope(Struct):
    type: str
    source: str
    id: str
    data: _Data
    time: datetime | None = None


_read: Final = msgspec.json.Decoder(_Envelope).decode


def events_of(raw: bytes) -> list[Event]:
    """Return the faults that a health event tells of: one an error code; of good health none. InvalidEventError."""
    try:
        envelope = _read(raw)
    except msgspec.DecodeError as error:
        raise InvalidEventError("bad_value", f"{TYPE}: {error}") from None
    health = envelope.data.health_event
    moment = health.generated_timestamp or envelope.time
    if moment is None or moment.tzinfo is None:
        raise InvalidEventError("missing_field", f"{TYPE}: neither `time` nor `generatedTimestamp` says when")
    if health.is_healthy:
        return []
    return [
        event_of(
            NodeFault(
                node=health.node_name,
                cluster=cluster_of(envelope.source),
                kind=kind,
                code=code,
                detected_by="dcgm" if health.agent.lower().startswith("gpu") else "other",
                device=_device(health.entities_impacted or ()),
                message=f"{health.check_name}: {health.message}"[:_MESSAGE_CHARS],
            ),
            source=envelope.source,
            id_=f"{envelope.id}/{number}",
            time_ms=ms_of(moment),
        )
        for number, (kind, code) in enumerate(_faults(health))
    ]


def cluster_of(source: str) -> str:
    """Return the cluster in a source such as `nvsentinel://c1/healthevents`."""
    return source.removeprefix(_SOURCE).partition("/")[0] or "unknown"


def _faults(health: _Health) -> list[tuple[FaultKind, str]]:
    word = load_words().checks.get(health.check_name)
    unknown = "nvsentinel_fatal" if health.is_fatal else "nvsentinel_warning"
    known: CheckWord = word or CheckWord(kind="other", code=unknown)
    told = [found for code in health.error_code or () if (found := _of_error(known, code)) is not None]
    return list(dict.fromkeys(told)) or [(known.kind, known.code or unknown)]


def _of_error(check: CheckWord, code: str) -> tuple[FaultKind, str] | None:
    for word in load_words().errors:
        if re.search(word.pattern, code):
            return word.kind or check.kind, word.code or code
    return None


def _device(entities: tuple[_Entity, ...]) -> DeviceRef | None:
    """Return the device that is named; None: none is, so it is the whole node."""
    named = {entity.entity_type: entity.entity_value for entity in entities}
    index, link = named.get("GPU", ""), named.get("NVLINK")
    found = DeviceRef(
        index=int(index) if index.isdecimal() else None, uuid=named.get("GPU_UUID"), pci=named.get("PCI"), link=link
    )
    return None if found == DeviceRef() else found
