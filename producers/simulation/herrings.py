"""Records that look like trouble and are none."""

from __future__ import annotations

from producers.simulation import signs
from producers.simulation.chance import pick
from producers.simulation.model import Node
from producers.simulation.world import World


def show_herring(world: World, node: Node, device: int, at_ms: int) -> None:
    """Send a record from the node, perhaps of this GPU, that looks like trouble and is none."""
    name = pick(world.chances.luck, world.mix.herrings)
    world.count("herrings")
    signs.show(world, node, world.happenings.herrings[name].signs, at_ms, device)
