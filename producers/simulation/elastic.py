"""Elastic jobs: a gang that loses a node and goes on with the rest."""

from __future__ import annotations

from functools import partial
from typing import Final

from faultlens.causes import class_of
from faultlens.clock import MINUTE_MS, SECOND_MS, moment_of
from faultlens.events import JobResized
from faultlens.truth import Truth
from producers.simulation import endings, holding
from producers.simulation.chance import span_ms
from producers.simulation.model import Attempt, Blow, Node, slots_of
from producers.simulation.world import World

_FEWEST_NODES: Final = 3
_REGROUP_S: Final = (15.0, 60.0)
_SURVIVED: Final = frozenset({"crash", "node_lost"})
# Whose failure ends it this soon after a loss never got over it: then there is one failure and no loss. Who hangs by
# then and ends later did get over it, as far as anybody can see.
_OVER_IT_MS: Final = 5 * MINUTE_MS + SECOND_MS


def survives(attempt: Attempt, blow: Blow) -> bool:
    """Whether the job can go on without the node that the blow hit."""
    return (
        attempt.job.elastic
        and attempt.started_ms is not None
        and blow.blamed
        and blow.manner in _SURVIVED
        and blow.node in attempt.nodes()
        and len(attempt.nodes()) - len(attempt.leaving) > _FEWEST_NODES
    )


def lose(world: World, attempt: Attempt, blow: Blow) -> None:
    """Let the attempt go on without the node, and tell the truth of this loss once the job got over it."""
    if blow.node is None:
        return
    attempt.leaving.add(blow.node)
    shown = endings.tell_of_loss(world, attempt, blow)
    at_ms = blow.at_ms + span_ms(world.chances.lives, _REGROUP_S)
    world.agenda.at(at_ms, partial(_regroup, world, attempt, blow, blow.node, shown))


def _regroup(world: World, attempt: Attempt, blow: Blow, node: Node, shown: bool, at_ms: int) -> None:
    attempt.leaving.discard(node)
    if attempt.over or attempt.doomed_ms is not None:
        return
    gone = [(rank, seat) for rank, seat in enumerate(attempt.seats) if seat[0] is node]
    attempt.seats = [seat for seat in attempt.seats if seat[0] is not node]
    attempt.losses += 1
    resized = JobResized(attempt.job.id, attempt.number, attempt.slots(), slots_of(gone), reason="worker lost")
    world.delivery.post(attempt.teller, at_ms, resized)
    holding.release(world, attempt, [seat for _, seat in gone], at_ms)
    truth = Truth(
        attempt.job.id,
        attempt.number,
        class_of(blow.code),
        blow.code,
        blow.tells or shown,
        f"the job lost a node and went on: {blow.why}",
        moment_of(at_ms),
        started=True,
        loss=attempt.losses,
        node=node.name,
        device_index=blow.device,
    )
    world.agenda.at(at_ms + _OVER_IT_MS, partial(_get_over_it, world, attempt, truth))


def _get_over_it(world: World, attempt: Attempt, truth: Truth, _at_ms: int) -> None:
    if not (attempt.failed and attempt.over):
        world.count("losses")
        world.told(truth)
