"""The kernel's log as the agent reads it: each fault once across restarts and boots, and storms as counts."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from time import monotonic

import pytest

from faultlens.catalogue import load_catalogue
from faultlens.clock import wall_ms
from faultlens.codec import Event
from faultlens.events import NodeFault, NodeHealth, Process
from producers.agent.configuration import Configuration
from producers.agent.kernel import AT_ONCE, KMSG, Cursor, KernelWatch, KmsgDevice, Source
from producers.agent.loop import Agent
from producers.kernel_log.folding import FOLD_MS, Folder, Node
from producers.kernel_log.lines import Line, kmsg_record
from producers.kernel_log.patterns import load_patterns
from producers.kernel_log.scanning import Scanner, Seen
from producers.kernel_log.stamps import LogClock
from tests.unit.test_agent_loop import Kept

BOOT_MS = 1_795_000_000_000
XID = "NVRM: Xid (PCI:0000:3b:00): {code}, pid=1234, name=python, GPU has fallen off the bus."


def record(sequence: int, text: str, at_s: float = 0.0, priority: int = 3) -> str:
    return f"{priority},{sequence},{round(at_s * 1_000_000)},-;{text}"


class Recorded:
    """Records as a kernel kept them; `overwritten` and `broken` as a test wants."""

    def __init__(self, records: Iterable[str]) -> None:
        self._records = iter(records)
        self.overwritten = 0
        self.broken: OSError | None = None

    def records(self) -> Iterator[str]:
        if self.broken is not None:
            raise self.broken
        # Not `yield from`, which would end them with the call.
        for line in self._records:  # noqa: UP028
            yield line


def watch(source: Source, cursor: Cursor | None = None, boot_id: str = "b1") -> KernelWatch:
    scanner = Scanner(load_catalogue(), load_patterns(), LogClock(BOOT_MS), gpus={}, boot_id=boot_id)
    return KernelWatch(source, scanner, Folder(Node("n1", "c1", "H100")), cursor or Cursor(boot_id))


def faults(events: Iterable[Event]) -> list[tuple[str, int, str | None]]:
    found = []
    for event in events:
        assert isinstance(event.data, NodeFault)
        found.append((event.data.code, event.data.count, event.data.boot_id))
    return found


LOG = [record(7, "Linux version 6.18"), record(8, XID.format(code=79), 10.0), record(9, "usb 1-1: new device", 11.0)]


def test_a_fault_is_told_at_once_with_its_moment_and_boot() -> None:
    watching = watch(Recorded(LOG))
    (event,) = watching.poll(BOOT_MS + 10_100)
    assert faults([event]) == [("79", 1, "b1")]
    assert event.time_ms == BOOT_MS + 10_000
    assert watching.cursor == Cursor("b1", 9)
    assert watching.check().status == "pass"


def test_what_was_read_before_a_restart_is_not_told_again() -> None:
    first = watch(Recorded(LOG))
    assert len(first.poll(BOOT_MS)) == 1
    again = watch(Recorded([*LOG, record(10, XID.format(code=31), 50.0)]), first.cursor)
    assert faults(again.poll(BOOT_MS)) == [("31", 1, "b1")]


def test_after_a_reboot_the_numbers_begin_anew_and_are_read_from_the_first() -> None:
    rebooted = watch(Recorded([record(0, "Linux version 6.18"), record(1, XID.format(code=79), 3.0)]), boot_id="b2")
    assert faults(rebooted.poll(BOOT_MS)) == [("79", 1, "b2")]


def test_the_same_line_has_the_same_id_however_often_it_is_read() -> None:
    assert [event.id for event in watch(Recorded(LOG)).poll(BOOT_MS)] == [
        event.id for event in watch(Recorded(LOG)).poll(BOOT_MS + 99)
    ]


def resident_kib() -> int:
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1_024


def test_800_000_repeated_lines_are_one_fault_and_counts_by_the_minute_in_bounded_memory() -> None:
    lines = 800_000
    storm = (record(number, XID.format(code=31), number * 180 / lines) for number in range(lines))
    watching = watch(Recorded(storm))
    events = watching.poll(BOOT_MS)
    before_kib = resident_kib()
    while watching.behind:
        events += watching.poll(BOOT_MS)
    events += watching.rest()
    assert sum(count for _, count, _ in faults(events)) == lines
    assert len(events) <= 2 * 4
    assert lines > 2 * AT_ONCE
    assert resident_kib() - before_kib < 4 * 1_024


@pytest.mark.parametrize("text", [XID.format(code=31), "pcieport 0000:00:01.0: AER: Corrected error", "usb 1-1: new"])
@pytest.mark.parametrize("priority", [3, 12])
def test_a_text_means_the_same_however_often_it_comes_and_what_is_known_of_it_is_forgotten(
    text: str, priority: int
) -> None:
    others = [record(number, f"another text {number}", 1.0) for number in range(2, 700)]
    lines = [record(1, text, 1.0, priority), *others, *(record(n, text, 500.0, priority) for n in (701, 702))]
    once = [watch(Recorded([line])).poll(BOOT_MS) for line in (lines[0], lines[-2])]
    together = watch(Recorded(lines))
    assert [event.data for event in together.poll(BOOT_MS)] == [event.data for events in once for event in events]
    assert sum(count for _, count, _ in faults(together.rest())) == len(once[0])


def test_repeats_are_told_when_their_minute_is_over_though_nothing_more_is_logged() -> None:
    watching = watch(Recorded([record(n, XID.format(code=31), 1.0) for n in range(5)]))
    assert faults(watching.poll(BOOT_MS + 1_000)) == [("31", 1, "b1")]
    assert watching.poll(BOOT_MS + FOLD_MS) == []
    assert faults(watching.poll(BOOT_MS + 1_001 + FOLD_MS)) == [("31", 4, "b1")]
    assert watching.rest() == []


def test_lines_that_user_space_wrote_are_synthetic() -> None:
    (event,) = watch(Recorded([record(1, XID.format(code=79), priority=12)])).poll(BOOT_MS)
    assert isinstance(event.data, NodeFault)
    assert event.data.synthetic


def test_a_log_that_cannot_be_read_or_was_overrun_is_no_pass() -> None:
    source = Recorded(LOG)
    source.broken = PermissionError(1, "Operation not permitted")
    watching = watch(source)
    assert watching.poll(BOOT_MS) == []
    assert (watching.check().status, watching.check().message) == ("error", "cannot be read: Operation not permitted")
    source.broken, source.overwritten = None, 2
    watching.poll(BOOT_MS)
    assert [watching.check().code, watching.check().code] == ["overrun", None]


@pytest.mark.parametrize("line", ["", "no record", "3;4", "3,x,5,-;text", "3,٣,5,-;text"])
def test_what_is_no_record_is_passed_over(line: str) -> None:
    assert kmsg_record(line) is None
    assert watch(Recorded([line])).poll(BOOT_MS) == []


def test_this_machine_s_own_log_is_read_record_by_record() -> None:
    if not os.access(KMSG, os.R_OK):
        pytest.skip(f"{KMSG} cannot be read here")
    device = KmsgDevice()
    try:
        records = [kmsg_record(line) for line in device.records()]
    except OSError as error:
        pytest.skip(f"{KMSG} cannot be read here: {error}")
    finally:
        device.close()
    numbers = [record.sequence for record in records if record is not None]
    assert len(numbers) == len(records) > 0
    assert numbers == sorted(numbers)


@pytest.fixture
def kernel_says() -> Iterator[Callable[[str], int | None]]:
    """Write a line into this machine's own log, as any root process can."""
    try:
        file = os.open(KMSG, os.O_WRONLY)
    except OSError as error:
        pytest.skip(f"{KMSG} cannot be written here: {error}")
    with os.fdopen(file, "wb", buffering=0) as log:
        # A line without an end waits for its continuation, and is not shown to anybody before.
        yield lambda line: log.write(f"<3>{line}\n".encode())


