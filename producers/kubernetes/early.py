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


def has_ended(pod: Pod) -> bool:
    """Return whether a pod is over."""
    return pod.status.phase in ("Succeeded", "Failed")


def waiting(
    pod: Pod, early: Mapping[str, Early], watched: Collection[str], known: Mapping[str, Work], now_ms: int
) -> Early | None:
    """Return the pod as one that waits, as `early` ones did until now; None: all is known, or it has waited enough.

    One that has ended meanwhile waits for what made the others too: they may be of its attempt, which goes on then.
    """
    uid = pod.metadata.uid
    since_ms = early[uid].since_ms if uid in early else now_ms
    if now_ms - since_ms >= EARLY_MS:
        return None
    awaits = awaited(pod.metadata, watched, known)
    if not awaits and uid in early and has_ended(pod):
        awaits = any(awaited(other.pod.metadata, watched, known) for name, other in early.items() if name != uid)
    return Early(pod, since_ms) if awaits else None
