"""The public contract for machines: JSON Schemas of the events, and an AsyncAPI 3 document of the topics."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from faultlens.errors import UsageError
from faultlens.topics import TOPICS, TYPES, EventType, Topic

Document = dict[str, Any]

CONTENT_TYPE: Final = "application/cloudevents+json"
# The contract's, not the program's: it changes only when a type gets a new version.
CONTRACT_VERSION: Final = "1.0.0"
_DAY_MS: Final = 86_400_000
_MOMENT: Final[Document] = {"type": "string", "format": "date-time"}
_ABOUT: Final = (
    "What producers tell faultlens, and what it answers. Every Kafka value is one CloudEvent 1.0 in structured JSON; "
    "the record's key is the event's subject."
)


def public_types() -> list[EventType]:
    """Return the types that others write or read, in the registry's order."""
    return [event_type for event_type in TYPES.values() if TOPICS[event_type.topic].kind != "internal"]


def event_schema(name: str | None = None) -> Document:
    """Return the JSON Schema (2020-12) of one type of event, or of any. UsageError: there is no such type."""
    types = {event_type.name: event_type for event_type in public_types()}
    if name is None:
        schemas = [_envelope(event_type, _in_definitions(event_type)) for event_type in types.values()]
        body: Document = {"title": "any event of faultlens", "oneOf": schemas}
    elif name in types:
        body = _envelope(types[name], _in_definitions(types[name]))
    else:
        raise UsageError(f"no such type: {name} (there are {', '.join(types)})")
    chosen = types.values() if name is None else [types[name]]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **body,
        "$defs": _definitions(chosen, "#/$defs/{name}"),
    }


def asyncapi() -> Document:
    """Return the AsyncAPI 3.0 document of the public topics, from the registry."""
    topics = [topic for topic in TOPICS.values() if topic.kind != "internal"]
    return {
        "asyncapi": "3.0.0",
        "info": {"title": "faultlens", "version": CONTRACT_VERSION, "description": _ABOUT},
        "defaultContentType": CONTENT_TYPE,
        "channels": {topic.name: _channel(topic) for topic in topics},
        "operations": {_operation_name(topic): _operation(topic) for topic in topics},
        "components": {
            "messages": {event_type.name: _message(event_type) for event_type in public_types()},
            "schemas": _definitions(public_types(), "#/components/schemas/{name}"),
        },
    }


def text_of(document: Document) -> str:
    """Return a document as indented JSON that ends with a line end; equal documents give equal text."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def _definitions(types: Iterable[EventType], template: str) -> Document:
    _, components = msgspec.json.schema_components([event_type.data for event_type in types], ref_template=template)
    return dict(sorted(components.items()))


def _in_definitions(event_type: EventType) -> Document:
    return {"$ref": f"#/$defs/{event_type.data.__name__}"}


def _envelope(event_type: EventType, data: Document) -> Document:
    return {
        "title": event_type.name,
        "description": _summary(event_type),
        "type": "object",
        "required": ["specversion", "type", "source", "id", "subject", "time", "data"],
        "properties": {
            "specversion": {"const": "1.0"},
            "type": {"const": event_type.name},
            "source": {"type": "string", "description": "Who tells it; begins with what that is, such as agent/."},
            "id": {"type": "string", "description": "With the source it identifies the event."},
            "subject": {"type": "string", "description": f"The record's key: data.{event_type.subject}."},
            "time": _MOMENT | {"description": "When it happened, by its source's clock."},
            "senttime": _MOMENT | {"description": "The sender's clock when it handed the record over."},
            "recordedtime": _MOMENT | {"description": "When the record was received."},
            "data": data,
        },
    }


def _summary(event_type: EventType) -> str:
    return inspect.cleandoc(event_type.data.__doc__ or "").replace("\n", " ")


def _message(event_type: EventType) -> Document:
    return {
        "name": event_type.name,
        "summary": _summary(event_type),
        "contentType": CONTENT_TYPE,
        "payload": _envelope(event_type, {"$ref": f"#/components/schemas/{event_type.data.__name__}"}),
        "bindings": {"kafka": {"key": {"type": "string"}, "bindingVersion": "0.5.0"}},
    }


def _channel(topic: Topic) -> Document:
    names = [event_type.name for event_type in public_types() if event_type.topic == topic.name]
    return {
        "address": topic.name,
        "description": topic.doc,
        "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in names},
        "bindings": {
            "kafka": {
                "topicConfiguration": {"retention.ms": topic.retention_days * _DAY_MS},
                "bindingVersion": "0.5.0",
            }
        },
    }


def _operation_name(topic: Topic) -> str:
    return f"{'receive' if topic.kind == 'input' else 'send'}-{topic.name}"


def _operation(topic: Topic) -> Document:
    return {
        "action": "receive" if topic.kind == "input" else "send",
        "channel": {"$ref": f"#/channels/{topic.name}"},
        "summary": topic.doc,
    }