def test_this_machine_s_own_log_tells_each_fault_once_however_often_the_agent_starts(
    kernel_says: Callable[[str], int | None], tmp_path: Path
) -> None:
    fields = {"cluster": "c1", "node": "n1", "role": "cpu", "state": tmp_path / "state"}
    pid = 1_000_000 + secrets.randbelow(3_000_000)  # by which the lines of this run are known
    told: list[tuple[str, bool]] = []

    class Outlet:
        def put(self, event: Event) -> None:
            if isinstance(event.data, NodeFault) and event.data.process == Process(pid, "faultlens-test"):
                told.append((event.data.code, event.data.synthetic))

        def trouble(self) -> None:
            return None

    for code in (31, None, 43, None):
        if code is not None:
            kernel_says(f"NVRM: Xid (PCI:0000:3b:00): {code}, pid={pid}, name=faultlens-test, Ch 00000010")
        agent = Agent(Configuration.model_validate(fields), Outlet(), version="1", now_ms=wall_ms)
        assert isinstance(agent.once().data, NodeHealth)
    assert told == [("31", True), ("43", True)]


def test_a_device_that_is_not_there_is_an_error_each_time(tmp_path: Path) -> None:
    watching = watch(KmsgDevice(tmp_path / "kmsg"))
    for _ in range(2):
        watching.poll(BOOT_MS)
        assert watching.check().status == "error"


def test_a_record_that_we_stumble_over_is_told_as_an_error_and_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    watching = watch(Recorded([record(8, "stumble"), record(9, XID.format(code=31), 10.0)]))
    take = Scanner.take

    def stumbles(scanner: Scanner, line: Line) -> Seen | None:
        if line.text == "stumble":
            raise IndexError("over it")
        return take(scanner, line)

    monkeypatch.setattr(Scanner, "take", stumbles)
    assert faults(watching.poll(BOOT_MS)) == [("31", 1, "b1")]
    checks = [watching.check(), watching.check()]
    assert [check.status for check in checks] == ["error", "pass"]
    assert checks[0].message == "a record could not be understood: IndexError: over it"


def test_faults_have_their_moment_by_the_clock_as_it_is_after_it_was_set(tmp_path: Path) -> None:
    kept, log = Kept(), tmp_path / "kmsg"
    settings = Configuration(cluster="c1", node="n1", role="cpu", state=tmp_path / "state", kernel_log=log)
    hour_ms = 3_600_000
    late = [0]
    agent = Agent(settings, kept, version="1", now_ms=lambda: wall_ms() - late[0])
    for late[0], sequence in ((0, 1), (hour_ms, 2), (0, 3)):
        log.write_text(record(sequence, XID.format(code=79 - sequence), monotonic()), "utf-8")
        agent._kernel._source = KmsgDevice(log)
        agent._read_kernel()
    times = [event.time_ms - wall_ms() for event in kept.events if isinstance(event.data, NodeFault)]
    assert [round(time / hour_ms, 2) for time in times] == [0, -1, 0]
