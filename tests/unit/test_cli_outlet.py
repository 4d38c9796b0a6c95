"""Where a producer's events go, and what is left behind of that."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from faultlens.cli_outlet import outlet
from faultlens.codec import Decoder, event_of
from faultlens.errors import UsageError, WorldError
from faultlens.events import JobStarted
from producers.delivery import Spool
from producers.delivery.leftovers import is_running, left_behind, spool_of
from tests.kafka.mock import MockCluster

NOBODY = "127.0.0.1:1"


@pytest.mark.parametrize("lasting", [True, False])
def test_a_spool_of_one_run_is_not_left_behind_once_it_is_empty(tmp_path: Path, *, lasting: bool) -> None:
    pytest.importorskip("confluent_kafka", reason="the Kafka client is not installed (extra `stream`)")
    with outlet(None, NOBODY, tmp_path / "spool", lasting=lasting):
        assert (tmp_path / "spool").exists()
    assert (tmp_path / "spool").exists() is lasting


def test_a_file_is_appended_to_line_by_line(tmp_path: Path) -> None:
    for number in (1, 2):
        with outlet(tmp_path / "events", None, tmp_path / "spool") as events:
            events.put(event_of(JobStarted("j", number), source="launcher/j", id_=str(number), time_ms=0))
    assert len((tmp_path / "events").read_bytes().splitlines()) == 2


def test_two_places_at_once_and_a_place_that_cannot_be_written_are_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not both"), outlet(tmp_path / "f", NOBODY, tmp_path / "spool"):
        pass
    with pytest.raises(WorldError, match="cannot be written"), outlet(tmp_path, None, tmp_path / "spool"):
        pass


def test_what_a_program_that_is_gone_left_is_delivered_by_the_next_one_and_what_runs_keeps_its_own(
    tmp_path: Path,
) -> None:
    consuming = pytest.importorskip("confluent_kafka", reason="the Kafka client is not installed (extra `stream`)")
    gone, runs, elsewhere = (
        spool_of(tmp_path, "j/1-0", host, pid) for host, pid in (("here", 7), ("here", 8), ("there", 7))
    )
    for number, path in enumerate((gone, runs, elsewhere)):
        spool = Spool(path)
        spool.add(event_of(JobStarted("j", 1), source="launcher/j", id_=str(number), time_ms=0))
        spool.close()
    left = left_behind(tmp_path, "here", {8}.__contains__)
    assert left == [gone]
    cluster = MockCluster()
    cluster.topic("job-events", 1)
    with outlet(None, cluster.bootstrap, tmp_path / "own", lasting=False, left=left):
        consumer = consuming.Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "t"})
        consumer.assign([consuming.TopicPartition("job-events", 0, consuming.OFFSET_BEGINNING)])
        message = consumer.poll(30)
    consumer.close()
    assert Decoder().decode(message.value()).id == "0"
    assert sorted(tmp_path.iterdir()) == sorted([runs, elsewhere])
    cluster.close()


def test_a_process_that_has_ended_does_not_run() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    assert is_running(os.getpid())
    assert not is_running(ended.pid)
