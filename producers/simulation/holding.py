"""Who holds which GPUs."""

from __future__ import annotations

from collections.abc import Sequence

from producers.simulation.model import Attempt, Node
from producers.simulation.world import World


def take(world: World, attempt: Attempt) -> None:
    """Give an attempt its seats."""
    for node, device in attempt.seats:
        node.gpus[device].holder = attempt
        node.holders[attempt] = None
    for node in attempt.nodes():
        world.placement.changed(node)


def release(world: World, attempt: Attempt, seats: Sequence[tuple[Node, int]], at_ms: int) -> None:
    """Take seats from an attempt; a node that is empty then is handed to whoever waited for that."""
    nodes = dict.fromkeys(node for node, _ in seats)
    for node, device in seats:
        node.gpus[device].holder = None
    for node in nodes:
        if all(gpu.holder is not attempt for gpu in node.gpus):
            node.holders.pop(attempt, None)
        world.placement.changed(node)
        while node.waiting and not node.holders:
            node.waiting.pop(0)(at_ms)
