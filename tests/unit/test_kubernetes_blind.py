"""An API server that goes away: what the bridge knew of nodes is not reported as what they are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count
from pathlib import Path
from threading import Event as Flag
from typing import Any, Self

import pytest
from aiohttp import ClientError

from faultlens.codec import Event
from faultlens.events import NodeHealth
from producers.delivery.kept import Kept
from producers.kubernetes import bridge as bridges
from producers.kubernetes.bridge import KubernetesBridge
from producers.kubernetes.telling import Names
from producers.kubernetes.translator import Translator
from producers.kubernetes.watching import RESOURCES, Change, Cluster, Resource
from tests.unit.kubernetes_world import START_MS, Lab, node

NODES = RESOURCES[0]


class Away(Cluster):
    """A cluster with one node; its server answers as many watches as it is told to, and then no more."""

    def __init__(self, answers: int) -> None:
        self._left = answers

    async def has(self, resource: Resource) -> bool:
        return resource == NODES

    async def _listed(self, resource: Resource, put: Callable[[Change], Any]) -> str:
        await put(Change(resource, "seen", Lab()._read("Node", node()), None))
        await put(Change(resource, "listed", {"gpu-1"}, "100"))
        return "100"

    async def get(self, path: str, query: dict[str, str], timeout_s: float) -> Any:
        if self._left <= 0:
            raise ClientError("no route to host")
        self._left -= 1
        return Quiet()


class Quiet:
    """A watch that brings nothing."""

    status = 200

    def __init__(self) -> None:
        self.content = self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return

    async def iter_any(self) -> Any:
        await asyncio.sleep(0.02)
        if self.status != 200:
            yield b""


class Sink:
    def __init__(self, stop: Flag) -> None:
        self.reports = 0
        self._stop = stop

    def put(self, event: Event) -> None:
        self.reports += isinstance(event.data, NodeHealth)
        if self.reports >= 3:
            self._stop.set()


@pytest.mark.parametrize(("answers", "reports"), [(1_000, 3), (0, 0)])
def test_nodes_are_reported_only_while_the_server_answers(
    answers: int, reports: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bridges, "EVERY_S", 0.01)
    clock, stop = count(START_MS, 5_000), Flag()
    kept, sink = Kept(tmp_path / "kept"), Sink(stop)

    async def run() -> None:
        bridge = KubernetesBridge(Translator(Names("c1")), kept, sink, now_ms=lambda: next(clock))
        running = asyncio.create_task(bridge.run(Away(answers), {}, stop))
        await asyncio.wait([running], timeout=10 if reports else 1)
        stop.set()
        await running

    asyncio.run(run())
    kept.close()
    assert sink.reports == reports
