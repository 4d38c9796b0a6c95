"""What the story of a repaired fleet is made of: machines, a lane that can crash, and an account of what is out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from faultlens.events import Check, NodeActed, NodeHealth, RemediationCommand, RemediationResult
from streams.runtime.records import Record, Role, Sent
from streams.runtime.state import Kept, KeptCodec, MemoryStates
from streams.runtime.task import Task

if TYPE_CHECKING:
    from tests.simulation.mischief import Fault

CLUSTER = "c1"
RESTARTS = ("reboot", "power_cycle", "replace")
CHECKS = {"gpu_count": "gpu", "driver_responds": "driver", "ecc": "gpu", "ib_links": "nic", "host_memory": "memory"}
TAKING = {"block_new_work", "drain", "reset_device", "restart_services", *RESTARTS}


@dataclass
class Machine:
    """What is true of a node, whether anybody knows it or not."""

    name: str
    number: int
    boots: int = 0
    broken: dict[int, Fault] = field(default_factory=dict)
    gone_until_ms: int = 0
    blocked: bool = False
    cordoned: bool = False
    report: NodeHealth | None = None
    hides_until_ms: int = 0
    claims: Fault | None = None
    claims_until_ms: int = 0

    def __post_init__(self) -> None:
        self.agent = f"agent/{self.name}"
        self.where = {"rack": f"r{self.number // 10}", "switch": f"s{self.number // 20}"}

    @property
    def boot_id(self) -> str:
        return f"{self.name}-boot-{self.boots}"

    def seen(self, now_ms: int) -> dict[int, Fault]:
        """Return what its agent says is broken: not always what is."""
        if now_ms < self.hides_until_ms:
            return {}
        if self.claims is not None and now_ms < self.claims_until_ms:
            return {0: self.claims} | self.broken
        return self.broken

    def mended(self) -> None:
        """Let nothing be wrong with it, and its agent be right."""
        self.broken.clear()
        self.hides_until_ms = self.claims_until_ms = 0


class Clock(NamedTuple):
    """How far somebody's clock is ahead, and whether they say by `senttime` what it shows."""

    off_ms: int
    tells: bool = True


TRUE_CLOCK = Clock(0)


def checks_of(seen: dict[int, Fault]) -> tuple[Check, ...]:
    """Return what an agent reports of each of its checks."""
    device = {fault.check: gpu for gpu, fault in seen.items()}
    return tuple(
        Check(name, component, "fail" if name in device else "pass", device.get(name))  # type: ignore[arg-type]
        for name, component in CHECKS.items()
    )


def reloaded(task: Task) -> Task:
    """Return a task that goes on from what another one has written."""
    task.seal()
    codec, states = KeptCodec(task.role.processor.state_type), MemoryStates()
    for key, kept in task.states.items():
        states.put(key, codec.decode(codec.encode(kept)))
    return Task(task.role, states=states, lane=task.lane)


class Lane:
    """The remediation lane: records in, whole batches out; a crash loses what was not written.

    What was written is encoded and read back when it is needed: after a crash. What stands as it did when it was read
    back last is not read again.
    """

    def __init__(self, role: Role) -> None:
        self._role = role
        self._codec = KeptCodec(role.processor.state_type)
        self._written: dict[str, Kept] = {}
        self._read: dict[str, Kept] = {}
        self._unread: dict[str, None] = {}
        self.task = self._loaded(None)
        self._lane = self.task.lane
        self._since: list[Record | int] = []

    def _loaded(self, lane: Any) -> Task:
        for key in self._unread:
            if key in self._written:
                self._read[key] = self._codec.decode(self._codec.encode(self._written[key]))
            else:
                self._read.pop(key, None)
        self._unread.clear()
        states = MemoryStates()
        states._kept.update(self._read)
        return Task(self._role, states=states, lane=lane)

    def take(self, record: Record) -> None:
        self._since.append(record)
        self.task.take(record)

    def advance(self, now_ms: int) -> None:
        self._since.append(now_ms)
        self.task.advance(now_ms)

    def commit(self) -> list[Sent]:
        batch = self.task.seal()
        for key, kept in batch.changed.items():
            self._unread[key] = None
            if kept is None:
                self._written.pop(key, None)
            else:
                self._written[key] = kept
        self._lane, self._since = batch.lane, []
        return batch.sent

    @property
    def has_batch(self) -> bool:
        """Whether something would be lost by a crash."""
        return self.task.has_changed or self.task.has_sent

    def crash(self) -> None:
        """Lose the batch, and go on from what was written."""
        again, self._since = self._since, []
        self.task = self._loaded(self._lane)
        for step in again:
            self.advance(step) if isinstance(step, int) else self.take(step)

    def cards(self, kind: type[Any]) -> list[Any]:
        return [kept.state for _, kept in self.task.states.items() if isinstance(kept.state, kind)]

    def sizes(self) -> list[int]:
        return [len(self._codec.encode(kept)) for kept in self._written.values()]


