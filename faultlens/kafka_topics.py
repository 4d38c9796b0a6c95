"""What every topic must be like on the brokers, worked out from the registry; and how to make and check them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType  # type: ignore[attr-defined]

from faultlens.clock import DAY_MS, HOUR_MS, MINUTE_MS
from faultlens.errors import ConfigurationError, WorldError
from faultlens.kafka import MAX_MESSAGE_BYTES, Connection, client_config
from faultlens.kafka_asking import Asking
from faultlens.kafka_words import Complaints, explained
from faultlens.topics import CONTEXT, NODE_EVENTS, TOPICS, Topic

DEFAULT_PARTITIONS: Final = 16
# What keeps the states of each role: records of the latest state of every key.
STATE_ROLES: Final = ("node", "job", "context", "objectives", "remediation")
# What steps whole clusters has one lane.
_OF_CLUSTERS: Final = frozenset({"context", "remediation"})
_ANSWER_SECONDS: Final = 30.0
# What records and states rest on; all other settings of a plan are how cleaning up is best done.
_EXACTLY: Final = frozenset({"cleanup.policy", "message.timestamp.type"})
_AT_LEAST: Final = frozenset({"retention.ms", "delete.retention.ms", "max.message.bytes"})


@dataclass(frozen=True)
class Plan:
    """What a topic must be like: partitions, and the settings that something rests on."""

    name: str
    partitions: int
    settings: Mapping[str, str]


@dataclass(frozen=True)
class Mismatch:
    """What is wrong with a topic: the setting (or `partitions`, `topic`), as found and as wanted, and what to do."""

    topic: str
    setting: str
    found: str
    wanted: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.topic}: {self.setting} is {self.found}, wanted {self.wanted}: {self.remedy}"


def state_topic(role: str) -> str:
    """Return the topic that keeps the states of a role."""
    return f"state-{role}"


def plans(partitions: int) -> list[Plan]:
    """Return every topic as it must be where those that are spread have `partitions` partitions."""
    kept = [Plan(topic.name, _partitions(topic, partitions), _kept(topic)) for topic in TOPICS.values()]
    return kept + [Plan(state_topic(role), _of_role(role, partitions), _COMPACTED) for role in STATE_ROLES]


def _partitions(topic: Topic, partitions: int) -> int:
    """What belongs to a whole cluster is one lane's; the context's copies go to every lane."""
    return 1 if topic.key == "cluster" and topic.name != CONTEXT else partitions


def _of_role(role: str, partitions: int) -> int:
    return 1 if role in _OF_CLUSTERS else partitions


def _kept(topic: Topic) -> dict[str, str]:
    return {
        "cleanup.policy": "delete",
        "retention.ms": str(topic.retention_days * DAY_MS),
        "message.timestamp.type": "LogAppendTime",
        "max.message.bytes": str(MAX_MESSAGE_BYTES),
    }


# A key's latest state must survive; older ones are cleaned soon, so that loading a lane reads little more than that.
_COMPACTED: Final = {
    "cleanup.policy": "compact",
    "segment.ms": str(15 * MINUTE_MS),
    "segment.bytes": str(64 * 1024 * 1024),
    "min.cleanable.dirty.ratio": "0.1",
    "max.compaction.lag.ms": str(HOUR_MS),
    "delete.retention.ms": str(DAY_MS),
    "max.message.bytes": str(MAX_MESSAGE_BYTES),
}


# --- on the brokers ------------------------------------------------------------------------------------


class TopicAdmin:
    """Makes and reads topics. WorldError where the brokers do not answer."""

    def __init__(self, connection: Connection) -> None:
        complaints = Complaints()
        self._client = AdminClient(client_config(connection) | {"error_cb": complaints})
        self._asking = Asking(self._client, connection.brokers, complaints)

    def partitions(self) -> dict[str, int]:
        """Return how many partitions each topic that exists has."""
        found = self._asking.topics()
        return {name: len(topic.partitions) for name, topic in found.items() if topic.error is None}

    def settings(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        """Return the settings of topics that exist."""
        wanted = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        if not wanted:
            return {}
        try:
            answers = self._client.describe_configs(wanted, request_timeout=_ANSWER_SECONDS)
            return {
                resource.name: {name: str(entry.value) for name, entry in answer.result(_ANSWER_SECONDS).items()}
                for resource, answer in answers.items()
            }
        except KafkaException as error:
            raise self._asking.unanswered(error) from None

    def create(self, wanted: Sequence[Plan], replication: int) -> list[str]:
        """Make the topics that do not exist and return their names. `replication`: -1 leaves it to the brokers."""
        new = [NewTopic(p.name, p.partitions, replication, config=dict(p.settings)) for p in wanted]
        made = []
        for name, answer in self._client.create_topics(new, operation_timeout=_ANSWER_SECONDS).items():
            try:
                answer.result(2 * _ANSWER_SECONDS)
                made.append(name)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise WorldError(f"topic {name} cannot be made: {explained(error.args[0])}") from None
        return made


def mismatches(connection: Connection, wanted: Sequence[Plan] | None = None) -> list[Mismatch]:
    """Return what is wrong with the topics; None wanted: as many partitions as `node-events` has."""
    admin = TopicAdmin(connection)
    found = admin.partitions()
    if wanted is None:
        wanted = plans(found.get(NODE_EVENTS, DEFAULT_PARTITIONS))
    settings = admin.settings(plan.name for plan in wanted if plan.name in found)
    return [wrong for plan in wanted for wrong in compared(plan, found.get(plan.name), settings.get(plan.name, {}))]


def compared(plan: Plan, partitions: int | None, settings: Mapping[str, str]) -> Iterator[Mismatch]:
    """Yield what of a topic differs from its plan; `partitions` None: there is no such topic."""
    if partitions is None:
        yield Mismatch(plan.name, "topic", "missing", "there", "run `faultlens topics create`")
        return
    if partitions != plan.partitions:
        yield Mismatch(
            plan.name,
            "partitions",
            str(partitions),
            str(plan.partitions),
            "records that belong together would miss each other; make it anew with the others' number",
        )
    for name, value in plan.settings.items():
        found = settings.get(name)
        if (name in _EXACTLY and found != value) or (name in _AT_LEAST and not _reaches(found, value)):
            yield Mismatch(plan.name, name, found or "not known", value, _remedy(plan.name, name, value))


def _reaches(found: str | None, wanted: str) -> bool:
    """Return whether something is kept as long, or may be as large, as it must; -1 is without end."""
    return found is not None and (int(found) == -1 or int(found) >= int(wanted))


def _remedy(topic: str, name: str, value: str) -> str:
    return f"kafka-configs.sh --alter --entity-type topics --entity-name {topic} --add-config {name}={value}"


def demand(connection: Connection, wanted: Sequence[Plan] | None = None) -> int:
    """Return the number of partitions of what is spread; ConfigurationError says all that is wrong with the topics."""
    wrong = mismatches(connection, wanted)
    if wrong:
        raise ConfigurationError("the topics are not as they must be\n" + "\n".join(f"  {each}" for each in wrong))
    return TopicAdmin(connection).partitions()[NODE_EVENTS]


def as_json(wanted: Sequence[Plan]) -> list[dict[str, Any]]:
    """Return the plans as plain values for JSON."""
    return [{"name": p.name, "partitions": p.partitions, "settings": dict(p.settings)} for p in wanted]
