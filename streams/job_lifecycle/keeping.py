"""Which exits and observations of an attempt are kept, where there are more than may be: what can still decide."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from faultlens.clock import DAY_MS
from faultlens.internal import Observation
from streams import goodput
from streams.attribution import Exit, order_ms
from streams.attribution.roots import STEPS_THAT_CLEAR
from streams.job_lifecycle.record import EXITS_MAX, LOST_EXITS_MAX, OBSERVATIONS_MAX, Attempt
from streams.weighing import weight


def exits_with(attempt: Attempt, leaving: Exit) -> tuple[Exit, ...]:
    """Return the exits with one more; those of nodes that were lost and outlived crowd out none of the end's."""
    known = sorted((*attempt.exits, leaving), key=_order)
    own = [e for e in known if e.node not in attempt.gone]
    lost = [e for e in known if e.node in attempt.gone]
    return (*_limited(own, EXITS_MAX), *_limited(lost, LOST_EXITS_MAX))


def _order(leaving: Exit) -> tuple[int, int, int]:
    """Return the order in which exits are kept: those that name a root, then the earliest."""
    return 0 if leaving.said.role == "root" else 1, leaving.first_ms, leaving.rank


def _limited(exits: list[Exit], limit: int) -> list[Exit]:
    """Return as many as may be kept: the first of each kind that a verdict asks for, then in their order."""
    if len(exits) <= limit:
        return exits
    sure = (e for e in exits if e.said.role == "root" and e.said.strong)
    symptoms = (e for e in exits if e.said.role == "symptom")
    earliest = min(exits, key=lambda e: (e.first_ms, e.rank))
    asked_for = {e.id for e in (next(sure, earliest), next(symptoms, earliest), earliest)}
    kept = sorted(exits, key=lambda e: (e.id not in asked_for, *_order(e)))[:limit]
    return sorted(kept, key=_order)


def observations_with(attempt: Attempt, told: Iterable[Observation]) -> tuple[dict[str, Observation], int]:
    """Return the observations with those that a node tells, and how many were too many so far.

    What the job went on after, or what was over a day before the newest, gives way before what can have ended it.
    """
    kept, overflow = dict(attempt.observations), attempt.overflow
    for observation in told:
        known = kept.get(observation.id)
        # What a node says later of the same fault knows its cure and count; when it first arrived stays.
        arrived_ms = observation.arrived_ms if known is None else known.arrived_ms
        kept[observation.id] = replace(observation, arrived_ms=arrived_ms)
        if len(kept) > OBSERVATIONS_MAX:
            overflow += 1
            newest_ms = max(o.last_ms for o in kept.values())
            lightest = sorted(kept.values(), key=weight)
            past = (o for o in lightest if _is_past(attempt, o, newest_ms))
            del kept[next(past, lightest[0]).id]
    return kept, overflow


def _is_past(attempt: Attempt, observation: Observation, newest_ms: int) -> bool:
    """Return whether the observation can hardly be what ended the attempt."""
    if observation.acts_late:
        return False
    if attempt.ledger is not None and goodput.steps_after(attempt.ledger, order_ms(observation)) >= STEPS_THAT_CLEAR:
        return True
    return not observation.open and max(observation.last_ms, observation.until_ms or 0) < newest_ms - DAY_MS
