"""What keeps an attempt that was given its GPUs from ever running."""

from __future__ import annotations

from dataclasses import replace

from faultlens.clock import SECOND_MS
from producers.simulation import broken, rulings
from producers.simulation.chance import happens, span_ms
from producers.simulation.model import Attempt, Blow, Node
from producers.simulation.tables import Ruling
from producers.simulation.world import OpenIncident, World

_GIVES_UP_S = (20.0, 150.0)
# Devices are granted, then the start is tried: nothing fails sooner.
_SOONEST_MS = 5 * SECOND_MS


def hindrance(world: World, attempt: Attempt, at_ms: int) -> Blow | None:
    """Return what keeps this attempt from starting, if anything does."""
    gives_up_ms = at_ms + _SOONEST_MS + span_ms(world.chances.lives, _GIVES_UP_S)
    swallowing = [node for node in attempt.nodes() if node.swallows > 0]
    if swallowing:
        swallowing[0].swallows -= 1
        if not swallowing[0].swallows:
            broken.over(world, swallowing[0], gives_up_ms, world.happenings.black_hole.code)
        return _swallowed(world, swallowing, gives_up_ms)
    for incident in world.incidents:
        if _reaches(incident, attempt) and happens(world.chances.luck, incident.kind.hits_starting):
            return rulings.refused(world, world.chances.luck.choice(incident.kind.starting), gives_up_ms)
    own = _own_mistake(world, attempt)
    if own is not None:
        return rulings.refused(world, own, gives_up_ms)
    if happens(world.chances.luck, world.mix.start_failure):
        possible = [ruling for ruling in world.happenings.start_failures if attempt.job.reporter in ruling.under]
        return rulings.refused(world, world.chances.luck.choice(possible), gives_up_ms, attempt.seats[0][0])
    return None


def _swallowed(world: World, swallowing: list[Node], at_ms: int) -> Blow:
    """Return the start that the first of these nodes fails; of several nobody can tell which, unless it is named."""
    node = swallowing[0]
    blow = rulings.refused(world, world.happenings.black_hole, at_ms, node, blamed=True)
    return blow if len(swallowing) == 1 or node.name in (blow.message or "") else replace(blow, blamed=False)


def _reaches(incident: OpenIncident, attempt: Attempt) -> bool:
    kind = incident.kind
    concerned = bool(kind.starting) and attempt.job.reporter in kind.under
    return concerned and not incident.nodes.isdisjoint(attempt.nodes())


def _own_mistake(world: World, attempt: Attempt) -> Ruling | None:
    kind = world.happenings.user_faults.get(attempt.job.fate.fault)
    if kind is None or kind.when != "placed":
        return None
    return Ruling(code=kind.code, why=kind.why, reason=kind.reason or "", messages=(kind.message or "",))
