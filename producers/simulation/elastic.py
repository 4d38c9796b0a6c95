"""Elastic jobs: a gang that loses a node and goes on with the rest."""

from __future__ import annotations

from faultlens.causes import class_of
from faultlens.clock import moment_of
from faultlens.events import JobResized, Slot
from faultlens.truth import Truth
from producers.simulation import endings, holding
from producers.simulation.chance import span_ms
from producers.simulation.model import Attempt, Blow, slots_of
from producers.simulation.world import World

_FEWEST_NODES = 3
_REGROUP_S = (15.0, 60.0)
_SURVIVED = frozenset({"crash", "node_lost"})


def survives(attempt: Attempt, blow: Blow) -> bool:
    """Whether the job can go on without the node that the blow hit."""
    return (
        attempt.job.elastic
        and attempt.started_ms is not None
        and blow.blamed
        and blow.manner in _SURVIVED
        and blow.node in attempt.nodes()
        and len(attempt.nodes()) > _FEWEST_NODES
    )


def lose(world: World, attempt: Attempt, blow: Blow) -> Truth:
    """Let the attempt go on without the node; return the truth of this loss."""
    gone = [(rank, seat) for rank, seat in enumerate(attempt.seats) if seat[0] is blow.node]
    shown = endings.tell_of_loss(world, attempt, blow)
    lost: tuple[Slot, ...] = slots_of(gone)
    attempt.seats = [seat for seat in attempt.seats if seat[0] is not blow.node]
    attempt.losses += 1
    at_ms = blow.at_ms + span_ms(world.chances.lives, _REGROUP_S)
    resized = JobResized(attempt.job.id, attempt.number, attempt.slots(), lost, reason="worker lost")
    world.delivery.post(attempt.teller, at_ms, resized)
    world.agenda.at(at_ms, lambda now_ms: holding.release(world, attempt, [seat for _, seat in gone], now_ms))
    return Truth(
        attempt.job.id,
        attempt.number,
        class_of(blow.code),
        blow.code,
        blow.tells or shown,
        f"the job lost a node and went on: {blow.why}",
        moment_of(at_ms),
        started=True,
        loss=attempt.losses,
        node=blow.node.name if blow.node else None,
        device_index=blow.device,
    )
