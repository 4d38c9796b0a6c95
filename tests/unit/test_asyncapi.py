"""The contract for machines: generated from the registry, complete, and the same as the committed file."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from faultlens.asyncapi import asyncapi, event_schema, public_types, text_of
from faultlens.errors import UsageError
from faultlens.topics import TOPICS

COMMITTED = Path(__file__).parents[2] / "docs" / "asyncapi.json"


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for item in value.values():
            yield from references(item)
    elif isinstance(value, list):
        for item in value:
            yield from references(item)


def resolved(document: Any, reference: str) -> Any:
    for part in reference.removeprefix("#/").split("/"):
        document = document[part]
    return document


def test_the_committed_document_is_what_the_registry_says() -> None:
    assert COMMITTED.read_text(encoding="utf-8") == text_of(asyncapi()), (
        "run: faultlens schema --asyncapi > docs/asyncapi.json"
    )


def test_every_reference_leads_somewhere() -> None:
    for document in (asyncapi(), event_schema(), *(event_schema(t.name) for t in public_types())):
        found = list(references(document))
        assert found
        for reference in found:
            assert isinstance(resolved(document, reference), dict), reference


def test_every_public_topic_is_there_with_its_types_and_no_internal_one() -> None:
    channels = asyncapi()["channels"]
    assert set(channels) == {topic.name for topic in TOPICS.values() if topic.kind != "internal"}
    listed = {name for channel in channels.values() for name in channel["messages"]}
    assert listed == {event_type.name for event_type in public_types()}
    assert not any(name.startswith("faultlens.internal.") for name in listed)


def test_we_receive_what_producers_write_and_send_what_we_answer() -> None:
    operations = {o["channel"]["$ref"].rpartition("/")[2]: o["action"] for o in asyncapi()["operations"].values()}
    assert operations["node-events"] == operations["remediation-results"] == "receive"
    assert operations["attributions"] == operations["dead-letters"] == "send"


def test_a_types_schema_names_its_fields_as_they_are_on_the_wire() -> None:
    schema = event_schema("faultlens.job.time.v1")
    assert schema["properties"]["type"] == {"const": "faultlens.job.time.v1"}
    assert {"from", "to"} <= set(schema["$defs"]["JobTime"]["required"])
    assert "Scope" not in schema["$defs"]


def test_a_type_that_does_not_exist_is_answered_with_those_that_do() -> None:
    with pytest.raises(UsageError, match=r"no such type: faultlens\.job\.died\.v1 \(there are faultlens\.node\.health"):
        event_schema("faultlens.job.died.v1")
