"""A lane's log on brokers that refuse: what they may take later is written again, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("confluent_kafka", reason="the Kafka client is not installed (extra `stream`)")

from faultlens import topics
from faultlens.errors import WorldError
from faultlens.kafka import Connection
from faultlens.meters import RoleMeters
from streams.live.arrived import as_appended
from streams.live.lane import Lane
from streams.live.transactions import Ledger
from tests.kafka.mock import (
    COORDINATOR_LOADING,
    END_TXN,
    INVALID_TXN_STATE,
    MESSAGE_TOO_LARGE,
    NOT_ENOUGH_REPLICAS,
    PRODUCE,
    MockCluster,
)
from tests.unit.test_live_lanes import TOY, faults


@pytest.fixture
def brokers() -> Iterator[MockCluster]:
    cluster = MockCluster()
    for name in (*topics.TOPICS, "state-toy"):
        cluster.topic(name, 1)
    yield cluster
    cluster.close()


def ledger(brokers: MockCluster) -> Ledger:
    return Ledger(Connection(brokers.bootstrap), "toy-0", ("state-toy", 0), 1)


def lane(brokers: MockCluster) -> Lane:
    made = Lane(TOY, 0, ledger(brokers), as_appended, RoleMeters("toy"))
    made.open()
    return made


def test_a_batch_that_the_brokers_cannot_take_for_now_is_written_in_the_end(brokers: MockCluster) -> None:
    made = lane(brokers)
    brokers.refuse(PRODUCE, *[NOT_ENOUGH_REPLICAS] * 3)
    brokers.refuse(END_TXN, *[COORDINATOR_LOADING] * 3)
    assert made.step(faults(0, 1), settle=False)
    states = lane(brokers).task.states
    assert len(states) == 1


def test_a_coordinator_that_knows_of_no_transaction_does_not_end_the_lane(brokers: MockCluster) -> None:
    made = lane(brokers)
    assert made.step(faults(0), settle=False)
    brokers.refuse(END_TXN, INVALID_TXN_STATE)
    assert made.step(faults(1), settle=False)
    assert made.step(faults(2), settle=False)
    assert lane(brokers).task.lane.next == {topics.NODE_EVENTS: 3}


def test_a_batch_that_is_refused_for_good_ends_the_lane(brokers: MockCluster) -> None:
    made = lane(brokers)
    brokers.refuse(PRODUCE, *[MESSAGE_TOO_LARGE] * 200)
    with pytest.raises(WorldError, match="lane toy-0 cannot write its batch"):
        made.step(faults(0), settle=False)


def test_a_poisonous_record_is_buried_and_the_lane_goes_on(brokers: MockCluster) -> None:
    made = lane(brokers)
    assert made.step([*faults(0, code="boom"), *faults(1)], settle=False)
    assert dict(made._meters.dead) == {(topics.NODE_EVENTS, "processor_error"): 1}
    assert lane(brokers).task.lane.next == {topics.NODE_EVENTS: 2}
