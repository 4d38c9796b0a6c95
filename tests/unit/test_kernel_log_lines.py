"""Lines of kernel logs in all their clothes: what is said, by whom, and when."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultlens.clock import DAY_MS, iso, parse_moment
from faultlens.errors import UsageError
from producers.kernel_log.lines import LINE_CHARS, parse_line, split_line
from producers.kernel_log.stamps import LogClock, Stamp, words_stamp

BOOTED_MS = parse_moment("2026-11-23T04:00:00Z")
CLOCK = LogClock(BOOTED_MS, None, 2026)
XID = "NVRM: Xid (PCI:0000:9b:00): 79, pid=1234, name=python3, GPU has fallen off the bus."
AT = "2026-11-23T04:12:07.512Z"

JOURNAL = {
    "__REALTIME_TIMESTAMP": "1795407127512345",
    "_BOOT_ID": "8c1a1c3e0c3b4e0f9a8e5b6f7a8b9c0d",
    "_TRANSPORT": "kernel",
    "SYSLOG_FACILITY": "0",
    "MESSAGE": XID,
}


@pytest.mark.parametrize(
    ("raw", "at"),
    [
        (f"2026-11-23T04:12:07,512000+00:00 {XID}", AT),
        (f"2026-11-23T05:12:07,512000+01:00 {XID}", AT),
        (f"2026-11-23T04:12:07.512345Z n1 kernel: {XID}", AT),
        (f"2026-11-23T05:12:07+0100 n1 kernel: {XID}", "2026-11-23T04:12:07.000Z"),
        (f"[Mon Nov 23 04:12:07 2026] {XID}", "2026-11-23T04:12:07.000Z"),
        (f"[  727.512345] {XID}", AT),
        (f"[  727.512345][ T1234] {XID}", AT),
        (f"[  727.512345@3] {XID}", AT),
        (f"<4>[  727.512345] {XID}", AT),
        (f"kern  :err   : [  727.512345] {XID}", AT),
        (f"kern  :warn  : 2026-11-23T04:12:07,512000+00:00 {XID}", AT),
        (f"4,1234,727512345,-;{XID}", AT),
        (f"4,1234,727512345,-,caller=T1234;{XID}", AT),
        (f"Nov 23 04:12:07 n1 kernel: {XID}", "2026-11-23T04:12:07.000Z"),
        (f"Nov 23 04:12:07.512345 n1 kernel: {XID}", AT),
        (f"Nov  3 04:12:07 n1 kernel: [  727.512345] {XID}", "2026-11-03T04:12:07.000Z"),
        (f"Mon 2026-11-23 04:12:07 UTC n1 kernel: {XID}", "2026-11-23T04:12:07.000Z"),
        (f"Mon 2026-11-23 05:12:07.512345 +01 n1 kernel: {XID}", AT),
        (json.dumps(JOURNAL), AT),
        (json.dumps(JOURNAL | {"MESSAGE": list(XID.encode())}), AT),
    ],
)
def test_every_form_gives_the_same_words_of_the_kernel_at_their_moment(raw: str, at: str) -> None:
    parsed = parse_line(raw + "\r\n", CLOCK)
    assert parsed is not None
    assert (parsed.line.text, parsed.line.speaker, parsed.line.injected) == (XID, "kernel", False)
    assert iso(parsed.at_ms) == iso(parse_moment(at))


def test_the_fabric_manager_and_the_service_manager_speak_for_themselves() -> None:
    for raw, speaker, text in (
        ("[Nov 23 2026 04:12:07] [ERROR] [tid 123] detected NVSwitch", "fabricmanager", "ERROR: detected NVSwitch"),
        ("Nov 23 04:12:07 n1 nv-fabricmanager[812]: detected NVSwitch", "fabricmanager", "detected NVSwitch"),
        ("Nov 23 04:12:07 n1 systemd[1]: Failed to start x", "systemd", "Failed to start x"),
        ("Nov 23 04:12:07 n1 kubelet[77]: NVRM: Xid", "kubelet", "NVRM: Xid"),
    ):
        line = split_line(raw)
        assert line is not None
        assert (line.speaker, line.text) == (speaker, text)


@pytest.mark.parametrize(
    "raw",
    [
        f"12,1,727512345,-;{XID}",
        f"<12>[  727.512345] {XID}",
        f"user  :warn  : [  727.512345] {XID}",
        json.dumps(JOURNAL | {"SYSLOG_FACILITY": "1"}),
    ],
)
def test_what_user_space_wrote_into_the_kernels_log_is_known_for_that(raw: str) -> None:
    line = split_line(raw)
    assert line is not None
    assert (line.text, line.speaker, line.injected) == (XID, "kernel", True)


def test_a_line_without_a_time_is_a_continuation() -> None:
    for raw in ("NVRM: nvidia-bug-report.sh as root to collect this data before", " SUBSYSTEM=pci", "\tCall Trace:"):
        line = split_line(raw)
        assert line is not None
        assert line.stamp is None
        assert parse_line(raw, CLOCK) is None


@pytest.mark.parametrize("raw", ["", "   \n", "-- Logs begin at Mon 2026-11-23. --", "Panic#2 Part1", "Oops#1 Part3"])
def test_what_tools_add_is_no_message(raw: str) -> None:
    assert split_line(raw) is None


def test_a_boot_is_marked() -> None:
    line = split_line("-- Boot 8c1a1c3e0c3b4e0f9a8e5b6f7a8b9c0d --")
    assert line is not None
    assert (line.boots, line.boot_id) == (True, "8c1a1c3e0c3b4e0f9a8e5b6f7a8b9c0d")
    line = split_line("-- Reboot --")
    assert line is not None
    assert (line.boots, line.boot_id) == (True, None)
    line = split_line(json.dumps(JOURNAL))
    assert line is not None
    assert (line.boots, line.boot_id) == (False, JOURNAL["_BOOT_ID"])


def test_a_line_is_never_longer_than_the_limit() -> None:
    line = split_line("[    1.000000] " + "x" * LINE_CHARS)
    assert line is not None
    assert len(line.text) < LINE_CHARS


@given(st.text(max_size=200))
def test_no_line_is_too_odd_to_be_taken_apart(raw: str) -> None:
    line = split_line(raw)
    assert line is None or isinstance(line.text, str)


@given(st.sampled_from(["2026-13-45T99:99:99Z x", "[Mon Nov 99 04:12:07 2026] x", "Feb 30 04:12:07 n1 kernel: x"]))
def test_a_time_that_cannot_be_is_no_time(raw: str) -> None:
    line = split_line(raw)
    assert line is not None
    assert line.stamp is None


# --- moments -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stamp", "option"),
    [(Stamp(since_boot_us=1), "--boot-time"), (words_stamp("Nov", "23", "04:12:07"), "--year")],
)
def test_what_a_clock_lacks_is_named_by_the_option_that_gives_it(stamp: Stamp, option: str) -> None:
    with pytest.raises(UsageError, match=option):
        LogClock().at_ms(stamp)


def test_a_log_without_years_goes_on_into_january() -> None:
    clock = LogClock(year=2026)
    december = clock.at_ms(words_stamp("Dec", "31", "23:59:59"))
    january = clock.at_ms(words_stamp("Jan", "1", "00:00:01"), after_ms=december)
    assert january - december == 2000
    february = clock.at_ms(words_stamp("Feb", "2", "00:00:00"), after_ms=january)
    assert iso(february) == iso(parse_moment("2027-02-02T00:00:00Z"))
    # Lines a little out of order stay in their year.
    assert clock.at_ms(words_stamp("Dec", "30", "00:00:00"), after_ms=december) == december - 2 * DAY_MS + 1000


def test_the_29th_of_february_of_a_year_without_one_is_the_next_day() -> None:
    at = LogClock(year=2026).at_ms(words_stamp("Feb", "29", "12:00:00"))
    assert iso(at) == iso(parse_moment("2026-03-01T12:00:00Z"))
    at = LogClock(year=2028).at_ms(words_stamp("Feb", "29", "12:00:00"))
    assert iso(at) == iso(parse_moment("2028-02-29T12:00:00Z"))


@given(st.integers(0, 10**15))
def test_time_since_boot_is_counted_in_milliseconds_and_never_runs_backwards(since_us: int) -> None:
    at = LogClock(BOOTED_MS).at_ms(Stamp(since_boot_us=since_us))
    assert at == BOOTED_MS + since_us // 1000
    assert LogClock(BOOTED_MS).at_ms(Stamp(since_boot_us=since_us + 1)) >= at
