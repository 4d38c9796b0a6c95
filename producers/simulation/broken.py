"""What is truly wrong with machines, from when to when: whether or not it made a job fail, and who saw it."""

from __future__ import annotations

from faultlens.clock import moment_of
from faultlens.truth import Breakage
from producers.simulation.model import Broken, Node
from producers.simulation.world import World


def begin(world: World, node: Node, code: str, at_ms: int, *, device: int | None = None) -> None:
    """Note that something is wrong with a machine from now on; the same once more is nothing new."""
    known = world.broken.setdefault(node, [])
    if not any(one.over_ms is None and (one.code, one.device) == (code, device) for one in known):
        known.append(Broken(node, code, device, at_ms))


def over(world: World, node: Node, at_ms: int, code: str | None = None) -> None:
    """Note that it is over on a machine: what is called so, or all that was wrong with it."""
    for one in world.broken.get(node, ()):
        if one.over_ms is None and code in (None, one.code):
            one.over_ms = at_ms


def breakages(world: World) -> list[Breakage]:
    """Return all that was wrong, in the order in which it began."""
    found = sorted((one for of_node in world.broken.values() for one in of_node), key=_order)
    return [
        Breakage(
            one.node.name,
            one.code,
            moment_of(one.since_ms),
            None if one.over_ms is None else moment_of(one.over_ms),
            one.device,
        )
        for one in found
    ]


def _order(one: Broken) -> tuple[int, str, str]:
    return one.since_ms, one.node.name, one.code
