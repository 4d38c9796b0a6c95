"""How far workers are is known again soon after the broker that knew it has gone, for whoever plays a recording."""

from __future__ import annotations

from contextlib import closing

import pytest

from faultlens.kafka import Connection
from faultlens.kafka_progress import LaneProgress
from faultlens.kafka_topics import plans
from faultlens.local_roles import READS
from streams.live.changelog import offsets_of
from tests.kafka.cluster import Cluster
from tests.kafka.living import fresh_topics, until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

PARTITIONS = 3


def test_brokers_that_go_for_good_are_asked_no_more(three_brokers: Cluster) -> None:
    fresh_topics(three_brokers, PARTITIONS)
    wanted = {plan.name: plan.partitions for plan in plans(PARTITIONS)}
    with closing(LaneProgress(Connection(three_brokers.bootstrap), READS, wanted, offsets_of)) as progress:
        until(lambda: progress.behind() is None)
        for broker in list(three_brokers.brokers.values())[:2]:
            broker.kill()
            until(lambda: progress.behind() is None, patience_s=30)
            three_brokers.start()
