"""Scenes of repair: what nodes and people say, told in minutes, an actuator that obeys, and what is done."""

from __future__ import annotations

import heapq
from itertools import count
from typing import Any, Self

from faultlens.arrival import Entry
from faultlens.clock import MINUTE_MS, SECOND_MS, moment_of, ms_of, parse_moment
from faultlens.codec import encode, event_of
from faultlens.events import (
    Check,
    ControlScope,
    Data,
    DeviceRef,
    Incident,
    NodeActed,
    NodeFault,
    NodeHealth,
    OperatorControl,
    RemediationCommand,
    RemediationResult,
)
from faultlens.local_pump import Pump
from faultlens.local_roles import load_roles
from streams.runtime.records import Sent
from streams.runtime.task import Task

T0 = parse_moment("2026-11-23T04:00:00Z")
CHECKS = {"gpu_count": "gpu", "driver_responds": "driver", "ecc": "gpu", "ib_links": "nic"}
ROLES = tuple(role for role in load_roles() if role.name in ("node", "context", "remediation"))
_STEP_MS = 10 * SECOND_MS


class Repairs:
    """Nodes that report each minute, and an actuator that heals what it repairs; all of it may be told otherwise."""

    def __init__(self, nodes: int = 10, *, racks: int = 1, answers: dict[str, str] | None = None) -> None:
        self.names = [f"n{number}" for number in range(nodes)]
        self.rack = {name: f"r{number * racks // nodes}" for number, name in enumerate(self.names)}
        self.answers = answers if answers is not None else {}
        self.heals = {"reset_device", "restart_services", "reboot", "power_cycle", "replace"}
        self.failing: dict[str, dict[str, int]] = {name: {} for name in self.names}
        self.boots = dict.fromkeys(self.names, 0)
        self.gone: set[str] = set()
        self.commands: list[RemediationCommand] = []
        self.incidents: list[Incident] = []
        self._order, self._due = count(), list[tuple[int, int, Any]]()
        self._pump = Pump([Task(role) for role in ROLES], self._from_pump)
        self._now_ms = T0
        for name in self.names:
            self._at(T0 + SECOND_MS, lambda name=name: self._report(name))

    # --- what happens ----------------------------------------------------------------------------------

    def _at(self, at_ms: int, what: Any) -> None:
        heapq.heappush(self._due, (at_ms, next(self._order), what))

    def at(self, minute: float, data: Data, source: str = "bridge/x", *, happened: float | None = None) -> Self:
        """Let somebody say something; `happened`: the minute that it is about, where that is long ago."""
        time_ms = None if happened is None else T0 + round(happened * MINUTE_MS)
        self._at(T0 + round(minute * MINUTE_MS), lambda: self._say(data, source, time_ms))
        return self

    def fault(self, minute: float, node: str, code: str, *, check: str = "", gpu: int = 0, **more: Any) -> Self:
        """Let a GPU break; its check fails until something heals it."""

        def breaks() -> None:
            if check:
                self.failing[node][check] = gpu
            fields: dict[str, Any] = {"device": DeviceRef(index=gpu)} | more
            data = NodeFault(
                node=node, cluster="c1", kind="xid", code=code, detected_by="kmsg", gpu_family="H100",
                boot_id=self._boot(node), **fields,
            )  # fmt: skip
            self._say(data, f"agent/{node}")

        self._at(T0 + round(minute * MINUTE_MS), breaks)
        return self

    def act(self, minute: float, node: str, action: str, actor: str = "ann") -> Self:
        """Let a person change a node."""
        return self.at(minute, NodeActed(node, "c1", action, actor, planned=False))  # type: ignore[arg-type]

    def control(self, minute: float, verb: str, **scope: tuple[str, ...]) -> Self:
        """Let a person say something to remediation."""
        data = OperatorControl("c1", verb, "ann", "because", ControlScope(**scope))  # type: ignore[arg-type]
        return self.at(minute, data, "operator/ann")

    def run(self, minutes: float) -> Self:
        """Let time pass up to this minute."""
        until_ms = T0 + round(minutes * MINUTE_MS)
        while self._now_ms < until_ms:
            soon_ms = self._due[0][0] if self._due else until_ms
            self._now_ms = min(until_ms, self._now_ms + _STEP_MS, max(soon_ms, self._now_ms + 1))
            while self._due and self._due[0][0] <= self._now_ms:
                heapq.heappop(self._due)[2]()
            self._pump._advance(self._now_ms, records=True)
        return self

    # --- what is done ----------------------------------------------------------------------------------

    def done(self, node: str) -> list[str]:
        """Return what was commanded of a node, in order."""
        return [command.action for command in self.commands if command.node == node]

    def minute_of(self, node: str, action: str) -> float:
        """Return when the first such command was issued."""
        first = next(c for c in self.commands if (c.node, c.action) == (node, action))
        return (ms_of(first.issued_at) - T0) / MINUTE_MS

    def standing(self) -> dict[str, Incident]:
        """Return the open incidents as they stand, by the first of their nodes."""
        last = {incident.incident_id: incident for incident in self.incidents}
        return {i.scope.nodes[0]: i for i in last.values() if i.phase != "closed"}

    @property
    def minute(self) -> float:
        """The minute up to which the scene was told."""
        return (self._now_ms - T0) / MINUTE_MS

    def steps(self) -> int:
        """Return how many steps remediation has taken."""
        return next(task.counts.steps for task in self._pump.tasks if task.role.name == "remediation")

    # --- inside ----------------------------------------------------------------------------------------

    def _boot(self, node: str) -> str:
        return f"{node}-{self.boots[node]}"

    def _report(self, name: str) -> None:
        if name not in self.gone:
            failing = self.failing[name]
            checks = tuple(
                Check(check, component, "fail" if check in failing else "pass", failing.get(check))  # type: ignore[arg-type]
                for check, component in CHECKS.items()
            )
            data = NodeHealth(
                name, "c1", 60.0, 8, 8 - len(failing), checks, "gpu", self._boot(name), {"rack": self.rack[name]},
                "H100", f"host-{name}",
            )  # fmt: skip
            self._say(data, f"agent/{name}")
        self._at(self._now_ms + MINUTE_MS, lambda: self._report(name))

    def _say(self, data: Data, source: str, time_ms: int | None = None) -> None:
        event = event_of(data, source=source, id_=f"e{next(self._order)}", time_ms=time_ms or self._now_ms)
        self._pump.take(Entry("scene", 1, encode(event), event, arrived_ms=self._now_ms), event)

    def _from_pump(self, sent: Sent, at_ms: int) -> None:
        data = sent.event.data
        assert sent.topic != "dead-letters", sent.event
        if isinstance(data, Incident):
            self.incidents.append(data)
        if isinstance(data, RemediationCommand):
            self.commands.append(data)
            answer = self.answers.get(data.action, "succeeded")
            if answer != "silent":
                self._at(at_ms + 20 * SECOND_MS, lambda: self._answer(data, answer))

    def _answer(self, command: RemediationCommand, state: str) -> None:
        node = command.node or ""
        if state == "succeeded" and command.action in self.heals:
            self.failing[node].clear()
        if state == "succeeded" and command.action in ("reboot", "power_cycle", "replace"):
            self.boots[node] += 1
        result = RemediationResult(
            command.command_id, "c1", state, "scene", moment_of(self._now_ms), node, reason="so"  # type: ignore[arg-type]
        )  # fmt: skip
        self._say(result, "actuator/scene")
