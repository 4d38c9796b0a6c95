"""A log from its first line to its last, and the events that come of it."""

from collections.abc import Iterable
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultlens.catalogue import load_catalogue
from faultlens.clock import MINUTE_MS, iso, parse_moment
from faultlens.codec import Decoder, Event, encode
from faultlens.events import DeviceRef, NodeFault
from producers.kernel_log.devices import Gpus
from producers.kernel_log.folding import Node, fault_events
from producers.kernel_log.patterns import load_patterns
from producers.kernel_log.scanning import Scanner, boot_moment, scan
from producers.kernel_log.stamps import LogClock

SHARED = Path(__file__).parents[3] / "shared" / "data" / "kernel_logs"
BOOTED_MS = parse_moment("2026-11-23T04:00:00Z")
NODE = Node("n1", "c1", "H100", "train")
UUID = "GPU-509665ad-1111-2222-3333-444455556666"


def scanner(*, gpus: Gpus | None = None, trust: bool = False, clock: LogClock | None = None) -> Scanner:
    known = clock or LogClock(BOOTED_MS, ZoneInfo("UTC"), 2026)
    return Scanner(load_catalogue(), load_patterns(), known, gpus=gpus or {}, trust_user_space=trust)


def events(lines: Iterable[str], by: Scanner | None = None) -> list[Event]:
    return fault_events(scan(lines, by or scanner()), NODE)


def faults(lines: Iterable[str], by: Scanner | None = None) -> list[NodeFault]:
    return [event.data for event in events(lines, by) if isinstance(event.data, NodeFault)]


def at(seconds: float, text: str) -> str:
    return f"[{seconds:12.6f}] {text}"


def xid(seconds: float, rest: str, pci: str = "0000:9b:00") -> str:
    return at(seconds, f"NVRM: Xid (PCI:{pci}): {rest}")


# --- what a line tells ---------------------------------------------------------------------------------


def test_an_event_says_all_that_is_known() -> None:
    [event] = events([xid(727.5, "31, pid=8, name=python3, Ch 8")])
    assert event.data == NodeFault(
        node="n1",
        cluster="c1",
        kind="xid",
        code="31",
        detected_by="kmsg",
        pool="train",
        gpu_family="H100",
        device=DeviceRef(pci="0000:9b:00.0"),
        process=event.data.process if isinstance(event.data, NodeFault) else None,
        message="NVRM: Xid (PCI:0000:9b:00): 31, pid=8, name=python3, Ch 8",
    )
    assert (event.source, event.subject, event.time_ms) == ("agent/n1", "n1", BOOTED_MS + 727_500)
    assert event.data.process is not None
    assert (event.data.process.pid, event.data.process.name) == (8, "python3")


def test_what_the_driver_says_of_a_gpu_is_kept_for_it() -> None:
    lines = [
        at(1, "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024"),
        at(2, f"NVRM: GPU at PCI:0000:9b:00: {UUID}"),
        at(2, "NVRM: GPU Board Serial Number: 1650123456789"),
        xid(2, "119, pid=1, name=a, Timeout after 6s of waiting for RPC response from GPU4 GSP!"),
        xid(3, "43, pid=1, name=a, Ch 8", "0000:1b:00"),
    ]
    known, other = faults(lines)
    assert known.driver_version == other.driver_version == "550.54.15"
    assert known.device == DeviceRef(uuid=UUID, pci="0000:9b:00.0", serial="1650123456789")
    assert other.device == DeviceRef(pci="0000:1b:00.0")


def test_a_lost_gpu_is_told_once_in_whatever_order_number_and_words_come() -> None:
    number = "79, pid=1, name=a, GPU has fallen off the bus."
    words = "NVRM: GPU 0000:9b:00.0: GPU has fallen off the bus."
    for lines in ([xid(5, number), at(5, words)], [at(5, words), xid(5, number)]):
        assert [(fault.code, fault.count) for fault in faults(lines)] == [("79", 1)]
    again = [xid(5, number), at(100, words)]
    assert len(faults(again)) == 2
    assert len(faults([xid(5, number), at(5, words.replace("9b", "1b"))])) == 2


