"""Machines that break: a fault of hardware or driver, what its node shows, whom it strikes, and the repair."""

from __future__ import annotations

from functools import partial
from itertools import accumulate
from typing import Final

from faultlens.clock import MINUTE_MS
from faultlens.events import NodeActed
from producers.simulation import signs
from producers.simulation.chance import happens, pick, skewed, span_ms, wait_ms
from producers.simulation.fleet import new_boot_id
from producers.simulation.model import CLUSTER, Ailment, Attempt, Blow, Node
from producers.simulation.schedule import UNREPORTED_BEFORE_MS, Schedule
from producers.simulation.tables import Manner, NodeFaultKind
from producers.simulation.world import World

_CORDONED_AFTER_S: Final = (30.0, 420.0)
_LOSES_POWER: Final = frozenset({"node_lost"})


class Breakdowns:
    """Lets nodes break at random, lemons more often and always in the same spot, and has them repaired."""

    def __init__(self, world: World, schedule: Schedule) -> None:
        self._world = world
        self._schedule = schedule
        self._hazards = list(accumulate(node.hazard for node in world.fleet))
        mix = world.mix
        self._per_day = len(world.fleet) * mix.node_failures_per_1000_node_days / 1_000 * mix.acceleration

    def open(self, at_ms: int) -> None:
        """Let nodes break from now on."""
        self._world.agenda.at(at_ms + wait_ms(self._world.chances.faults, self._per_day), self._next)

    def strike(self, node: Node, name: str, device: int | None, at_ms: int) -> None:
        """Let a fault happen on a node, in one of its GPUs if it is a GPU's fault."""
        world = self._world
        kind = world.happenings.node_faults[name]
        world.count(f"fault {name}")
        told = signs.show(world, node, kind.signs, at_ms, device)
        told |= any(check.tells for check in kind.checks) and node.sees(at_ms)
        if kind.checks:
            node.ailments.append(Ailment(name, kind.checks, device))
            node.changed = True
        manner = pick(world.chances.faults, kind.manners)
        powerless = manner in _LOSES_POWER
        for attempt in self._struck(node, kind, device):
            if happens(world.chances.faults, kind.harms):
                blow = self._blow(kind, attempt, node, device, manner, at_ms, told=told or powerless)
                world.agenda.at(blow.at_ms, partial(self._land, attempt, blow))
        self._begin_repair(node, kind, at_ms, powerless=powerless)

    def _land(self, attempt: Attempt, blow: Blow, _at_ms: int) -> None:
        self._schedule.fail(attempt, blow)

    def _next(self, at_ms: int) -> None:
        world = self._world
        if at_ms > world.quiet_from_ms:
            return
        world.agenda.at(at_ms + wait_ms(world.chances.faults, self._per_day), self._next)
        rng = world.chances.faults
        node = rng.choices(world.fleet, cum_weights=self._hazards)[0]
        if not node.up or node.cordoned:
            return
        name, device = self._what(node)
        self.strike(node, name, device, at_ms)

    def _what(self, node: Node) -> tuple[str, int | None]:
        world, rng = self._world, self._world.chances.faults
        if node.weak_spot is not None:
            return node.weak_spot
        kinds = world.happenings.node_faults
        fitting = {
            name: weight for name, weight in world.mix.node_faults.items() if kinds[name].family in {None, node.family}
        }
        name = pick(rng, fitting)
        device = rng.randrange(len(node.gpus)) if kinds[name].strikes == "gpu" else None
        if node.hazard > 1:
            node.weak_spot = (name, device)
        return name, device

    def _struck(self, node: Node, kind: NodeFaultKind, device: int | None) -> list[Attempt]:
        if kind.strikes == "gpu" and device is not None:
            holder = node.gpus[device].holder
            struck = [holder] if holder is not None else []
        else:
            struck = list(node.holders)
        return [attempt for attempt in struck if not kind.gang_only or attempt.job.nodes > 1]

    def _blow(
        self, kind: NodeFaultKind, attempt: Attempt, node: Node, device: int | None, manner: Manner, at_ms: int,
        *, told: bool,
    ) -> Blow:  # fmt: skip
        rng = self._world.chances.faults
        if manner == "node_lost" and attempt.scheduler is None and attempt.seats[0][0] is node:
            late = at_ms > self._world.shape.end_ms - UNREPORTED_BEFORE_MS
            manner = "node_lost" if late else "unreported"
        texts = pick(rng, kind.texts)
        return Blow(
            at_ms + span_ms(rng, kind.trouble_after_s),
            kind.code,
            kind.why,
            manner,
            texts,
            tells=told,
            text_tells=texts in kind.telling_texts,
            node=node,
            blamed=True,
            device=device,
            exit_code=kind.exit_code,
            signal=kind.signal,
        )

    def _begin_repair(self, node: Node, kind: NodeFaultKind, at_ms: int, *, powerless: bool) -> None:
        world = self._world
        if powerless:
            self._take_down(node, kind, at_ms)
            return
        cordon_ms = at_ms + span_ms(world.chances.faults, _CORDONED_AFTER_S)
        world.agenda.at(cordon_ms, partial(self._cordon, node, kind))

    def _cordon(self, node: Node, kind: NodeFaultKind, at_ms: int) -> None:
        world = self._world
        if node.cordoned or not node.up:
            return
        node.cordoned = node.changed = True
        world.placement.changed(node)
        acted = NodeActed(node.name, CLUSTER, "cordon", "health-controller", planned=False, reason=kind.code)
        world.delivery.post(world.sender("bridge/health"), at_ms, acted)
        if node.holders:
            node.when_empty = partial(self._take_down, node, kind)
        else:
            self._take_down(node, kind, at_ms)

    def _take_down(self, node: Node, kind: NodeFaultKind, at_ms: int) -> None:
        """Repair the node: it is off meanwhile if it restarts for it."""
        world, rng = self._world, self._world.chances.faults
        node.cordoned = node.changed = True
        took_ms = max(4 * MINUTE_MS, round(skewed(rng, kind.repair.minutes, kind.repair.spread) * MINUTE_MS))
        if kind.repair.reboot:
            node.up = False
        world.placement.changed(node)
        world.agenda.at(at_ms + took_ms, partial(self._return, node))

    def _return(self, node: Node, at_ms: int) -> None:
        world = self._world
        if not node.up:
            node.up, node.boot_id, node.inventory_due = True, new_boot_id(world.chances.faults), True
        node.ailments.clear()
        node.cordoned, node.changed = False, True
        acted = NodeActed(node.name, CLUSTER, "uncordon", "health-controller", planned=False, reason="repaired")
        world.delivery.post(world.sender("bridge/health"), at_ms, acted)
        self._schedule.freed(node, at_ms)
