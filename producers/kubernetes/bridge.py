"""Kubernetes, live: watches feed a translator; what it tells is handed on first, and remembered then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from threading import Event as Flag
from typing import Final, Protocol

import structlog

from faultlens.codec import Event
from producers.delivery.kept import Kept
from producers.kubernetes.memory import taken
from producers.kubernetes.translator import Translator
from producers.kubernetes.watching import RESOURCES, Change, Cluster, Resource

EVERY_S: Final = 1.0
# Changes that wait to be translated; a watch that brings more is held up.
QUEUE: Final = 1_000
# Watches that go on where they stopped come up to the present one by one: until then nothing is taken for over.
CATCH_UP_MS: Final = 10_000
_VERSION: Final = "version "
_log: Final = structlog.get_logger("faultlens.bridge")


class Sink(Protocol):
    """Where events go; an outbox is one."""

    def put(self, event: Event) -> None: ...


class KubernetesBridge:
    """One cluster's bridge. What is told is put into the sink before it is remembered: a crash in between tells it
    again, under the same id."""

    def __init__(self, translator: Translator, kept: Kept, sink: Sink, *, now_ms: Callable[[], int]) -> None:
        self._translator = translator
        self._kept = kept
        self._sink = sink
        self._now_ms = now_ms
        self._versions: dict[str, str] = {}
        self._lost: set[str] = set()
        self.told = 0

    async def run(self, cluster: Cluster, versions: dict[str, str], stop: Flag) -> None:
        """Watch until told to stop. `versions`: how far each kind's watch had come. WorldError: no way to begin."""
        resources = await _there(cluster)
        queue: asyncio.Queue[Change] = asyncio.Queue(QUEUE)
        following: list[asyncio.Task[None]] = []
        try:
            for resource in resources:
                version = versions.get(resource.kind)
                following.append(asyncio.create_task(cluster.follow(resource, version, queue.put)))
                if version is None:
                    await self._first_list(resource, queue)
            await self._translate(queue, following, stop)
        finally:
            for task in following:
                task.cancel()
            await asyncio.gather(*following, return_exceptions=True)

    async def once(self, cluster: Cluster) -> None:
        """List everything there is and tell what is new. WorldError: something cannot be listed."""
        for resource in await _there(cluster):
            await cluster.seen(resource, self._noted)
        self._put(self._translator.on_time(self._now_ms()))
        self._save()

    async def _noted(self, change: Change) -> None:
        self._take(change)

    async def _first_list(self, resource: Resource, queue: asyncio.Queue[Change]) -> None:
        """Translate until the kind was listed: what rests on it is listed after it."""
        while True:
            change = await queue.get()
            self._take(change)
            if (change.resource, change.what) == (resource, "listed"):
                self._save()
                return

    async def _translate(self, queue: asyncio.Queue[Change], following: list[asyncio.Task[None]], stop: Flag) -> None:
        began_ms = self._now_ms()
        while not stop.is_set():
            with suppress(TimeoutError):
                self._take(await asyncio.wait_for(queue.get(), EVERY_S))
            while not queue.empty():
                self._take(queue.get_nowait())
            if self._now_ms() - began_ms >= CATCH_UP_MS:
                self._put(self._translator.on_time(self._now_ms(), blind=self._lost))
            self._save()
            for task in following:
                if task.done():
                    task.result()

    def _take(self, change: Change) -> None:
        now_ms = self._now_ms()
        if change.what == "seen":
            self._put(self._translator.seen(change.thing, now_ms))
        elif change.what == "deleted":
            self._put(self._translator.deleted(change.thing, now_ms))
        elif change.what == "listed":
            self._put(self._translator.swept(change.resource.kind, change.thing, now_ms))
        if change.what == "lost":
            self._lost.add(change.resource.kind)
        else:
            self._lost.discard(change.resource.kind)
        if change.version:
            self._versions[change.resource.kind] = change.version

    def _put(self, events: list[Event]) -> None:
        for event in events:
            self._sink.put(event)
        self.told += len(events)

    def _save(self) -> None:
        changes = self._translator.changed
        if changes or self._versions:
            self._kept.save([*taken(changes.items()), *self._cursors()])
            changes.clear()
            self._versions.clear()

    def _cursors(self) -> Iterator[tuple[str, bytes]]:
        for kind, version in self._versions.items():
            yield f"{_VERSION}{kind}", version.encode()


async def _there(cluster: Cluster) -> list[Resource]:
    """Return the kinds that the cluster has."""
    resources = [resource for resource in RESOURCES if await cluster.has(resource)]
    _log.info("watching", kinds=[resource.kind for resource in resources])
    return resources


def versions_in(saved: dict[str, bytes]) -> dict[str, str]:
    """Return how far each kind's watch had come, by what was saved."""
    return {key.removeprefix(_VERSION): raw.decode() for key, raw in saved.items() if key.startswith(_VERSION)}
