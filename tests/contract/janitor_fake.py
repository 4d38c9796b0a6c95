"""NVSentinel's janitor in memory, behind an API server: resources that are worked on by being looked at."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from actuators.kubernetes_api import Answer, UnreachableError
from actuators.nvsentinel import GROUP, KINDS

PLURALS = frozenset(kind.plural for kind in KINDS.values())


class FakeJanitor:
    """Takes resources and ends them after so many looks: `phase` if any, and `outcome` as their condition.

    `away`: so many questions get no answer. `dies_after`: the asking process is killed after so many changes.
    """

    def __init__(self, *, plurals: frozenset[str] = PLURALS, takes: int = 3) -> None:
        self.made: dict[str, dict[str, Any]] = {}
        self.outcome: dict[str, Any] = {"status": "True", "reason": "Succeeded"}
        self.phase: str | None = None
        self.plurals = plurals
        self.away = 0
        self.dies_after: int | None = None
        self._takes = takes
        self._looks: dict[str, int] = {}

    def __call__(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, kind: str = "application/json"
    ) -> Answer:
        if self.away:
            self.away -= 1
            raise UnreachableError("connection refused")
        if path == "/api/v1/nodes/node-1":
            return Answer(200, {"status": {"nodeInfo": {"bootID": "boot-1"}}})
        plural, _, name = path.removeprefix(GROUP).strip("/").partition("?")[0].partition("/")
        if plural not in self.plurals:
            return Answer(404, {"message": "the server could not find the requested resource"})
        if method == "POST":
            return self._make(plural, dict(body or {}))
        return Answer(200, {"items": []}) if not name else self._look(plural, name)

    def _make(self, plural: str, body: dict[str, Any]) -> Answer:
        name = body["metadata"]["name"]
        if name in self.made:
            return Answer(409, {"message": "already exists"})
        self.made[name] = body
        if self.dies_after is not None:
            self.dies_after -= 1
            if self.dies_after < 0:
                self.dies_after = None
                raise KeyboardInterrupt
        return Answer(201, body)

    def _look(self, plural: str, name: str) -> Answer:
        if name not in self.made:
            return Answer(404, {})
        self._looks[name] = self._looks.get(name, 0) + 1
        found = copy.deepcopy(self.made[name])
        over = self._looks[name] > self._takes
        done = next(kind.done for kind in KINDS.values() if kind.plural == plural)
        now = self.outcome if over else {"status": "Unknown", "reason": "Initializing"}
        found["status"] = {"startTime": "2026-11-23T04:00:00Z", "conditions": [{"type": done, **now}]}
        if self.phase is not None:
            found["status"]["phase"] = self.phase if over else "InProgress"
        if over:
            found["status"]["completionTime"] = "2026-11-23T04:05:00Z"
        return Answer(200, found)
