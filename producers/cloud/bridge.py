"""A cloud provider, live: asked again and again, and what is new is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from faultlens.codec import Event
from producers.cloud.notices import Answer, Known, told
from producers.delivery.kept import Kept

_KEY: Final = "known"


class Sink(Protocol):
    """Where events go; an outbox is one."""

    def put(self, event: Event) -> None: ...


class CloudBridge:
    """One provider. What is told is put into the sink first and remembered then."""

    def __init__(self, ask: Callable[[], Answer], sink: Sink, kept: Kept, *, provider: str, cluster: str) -> None:
        self._ask = ask
        self._sink = sink
        self._kept = kept
        self._provider = provider
        self._cluster = cluster
        raw = kept.all().get(_KEY)
        self._known = msgspec.json.decode(raw, type=Known) if raw is not None else Known()

    def poll(self, now_ms: int) -> int:
        """Ask once and return how many events were told. WorldError: no answer; then nothing is taken for over."""
        known, events = told(self._known, self._ask(), provider=self._provider, cluster=self._cluster, now_ms=now_ms)
        for event in events:
            self._sink.put(event)
        if known != self._known:
            self._kept.save([(_KEY, msgspec.json.encode(known))])
            self._known = known
        return len(events)
