"""What people and controllers do to nodes: take them out, switch them off, bring them back."""

from __future__ import annotations

from typing import Final

from faultlens.events import NodeActed, NodeAction
from producers.simulation import broken
from producers.simulation.agenda import Action
from producers.simulation.fleet import new_boot_id
from producers.simulation.model import CLUSTER, Ailment, Node
from producers.simulation.world import World

CONTROLLER: Final = "health-controller"


def tell_action(
    world: World, node: Node, at_ms: int, action: NodeAction, *, reason: str, planned: bool = False
) -> None:
    """Send that the node was cordoned, drained or returned."""
    actor = "maintenance-controller" if planned else CONTROLLER
    acted = NodeActed(node.name, CLUSTER, action, actor, planned=planned, reason=reason)
    world.delivery.post(world.sender("bridge/nodes"), at_ms, acted)


def hold(world: World, node: Node, why: str) -> None:
    """Keep new work away from the node."""
    node.held.add(why)
    node.changed = True
    world.placement.changed(node)


def switch_off(world: World, node: Node, why: str) -> None:
    """Let the node stop running."""
    node.off.add(why)
    node.changed = True
    world.placement.changed(node)


def bring_back(world: World, node: Node, why: str, at_ms: int) -> bool:
    """Undo what `why` did to the node; return whether it takes work again. A node that was off has a new boot id."""
    was_off = bool(node.off)
    node.off.discard(why)
    node.held.discard(why)
    node.changed = True
    if was_off and node.up:
        node.boot_id, node.inventory_due = new_boot_id(world.chances.faults), True
        node.ailments = [ailment for ailment in node.ailments if ailment.lasts]
        broken.over(world, node, at_ms)
    world.placement.changed(node)
    return not node.cordoned


def ail(node: Node, ailment: Ailment) -> None:
    """Let checks of the node fail from now on."""
    node.ailments.append(ailment)
    node.changed = True


def cure(node: Node, name: str) -> None:
    """Let the checks that an ailment made fail pass again."""
    node.ailments = [ailment for ailment in node.ailments if ailment.name != name]
    node.changed = True


def when_empty(node: Node, at_ms: int, action: Action) -> None:
    """Do something to the node as soon as no job holds it: at once if none does."""
    if node.holders:
        node.waiting.append(action)
    else:
        action(at_ms)