def test_a_message_of_several_lines_is_about_the_gpu_that_it_began_with() -> None:
    lines = [
        at(5, "NVRM: The NVIDIA GPU 0000:b3:00.0"),
        at(5, "NVRM: (PCI ID: 10de:2330) installed in this system has"),
        at(5, "NVRM: fallen off the bus and is not responding to commands."),
    ]
    [fault] = faults(lines)
    assert (fault.code, fault.device) == ("79", DeviceRef(pci="0000:b3:00.0"))


def test_a_continuation_has_the_time_of_the_line_before_and_the_first_line_none() -> None:
    by = scanner()
    told = events(
        ["Kernel panic - not syncing: x", at(7, "something"), xid(9, "8"), "Kernel panic - not syncing: y"], by
    )
    assert [event.time_ms - BOOTED_MS for event in told] == [9000, 9000]
    assert (by.unstamped, by.lines) == (1, 4)


@pytest.mark.parametrize("count", ["99999999999999999999", "9" * 1_500])
def test_a_time_that_no_calendar_holds_is_no_time_and_the_next_line_is_read(count: str) -> None:
    read = scanner()
    rest = "Xid (PCI:0000:9b:00): 48, An uncorrectable error"
    journal = '{"_TRANSPORT":"kernel","__REALTIME_TIMESTAMP":"' + count + '","MESSAGE":"NVRM: ' + rest + '"}'
    told = events([f"[{count}.5] NVRM: {rest}", f"6,1,{count},-;NVRM: {rest}", journal, xid(5, "79, lost")], read)
    assert [event.time_ms for event in told] == [BOOTED_MS + 5_000]
    assert read.unstamped == 3


@pytest.mark.parametrize("pid", ["99999999", "9" * 5_000])
def test_what_is_no_process_id_is_left_out(pid: str) -> None:
    [fault] = faults([xid(5, f"31, pid={pid}, name=python, MMU Fault")])
    assert fault.process is None or fault.process.pid is None


def test_only_the_kernel_is_believed_about_codes() -> None:
    assert faults(["Nov 23 04:12:07 n1 kubelet[9]: NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus."]) == []


def test_the_fabric_manager_is_heard_and_named() -> None:
    line = (
        "[Nov 23 2026 04:12:07] [ERROR] [tid 12] detected NVSwitch non-fatal error 12028 on fid 0 on NVSwitch "
        "pci bus id 00000000:86:00.0 physical id 3 port 61"
    )
    [fault] = faults([line])
    assert (fault.kind, fault.code, fault.detected_by) == ("sxid", "12028", "other")
    assert fault.device == DeviceRef(pci="0000:86:00.0", link=61)


def test_tests_are_marked_as_such() -> None:
    written = f"12,1,100,-;{xid(0, '79, GPU has fallen off the bus.').partition('] ')[2]}"
    assert [fault.synthetic for fault in faults([written])] == [True]
    assert [fault.synthetic for fault in faults([written], scanner(trust=True))] == [False]
    assert [fault.synthetic for fault in faults([xid(1, "14, injected")], scanner(trust=True))] == [True]


def test_a_boot_in_the_log_gives_what_follows_its_boot_id() -> None:
    lines = [
        "-- Boot 8c1a1c3e0c3b4e0f9a8e5b6f7a8b9c0d --",
        f"2026-11-23T04:12:07+00:00 n1 kernel: {xid(1, '8').partition('] ')[2]}",
        "-- Reboot --",
        f"2026-11-23T04:12:17+00:00 n1 kernel: {xid(1, '8').partition('] ')[2]}",
    ]
    assert [fault.boot_id for fault in faults(lines)] == ["8c1a1c3e0c3b4e0f9a8e5b6f7a8b9c0d", None]


def test_times_without_a_zone_are_counted_when_nobody_said_which() -> None:
    line = f"[Mon Nov 23 04:12:07 2026] {xid(1, '8').partition('] ')[2]}"
    by = scanner(clock=LogClock())
    faults([line, line], by)
    assert by.without_zone == 2
    by = scanner(clock=LogClock(zone=ZoneInfo("Europe/Zurich")))
    [event, *_] = events([line], by)
    assert by.without_zone == 0
    assert iso(event.time_ms) == iso(parse_moment("2026-11-23T03:12:07Z"))


