"""What an actuator does when its ledger or its results cannot be written, or its ledger is damaged."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from actuators import Worker
from actuators.ledger import Ledger
from actuators.sdk import Beat
from actuators.worker import Duty
from faultlens.clock import HOUR_MS, moment_of, wall_ms
from faultlens.codec import Decoder, Event, encode, event_of
from faultlens.errors import WorldError
from faultlens.events import RemediationCommand
from tests.contract.acting import DRAIN, T0, Acting, Bench, Clock, ends


def test_nothing_is_done_that_cannot_be_told_and_it_is_done_by_the_next_one(ledger: Ledger) -> None:
    def full(event: Event) -> None:
        raise WorldError("results.jsonl cannot be written: No space left on device")

    acting, clock, told = Acting(), Clock(), list[Event]()
    with pytest.raises(WorldError, match="No space left"):
        Worker(acting, Duty("c1"), ledger, full, clock).take(DRAIN)
    assert acting.done == []
    again = Worker(acting, Duty("c1"), ledger, told.append, clock)
    assert [again.take(command) for command in again.unfinished()] == ["succeeded"]
    assert ends(told) == [(DRAIN.command_id, "succeeded")]


def fill(ledger: Ledger) -> None:
    """Take all the room that there is for the ledger."""
    pages = ledger._file.execute("PRAGMA page_count").fetchone()[0]
    ledger._file.execute(f"PRAGMA max_page_count = {pages}")
    for number in range(100_000):
        ledger.note(f"{number}", b"")


def test_the_end_is_told_though_the_disk_of_the_ledger_is_full(tmp_path: Path) -> None:
    def fills(beat: Beat) -> str:
        with pytest.raises(WorldError, match="full"):
            fill(ledger)
        return "x" * 500

    told: list[Event] = []
    with closing(Ledger(tmp_path / "act.db")) as ledger:
        worker = Worker(Acting(fills), Duty("c1"), ledger, told.append, Clock())
        with pytest.raises(WorldError, match=r"act.db cannot be kept .* full"):
            worker.take(replace(DRAIN, policy="p" * 4_500))  # its end takes a page more than its beginning
    assert ends(told) == [(DRAIN.command_id, "succeeded")]


def test_a_ledger_belongs_to_one_process_at_a_time(tmp_path: Path) -> None:
    with closing(Ledger(tmp_path / "act.db")), pytest.raises(WorldError, match="of an actuator that runs: end that"):
        Ledger(tmp_path / "act.db")
    Ledger(tmp_path / "act.db").close()


def rubbish(path: Path) -> None:
    path.write_bytes(b"no database at all" * 100)


def torn(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 4096 * 8)


def unreadable(path: Path) -> None:
    with closing(Ledger(path)) as ledger, ledger._lock:
        ledger._file.execute("UPDATE commands SET body = X'7B', state = 'started'")


@pytest.mark.parametrize("damage", [rubbish, torn, unreadable])
def test_a_damaged_ledger_is_said_to_be_and_nothing_is_done(damage: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / "act.db"
    with closing(Ledger(path)) as ledger:
        for number in range(50):
            Bench(Acting(), ledger).worker.accept(replace(DRAIN, command_id=f"c{number}"))
    damage(path)
    ran = acted(tmp_path, [DRAIN])
    assert (ran.returncode, "Traceback" in ran.stderr) == (3, False), ran.stderr
    assert "ledger" in ran.stderr
    assert results(tmp_path) == []


# --- the process -------------------------------------------------------------------------------------------


def live(number: int) -> RemediationCommand:
    now_ms = wall_ms()
    return replace(
        DRAIN,
        command_id=f"command-{number}",
        node=f"node-{number}",
        issued_at=moment_of(now_ms),
        expires_at=moment_of(now_ms + HOUR_MS),
        finish_by=moment_of(now_ms + 2 * HOUR_MS),
    )


def acted(folder: Path, commands: list[RemediationCommand], *, limit: int | None = None) -> Any:
    """Run the program over commands in a file; `limit`: the most bytes that any file of it may have."""
    lines = [encode(event_of(c, source="x", id_=c.command_id, time_ms=T0)) for c in commands]
    (folder / "commands.jsonl").write_bytes(b"\n".join(lines) + b"\n")

    def limited() -> None:
        if limit is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    return subprocess.run(
        [
            *(sys.executable, "-m", "faultlens.cli", "act", "dry-run", "--cluster", "c1"),
            *("--commands", str(folder / "commands.jsonl"), "--out", str(folder / "results.jsonl")),
            *("--ledger", str(folder / "act.db")),
        ],
        capture_output=True, text=True, timeout=60, check=False, preexec_fn=limited,
    )  # fmt: skip


def results(folder: Path) -> list[tuple[str, str]]:
    path = folder / "results.jsonl"
    lines = path.read_bytes().splitlines() if path.exists() else []
    return ends([Decoder().decode(line) for line in lines])


def test_a_disk_that_is_full_ends_the_process_with_its_reason_and_loses_no_end(tmp_path: Path) -> None:
    commands = [live(number) for number in range(60)]
    ran = acted(tmp_path, commands, limit=160_000)
    assert (ran.returncode, "Traceback" in ran.stderr) == (3, False), ran.stderr
    assert "act.db cannot be kept as the actuator's ledger" in ran.stderr
    told = results(tmp_path)
    assert 0 < len(set(told)) < 60
    again = acted(tmp_path, commands)
    assert again.returncode == 0, again.stderr
    assert set(results(tmp_path)) == {(command.command_id, "refused") for command in commands}


def test_results_that_cannot_be_written_end_the_process_and_leave_no_half_line(tmp_path: Path) -> None:
    commands = [live(number) for number in range(20)]
    assert acted(tmp_path, commands[:1]).returncode == 0
    path = tmp_path / "results.jsonl"
    line = path.read_bytes().splitlines(keepends=True)[-1]
    # Far more than the ledger will be: it is the results that reach the limit.
    written = path.write_bytes(line * (2_000_000 // len(line)))
    (tmp_path / "act.db").unlink()
    ran = acted(tmp_path, commands, limit=written + 1_000)
    assert (ran.returncode, "Traceback" in ran.stderr) == (3, False), ran.stderr
    assert "results.jsonl cannot be written: File too large" in ran.stderr
    assert path.read_bytes().endswith(b"\n")
    assert acted(tmp_path, commands).returncode == 0
    assert set(results(tmp_path)) == {(command.command_id, "refused") for command in commands}
