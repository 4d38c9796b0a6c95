"""The context processor: what concerns everyone, copied for every lane, and the lanes' counts of nodes summed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, cast

from msgspec import Struct
from msgspec.structs import replace

from faultlens import topics
from faultlens.clock import MINUTE_MS
from faultlens.codec import Event, fingerprint, stable_id
from faultlens.events import PlatformIncident, PlatformMaintenance, PlatformRollout
from faultlens.internal import ClusterCensus, ContextChange, LaneCensus
from streams.context import Context
from streams.processor import Effects, Emit

_SEEN_BYTES: Final = 8 * 256
MESSAGE_CHARACTERS: Final = 300
# Contract: one count an interval; a lane that said nothing for three of the longest usual intervals is left out.
_COUNT_KEPT_MS: Final = 15 * MINUTE_MS


class ClusterRecord(Struct, frozen=True, omit_defaults=True):
    """What is kept of a cluster: each lane's last count, the sum last told, and the records already taken."""

    cluster: str
    counts: dict[int, LaneCensus] = {}
    told_ms: int = 0
    seen: bytes = b""


class FleetContextProcessor:
    """Steps one cluster's record. Key: the cluster."""

    name = "context"
    topics = (topics.PLATFORM_EVENTS, topics.CENSUS)
    state_type = ClusterRecord
    surveys_while_idle = True

    def __init__(self, beat_every_ms: int | None = None) -> None:
        """`beat_every_ms`: how often to announce the clock; None where all lanes share one clock (embedded)."""
        self.survey_every_ms = beat_every_ms

    def key_of(self, event: Event) -> str | None:
        """Return the cluster."""
        known = (PlatformIncident, PlatformRollout, PlatformMaintenance, LaneCensus)
        return event.subject if isinstance(event.data, known) else None

    def on_event(self, event: Event, now_ms: int, context: Context, state: Struct | None) -> Effects:
        """Return copies for every lane of what a record says."""
        record = cast("ClusterRecord", state) if state is not None else ClusterRecord(event.subject)
        if isinstance(event.data, LaneCensus):
            return self._on_census(record, event.data, now_ms)
        mark = fingerprint(event.source, event.id)
        if mark in record.seen:
            return Effects(record, duplicate=True)
        record = replace(record, seen=(record.seen + mark)[-_SEEN_BYTES:])
        return Effects(record, [_copied(event, now_ms)])

    def _on_census(self, record: ClusterRecord, count: LaneCensus, now_ms: int) -> Effects:
        kept = {n: c for n, c in record.counts.items() if now_ms - c.at_ms <= _COUNT_KEPT_MS}
        kept[count.lane] = count
        record = replace(record, counts=dict(sorted(kept.items())))
        oldest_ms = min(c.at_ms for c in kept.values())
        if oldest_ms <= record.told_ms:
            return Effects(record)
        total = ClusterCensus(
            record.cluster, oldest_ms, sum(c.covered for c in kept.values()), sum(c.on_time for c in kept.values())
        )
        change = ContextChange(record.cluster, oldest_ms, census=total)
        emit = Emit(topics.CONTEXT, record.cluster, stable_id(record.cluster, "census", oldest_ms), now_ms, change)
        return Effects(replace(record, told_ms=oldest_ms), [emit])

    def on_time(self, key: str, now_ms: int, context: Context, state: Struct) -> Effects:
        """Return nothing: no cluster asks to be woken."""
        return Effects(state)

    def survey(self, now_ms: int, states: Iterable[tuple[str, Struct]], lane: int) -> Sequence[Emit]:
        """Return the word to every lane that the context's clock has come this far."""
        beat = ContextChange("", now_ms, beats=True)
        return [Emit(topics.CONTEXT, "", stable_id("beat", lane, now_ms), now_ms, beat)]

    def on_end(self, key: str, now_ms: int, context: Context, state: Struct) -> Effects:
        """Return nothing: all is told when it comes."""
        return Effects(state)


def _copied(event: Event, now_ms: int) -> Emit:
    data = event.data
    change = ContextChange(
        event.subject,
        event.time_ms,
        incident=_shortened(data) if isinstance(data, PlatformIncident) else None,
        rollout=data if isinstance(data, PlatformRollout) else None,
        maintenance=data if isinstance(data, PlatformMaintenance) else None,
    )
    return Emit(topics.CONTEXT, event.subject, stable_id(event.source, event.id), now_ms, change)


def _shortened(incident: PlatformIncident) -> PlatformIncident:
    """Return the incident with no more of its message than evidence shows: every lane keeps a copy."""
    message = incident.message
    return incident if message is None else replace(incident, message=message[:MESSAGE_CHARACTERS])