# --- when the machine booted ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "told",
    [
        "audit: type=2000 audit(1795406401.500:1): state=initialized audit_enabled=0 res=1",
        "rtc_cmos 00:00: setting system clock to 2026-11-23T04:00:01 UTC (1795406401)",
    ],
)
def test_the_boot_is_known_from_a_line_with_both_clocks(told: str) -> None:
    found = boot_moment([at(0, "Linux version 6.1"), at(1.5, told), xid(9, "8")])
    assert found is not None
    assert abs(found - BOOTED_MS) <= 500


def test_no_boot_is_made_up() -> None:
    assert boot_moment([at(0, "Linux version 6.1"), xid(9, "8")]) is None
    assert boot_moment(["2026-11-23T04:12:07Z n1 kernel: audit: audit(1795406401.500:1): x"]) is None


# --- storms --------------------------------------------------------------------------------------------


def test_a_storm_is_its_first_and_then_a_count_for_each_minute() -> None:
    told = events([xid(second, "31, pid=8, name=a, Ch 8") for second in range(100)])
    counts = [
        (event.data.count, event.time_ms - BOOTED_MS, (event.recorded_ms or 0) - BOOTED_MS)
        for event in told
        if isinstance(event.data, NodeFault)
    ]
    assert counts == [(1, 0, 0), (60, 1000, 60_000), (1, 61_000, 61_000), (38, 62_000, 99_000)]


def test_different_faults_are_never_counted_together() -> None:
    lines = [
        xid(1, "31, pid=8, name=a"),
        xid(1, "31, pid=9, name=a"),
        xid(1, "13, pid=8, name=a"),
        xid(1, "31", "0:1:0"),
    ]
    assert [fault.count for fault in faults(lines)] == [1, 1, 1, 1]


STORM = st.lists(st.tuples(st.integers(0, 300), st.sampled_from(["8", "13", "31, pid=1, name=a"])), max_size=60)


@given(STORM)
def test_no_fault_is_lost_by_counting_and_events_come_in_the_order_of_their_arrival(
    drawn: list[tuple[int, str]],
) -> None:
    told = events([xid(second, rest) for second, rest in sorted(drawn)])
    assert sum(event.data.count for event in told if isinstance(event.data, NodeFault)) == len(drawn)
    arrivals = [event.recorded_ms or 0 for event in told]
    assert arrivals == sorted(arrivals)
    assert len({event.id for event in told}) == len(told)
    decoder = Decoder()
    for event in told:
        assert decoder.decode(encode(event)) == event
        assert event.time_ms <= (event.recorded_ms or 0) <= event.time_ms + MINUTE_MS


# --- recorded logs -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("components_accelerator_nvidia_fabric-manager_testdata_fabricmanager.log", {"sxid:12028": 1}),
        ("components_accelerator_nvidia_xid_testdata_dmesg-with-xid-119.log", {"xid:119": 5}),
        ("components_os_testdata_dmesg.decode.iso.log", {"kernel:file_limit": 2}),
        ("pkg_kmsg_testdata_kmsg.1.log", {}),
        ("pkg_kmsg_testdata_kmsg.2.peermem.log", {"other:peermem_context": 7}),
        ("pkg_pstore_testdata_7530486857247_dmesg.txt", {"kernel:panic": 1}),
        ("pkg_pstore_testdata_dmesg-erst.txt", {"kernel:oops": 2}),
    ],
)
def test_recorded_logs_are_read_as_a_person_would(name: str, expected: dict[str, int]) -> None:
    path = SHARED / name
    if not path.is_file():
        pytest.skip(f"{path} is not there")
    counts: dict[str, int] = {}
    for fault in faults(path.read_text(encoding="utf-8", errors="replace").splitlines()):
        counts[f"{fault.kind}:{fault.code}"] = counts.get(f"{fault.kind}:{fault.code}", 0) + fault.count
    assert counts == expected