class Counted:
    """What is out, by what was commanded and said and by nothing that the processor keeps; and how commands ended."""

    def __init__(self, machines: list[Machine]) -> None:
        self.commands: dict[str, RemediationCommand] = {}
        self.endings: dict[str, list[str]] = {}
        self.started: set[str] = set()
        self.taken_ms: dict[str, int] = {}
        self.cordoned: set[str] = set()
        self.told_out: set[str] = set()
        self._acted_ms: dict[str, int] = {}
        self.faults: list[str] = []
        self._scopes = {"cluster": {machine.name for machine in machines}}
        for machine in machines:
            for kind, name in machine.where.items():
                self._scopes.setdefault(f"{kind}/{name}", set()).add(machine.name)

    def issued(self, command: RemediationCommand) -> None:
        node = command.node
        if command.command_id in self.commands:
            self.faults.append(f"sent twice: {command}")
        if command.action in TAKING and node is not None:
            out = self.taken_ms.keys() | self.cordoned | self.told_out | self.about_to_be()
            for name, members in self._scopes.items():
                cap = max(1, len(members) // 10)
                if node in members and node not in out and len(out & members) + 1 > cap:
                    self.faults.append(f"{command.action} {node} breaks the cap of {name}: {sorted(out & members)}")
        if command.action == "return_to_service" and node in self.cordoned:
            self.faults.append(f"returned over a person's cordon: {command}")
        self.commands[command.command_id] = command
        self.endings[command.command_id] = []

    def acted(self, act: NodeActed, at_ms: int) -> None:
        """Note what the scheduler's bridge says of a node. It has one flag: who puts a node back does so for all.

        What it tells late may have been undone meanwhile.
        """
        if at_ms < self._acted_ms.get(act.node, 0):
            return
        self._acted_ms[act.node] = at_ms
        if act.action == "cordon":
            (self.cordoned if act.command_id is None else self.told_out).add(act.node)
        else:
            self.told_out.discard(act.node)
            self.cordoned.discard(act.node)
            if self.taken_ms.get(act.node, at_ms) <= at_ms:
                self.taken_ms.pop(act.node, None)

    def about_to_be(self) -> set[str]:
        open_ = (c for c in self.commands.values() if not self.endings[c.command_id] and c.action in TAKING)
        return {command.node for command in open_ if command.node is not None}

    def heard(self, result: RemediationResult, at_ms: int) -> None:
        """Note what an actuator says; what comes after the end says something of the node, and ends nothing."""
        command, node = self.commands.get(result.command_id), result.node or ""
        if command is None:
            return
        if result.state == "started":
            self.started.add(command.command_id)
            return
        is_over = bool(self.endings[command.command_id])
        if not is_over:
            self.endings[command.command_id].append(result.state)
        if command.action == "return_to_service" and result.state == "succeeded":
            self.taken_ms.pop(node, None)
            self.told_out.discard(node)
        elif command.action in TAKING and (result.state == "succeeded" or (not is_over and self._in_doubt(result))):
            self.taken_ms[node] = at_ms

    def _in_doubt(self, result: RemediationResult) -> bool:
        return result.state == "failed" and result.command_id in self.started

    def expired(self, command_id: str, at_ms: int) -> None:
        if self.endings[command_id]:
            self.faults.append(f"expired after its end: {self.commands[command_id]}")
        self.endings[command_id].append("expired")
        command = self.commands[command_id]
        if command_id in self.started and command.action in TAKING and command.node is not None:
            self.taken_ms[command.node] = at_ms
