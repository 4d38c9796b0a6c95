"""What the platform's side decides about an attempt: it is refused its start, or ended."""

from __future__ import annotations

from producers.simulation.model import Blow, Node
from producers.simulation.tables import Ruling
from producers.simulation.world import World


def refused(world: World, ruling: Ruling, at_ms: int, node: Node | None = None, *, blamed: bool = False) -> Blow:
    """Return the blow by which an attempt that was given its GPUs never starts."""
    return Blow(
        at_ms,
        ruling.code,
        ruling.why,
        "refused",
        tells=True,
        text_tells=True,
        node=node,
        blamed=blamed,
        outcome="never_started",
        exit_code=None,
        reason=ruling.reason,
        message=_message(world, ruling, node),
    )


def ended(world: World, ruling: Ruling, at_ms: int, node: Node) -> Blow:
    """Return the blow by which a running attempt is ended from outside."""
    return Blow(
        at_ms,
        ruling.code,
        ruling.why,
        "killed",
        tells=True,
        text_tells=True,
        node=node,
        exit_code=143,
        signal=15,
        reason=ruling.reason,
        message=_message(world, ruling, node),
    )


def _message(world: World, ruling: Ruling, node: Node | None) -> str:
    return world.texts.line(world.chances.luck.choice(ruling.messages), node="node" if node is None else node.name)
