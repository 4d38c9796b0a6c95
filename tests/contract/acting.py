"""A worker with a clock of its own, and a command for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from actuators import Actuator, Worker
from actuators.ledger import Ledger
from actuators.sdk import Beat
from actuators.worker import Duty
from faultlens.clock import HOUR_MS, MINUTE_MS, moment_of, parse_moment
from faultlens.codec import Event
from faultlens.events import CommandReason, RemediationCommand, RemediationResult

T0 = parse_moment("2026-11-23T04:00:00Z")
DRAIN = RemediationCommand(
    command_id="3f1c0000-0000-5000-8000-000000000001",
    cluster="c1",
    action="drain",
    rung=1,
    reason=CommandReason(("xid:79",), "incident-1"),
    issued_at=moment_of(T0),
    expires_at=moment_of(T0 + 5 * MINUTE_MS),
    finish_by=moment_of(T0 + HOUR_MS),
    mode="live",
    policy="2026-11 reboot",
    node="node-1",
    boot_id="boot-1",
)

ENDS = ("refused", "succeeded", "failed")
# When a command is decided that knows how DRAIN ended.
LATER = moment_of(T0 + HOUR_MS)


class Clock:
    """A clock that goes on when it is told to, and while something sleeps."""

    def __init__(self) -> None:
        self.now_ms = T0

    def __call__(self) -> int:
        return self.now_ms

    def sleep(self, seconds: float) -> None:
        self.now_ms += int(seconds * 1000)


@dataclass
class Bench:
    """A worker with a clock, and what it told."""

    actuator: Actuator
    ledger: Ledger
    clock: Clock = field(default_factory=Clock)
    sole: bool = False
    told: list[Event] = field(default_factory=list)

    @property
    def worker(self) -> Worker:
        return Worker(self.actuator, Duty("c1", None, self.sole), self.ledger, self.told.append, self.clock)

    @property
    def results(self) -> list[RemediationResult]:
        return [event.data for event in self.told if isinstance(event.data, RemediationResult)]

    @property
    def states(self) -> list[str]:
        return [result.state for result in self.results]


class Acting(Actuator):
    """Does what it is made with, and counts it."""

    name = "acting"
    actions = frozenset({"drain", "reboot"})

    def __init__(self, does: Callable[[Beat], str] = lambda beat: "done") -> None:
        self.done: list[str] = []
        self._does = does

    def do(self, command: RemediationCommand, beat: Beat) -> str:
        self.done.append(command.command_id)
        return self._does(beat)


def ends(told: list[Event]) -> list[tuple[str, str]]:
    results = [event.data for event in told if isinstance(event.data, RemediationResult)]
    return [(result.command_id, result.state) for result in results if result.state in ENDS]
