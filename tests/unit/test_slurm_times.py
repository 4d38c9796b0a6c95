"""Slurm's times: epochs need no zone, local times need the reader's, and the hour that comes twice is told apart."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultlens.clock import ms_of
from producers.slurm.times import TimeReader

ZONES = st.sampled_from(["UTC", "Europe/Zurich", "America/Los_Angeles", "Asia/Kolkata", "Australia/Lord_Howe"])
SECONDS = st.integers(1_000_000_000, 2_500_000_000)


@given(SECONDS)
def test_an_epoch_is_the_same_moment_in_every_zone(second: int) -> None:
    assert TimeReader(ZoneInfo("Asia/Kolkata")).read(str(second)) == second * 1000
    assert TimeReader().read(str(second)) == second * 1000


@given(SECONDS, ZONES)
def test_a_local_time_is_the_moment_at_which_the_readers_clock_shows_it(second: int, zone: str) -> None:
    local = datetime.fromtimestamp(second, ZoneInfo(zone))
    reader = TimeReader(ZoneInfo(zone))
    read = reader.read(local.strftime("%Y-%m-%dT%H:%M:%S"))
    assert read is not None
    assert datetime.fromtimestamp(read / 1000, ZoneInfo(zone)).replace(tzinfo=None) == local.replace(tzinfo=None)
    assert read == second * 1000 or reader.twice == 1


@given(SECONDS, ZONES, st.integers(0, 86_400))
def test_an_end_is_never_read_as_before_its_start(second: int, zone: str, ran_s: int) -> None:
    reader = TimeReader(ZoneInfo(zone))
    start, end = (datetime.fromtimestamp(at, ZoneInfo(zone)) for at in (second, second + ran_s))
    start_ms = reader.read(start.strftime("%Y-%m-%dT%H:%M:%S"))
    end_ms = reader.read(end.strftime("%Y-%m-%dT%H:%M:%S"), not_before=start_ms)
    assert start_ms is not None
    assert end_ms is not None
    assert start_ms <= end_ms


def test_the_hour_that_comes_twice_is_the_first_one_unless_that_lies_before_the_start() -> None:
    reader = TimeReader(ZoneInfo("Europe/Zurich"))
    first = reader.read("2026-10-25T02:30:00")
    assert first == ms_of(datetime(2026, 10, 25, 0, 30, tzinfo=UTC))
    assert reader.twice == 1
    assert reader.read("2026-10-25T02:10:00", not_before=first) == ms_of(datetime(2026, 10, 25, 1, 10, tzinfo=UTC))
    assert reader.twice == 1


def test_an_offset_in_the_text_wins_over_the_zone() -> None:
    reader = TimeReader(ZoneInfo("America/Los_Angeles"))
    assert reader.read("2026-11-29T12:18:44+0100") == ms_of(datetime(2026, 11, 29, 11, 18, 44, tzinfo=UTC))
    assert reader.without_zone == 0


def test_times_that_only_the_zone_gave_a_meaning_to_are_counted() -> None:
    reader = TimeReader()
    reader.read("2026-11-29T12:18:44")
    reader.read("2026-11-29T12:18:44")
    reader.read("1795954724")
    assert reader.without_zone == 2


@pytest.mark.parametrize("text", ["", "Unknown", "None", "N/A", "0"])
def test_words_for_no_time_are_no_time(text: str) -> None:
    assert TimeReader().read(text) is None


@pytest.mark.parametrize("text", ["soon", "12:18:44", "2026-13-01T00:00:00", "²", "9" * 5000])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a time"):
        TimeReader().read(text)


@pytest.mark.parametrize("text", ["1793491200000", "253402300800", "0001-01-01T00:00:00", "9999-12-31T23:59:59-14:00"])
def test_a_time_that_no_job_can_have_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a time of any job"):
        TimeReader(ZoneInfo("Europe/Zurich")).read(text)
