"""Pods that are seen before what made them, of which another watch tells: they wait for it, though not for long."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from msgspec import Struct

from faultlens.clock import SECOND_MS
from producers.kubernetes.objects import Pod, Work
from producers.kubernetes.owners import awaited

# By so much one watch may be behind another.
EARLY_MS: Final = 5 * SECOND_MS


class Early(Struct, frozen=True):
    """A pod as it was seen last, and since when it waits."""

    pod: Pod
    since_ms: int


def waiting(
    pod: Pod, before: Early | None, watched: Collection[str], known: Mapping[str, Work], now_ms: int
) -> Early | None:
    """Return the pod as one that waits, `before`: as it did until now; None: all is known, or it has waited enough."""
    since_ms = now_ms if before is None else before.since_ms
    if now_ms - since_ms >= EARLY_MS or not awaited(pod.metadata, watched, known):
        return None
    return Early(pod, since_ms)
