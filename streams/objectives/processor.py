"""The objectives processor: samples in, where each objective stands out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final, cast

from msgspec import Struct
from msgspec.json import encode
from msgspec.structs import replace

from faultlens import topics
from faultlens.clock import HOUR_MS, MINUTE_MS
from faultlens.codec import Event, fingerprint, stable_id
from faultlens.internal import Sample, UseSample
from faultlens.objectives import Objective, Objectives
from streams.context import Context
from streams.objectives import fleet
from streams.objectives.counters import MINUTES_KEPT_MS, Counters, aged, counted
from streams.objectives.fleet import FleetHours
from streams.objectives.status import status_of
from streams.processor import Effects, Emit
from streams.samples import sample_key

# Contract: written on change, at most every five minutes of event time, and at the end.
EVERY_MS: Final = 5 * MINUTE_MS


class ObjectivesProcessor:
    """Steps the counters of one objective and scope, or the fleet's hours. Key: `sample_key` of the sample.

    Samples come through an internal topic that is written in transactions and read committed: each comes once, so
    none is remembered to tell duplicates.
    """

    name = "objectives"
    topics = (topics.SAMPLES,)
    state_type = Counters | FleetHours
    survey_every_ms: int | None = None
    surveys_while_idle = False

    def __init__(self, objectives: Objectives, *, every_ms: int = EVERY_MS) -> None:
        """`every_ms`: how often a change may be written; nobody is paged on a recording, which can do with less."""
        self._every_ms = every_ms
        self._promised = lru_cache(maxsize=4_096)(objectives.promised)

    def key_of(self, event: Event) -> str | None:
        """Return the key of the sample's objective and scope; None for an objective that nobody promised."""
        data = event.data
        if isinstance(data, Sample):
            return sample_key(data) if self._objective(data) is not None else None
        return sample_key(data) if isinstance(data, UseSample) else None

    def on_event(self, event: Event, now_ms: int, context: Context, state: Struct | None) -> Effects:
        """Return the sample counted; what follows from it is written at the next full five minutes."""
        data = event.data
        if isinstance(data, UseSample):
            hours = cast("FleetHours | None", state) or FleetHours(data.cluster, data.pool)
            hours = fleet.used(hours, data, now_ms)
            return Effects(hours, wake_ms=fleet.due_ms(hours, now_ms))
        sample = cast("Sample", data)
        objective = cast("Objective", self._objective(sample))
        counters = cast("Counters | None", state) or Counters(
            sample.objective, sample.cluster, sample.pool, sample.team, sample.workload
        )
        counters = counted(counters, sample, now_ms, objective.window.reach_ms)
        return Effects(counters, wake_ms=self._wake_ms(counters, now_ms))

    def on_time(self, key: str, now_ms: int, context: Context, state: Struct) -> Effects:
        """Return what is due: the status, if it says something new, or the hours that are over."""
        if isinstance(state, FleetHours):
            hours, emits = fleet.told(state, key, now_ms)
            return Effects(hours, emits, fleet.due_ms(hours, now_ms))
        return self._written(key, cast("Counters", state), now_ms)

    def survey(self, now_ms: int, states: Iterable[tuple[str, Struct]], lane: int) -> Sequence[Emit]:
        """Return nothing: no objective depends on another."""
        return ()

    def on_end(self, key: str, now_ms: int, context: Context, state: Struct) -> Effects:
        """Return the status as it stands at the end, and the fleet's hours even if the last is not over."""
        if isinstance(state, FleetHours):
            hours, emits = fleet.told(state, key, now_ms, unfinished=True)
            return Effects(hours, emits)
        return self._written(key, cast("Counters", state), now_ms)

    def _objective(self, of: Sample | Counters) -> Objective | None:
        """Return what is promised of an indicator in a place; None: nothing (any more)."""
        return self._promised(of.objective, of.cluster, of.pool or "", of.team or "", of.workload or "")

    def _written(self, key: str, counters: Counters, now_ms: int) -> Effects:
        """Return the status if it differs from the one before."""
        objective = self._objective(counters)
        if objective is None:
            return Effects(None)
        counters = aged(counters, now_ms, objective.window.reach_ms)
        status = status_of(counters, objective, now_ms)
        said, emits = fingerprint(encode(status).decode()), []
        if said != counters.said:
            # Samples may still come at the very time of a status: the next one must be told from it.
            at_ms = max(now_ms, counters.written_ms + 1)
            emits.append(Emit(topics.SLO_STATUS, counters.objective, stable_id(key, at_ms), at_ms, status))
            counters = replace(counters, written_ms=at_ms, said=said)
        if not counters.hours and not counters.minutes:
            return Effects(None, emits)
        counters = replace(counters, dirty=False)
        return Effects(counters, emits, self._wake_ms(counters, now_ms))

    def _wake_ms(self, counters: Counters, now_ms: int) -> int:
        """Return when a status may have something new to say.

        Soon after a sample, and while the burn over a short window goes down; by the hour while one over a long window
        does, and as hours leave the objective's window.
        """
        if counters.dirty or now_ms - counters.bad_ms <= MINUTES_KEPT_MS:
            return (now_ms // self._every_ms + 1) * self._every_ms
        return (now_ms // HOUR_MS + 1) * HOUR_MS
