"""What every topic must be like, and what is said of one that is not."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from faultlens import topics
from faultlens.cli_topics import app
from faultlens.clock import DAY_MS
from faultlens.codec import MAX_RECORD_BYTES
from faultlens.kafka_topics import STATE_ROLES, Plan, compared, plans, state_topic
from faultlens.local_roles import READS
from faultlens.murmur2 import KNOWN, murmur2, partition_of

PLANS = {plan.name: plan for plan in plans(12)}


def test_every_topic_of_the_registry_and_every_roles_states_are_planned() -> None:
    assert set(PLANS) == set(topics.TOPICS) | {state_topic(role) for role in STATE_ROLES}
    assert set(STATE_ROLES) == set(READS)


@pytest.mark.parametrize("role", sorted(READS))
def test_what_a_role_reads_and_keeps_lies_in_the_same_partitions(role: str) -> None:
    counts = {PLANS[name].partitions for name in (*READS[role], state_topic(role))}
    assert counts == {1 if role in ("context", "remediation") else 12}


def test_inputs_and_answers_have_the_time_of_the_broker_and_states_their_latest_value() -> None:
    for name, topic in topics.TOPICS.items():
        settings = PLANS[name].settings
        assert settings["message.timestamp.type"] == "LogAppendTime"
        assert settings["retention.ms"] == str(topic.retention_days * DAY_MS)
        assert int(settings["max.message.bytes"]) > MAX_RECORD_BYTES
    assert all(PLANS[state_topic(role)].settings["cleanup.policy"] == "compact" for role in STATE_ROLES)


def test_a_topic_as_planned_is_right_and_so_is_one_that_keeps_more() -> None:
    plan = PLANS[topics.NODE_EVENTS]
    assert list(compared(plan, 12, plan.settings)) == []
    more = {**plan.settings, "retention.ms": "-1", "max.message.bytes": "9000000"}
    assert list(compared(plan, 12, more)) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"message.timestamp.type": "CreateTime"},
            "message.timestamp.type is CreateTime, wanted LogAppendTime: kafka-",
        ),
        ({"retention.ms": "1000"}, "retention.ms is 1000, wanted 604800000: kafka-configs.sh --alter"),
        ({"cleanup.policy": "compact"}, "cleanup.policy is compact, wanted delete"),
        ({"max.message.bytes": "100000"}, "max.message.bytes is 100000, wanted 1048576"),
    ],
)
def test_what_is_wrong_is_said_with_what_to_do(change: dict[str, str], said: str) -> None:
    plan = PLANS[topics.NODE_EVENTS]
    wrong = list(compared(plan, 12, {**plan.settings, **change}))
    assert len(wrong) == 1
    assert f"node-events: {said}" in str(wrong[0])


def test_a_topic_that_is_missing_or_has_other_partitions_is_wrong() -> None:
    plan = Plan("evidence", 12, {})
    assert [each.setting for each in compared(plan, None, {})] == ["topic"]
    assert [(each.setting, each.found) for each in compared(plan, 6, {})] == [("partitions", "6")]


def test_a_dry_run_needs_no_brokers() -> None:
    said = CliRunner().invoke(app, ["create", "--dry-run", "--json", "--partitions", "3"])
    assert {each["name"]: each["partitions"] for each in json.loads(said.stdout)}["context"] == 3


def test_keys_are_hashed_as_kafkas_own_clients_do() -> None:
    assert {key: murmur2(key) for key in KNOWN} == {key: value & 0xFFFFFFFF for key, value in KNOWN.items()}


@given(st.binary(max_size=40), st.integers(1, 64))
def test_every_key_has_a_partition(key: bytes, partitions: int) -> None:
    assert 0 <= partition_of(key, partitions) < partitions
