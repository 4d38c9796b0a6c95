"""Which GPUs are free, and which of them a job is given."""

from __future__ import annotations

from collections.abc import Iterable

from producers.simulation.model import Node


class Placement:
    """Keeps the free nodes of each pool; those free for longest are given first."""

    def __init__(self, fleet: Iterable[Node]) -> None:
        self._whole: dict[str, dict[Node, None]] = {}
        self._partly: dict[str, dict[Node, None]] = {}
        for node in fleet:
            self._whole.setdefault(node.pool, {})
            self._partly.setdefault(node.pool, {})
            self.changed(node)

    def changed(self, node: Node) -> None:
        """Look again at a node: it was given, freed, cordoned, lost or returned."""
        whole, partly = self._whole[node.pool], self._partly[node.pool]
        free = len(node.free_gpus()) if node.up and not node.cordoned else 0
        _keep(whole, node, wanted=free == len(node.gpus))
        _keep(partly, node, wanted=0 < free < len(node.gpus))

    def idle(self, pool: str) -> int:
        """Count the pool's nodes that are wholly free."""
        return len(self._whole[pool])

    def find(self, pool: str, gpus: int) -> list[tuple[Node, int]] | None:
        """Return seats for so many GPUs of a pool: part of one node, or whole nodes; None while there are too few."""
        whole = self._whole[pool]
        for node in self._partly[pool]:
            free = node.free_gpus()
            if len(free) >= gpus:
                return [(node, index) for index in free[:gpus]]
        seats: list[tuple[Node, int]] = []
        for node in whole:
            seats += [(node, gpu.index) for gpu in node.gpus]
            if len(seats) >= gpus:
                return seats[:gpus]
        return None


def _keep(nodes: dict[Node, None], node: Node, *, wanted: bool) -> None:
    if wanted:
        nodes.setdefault(node)
    else:
        nodes.pop(node, None)
