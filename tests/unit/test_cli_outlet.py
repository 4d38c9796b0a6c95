"""Where a producer's events go, and what is left behind of that."""

from __future__ import annotations

from pathlib import Path

import pytest

from faultlens.cli_outlet import outlet
from faultlens.codec import event_of
from faultlens.errors import UsageError, WorldError
from faultlens.events import JobStarted

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
