"""Machines that break: a fault of hardware or driver, what its node shows, whom it strikes, and the repair."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import Final

from faultlens.clock import HOUR_MS, MINUTE_MS
from producers.simulation import broken, care, endings, signs
from producers.simulation.chance import between, happens, pick, skewed, span_ms, wait_ms
from producers.simulation.fleet import scope_of
from producers.simulation.model import Ailment, Attempt, Blow, Node
from producers.simulation.schedule import Schedule
from producers.simulation.tables import Manner, NodeFaultKind
from producers.simulation.world import World

_SHORTEST_REPAIR_MS: Final = 4 * MINUTE_MS
# From the first report that shows a fault until somebody takes the node out.
_NOTICED_AFTER_S: Final = (10.0, 420.0)


@dataclass(frozen=True, slots=True)
class _Fault:
    """One fault that happens: where, how jobs feel it, and whether the node shows it."""

    name: str
    kind: NodeFaultKind
    node: Node
    device: int | None
    manner: Manner
    at_ms: int
    shown: bool
    blamed: bool = True


@dataclass(slots=True)
class _Recurring:
    """A GPU that goes on making the same fault: how often still, and whose jobs met it."""

    name: str
    node: Node
    device: int
    left: int
    every_hours: tuple[float, float]
    users: set[str] = field(default_factory=set)


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

    def strike(self, node: Node, name: str, at_ms: int, device: int | None = None) -> None:
        """Let a fault happen on a node, in one of its GPUs (any, if none is named) where it is a GPU's fault."""
        world, kind = self._world, self._world.happenings.node_faults[name]
        world.count(f"fault {name}")
        if kind.strikes == "gpu" and device is None:
            device = world.chances.faults.randrange(len(node.gpus))
        if kind.strikes == "switch":
            self._strike_switch(name, kind, node, at_ms)
        elif kind.recurs is not None and device is not None:
            times = world.chances.faults.randint(*kind.recurs.times)
            self._recur(_Recurring(name, node, device, times, kind.recurs.every_hours), at_ms)
        else:
            self._begin_repair(self._happen(name, node, device, at_ms))

    def _next(self, at_ms: int) -> None:
        world, rng = self._world, self._world.chances.faults
        if at_ms > world.quiet_from_ms:
            return
        world.agenda.at(at_ms + wait_ms(rng, self._per_day), self._next)
        node = rng.choices(world.fleet, cum_weights=self._hazards)[0]
        if node.cordoned:
            return
        name, device = self._what(node)
        self.strike(node, name, at_ms, device)

    def _what(self, node: Node) -> tuple[str, int | None]:
        world, rng = self._world, self._world.chances.faults
        if node.weak_spot is not None:
            return node.weak_spot
        name = pick(rng, world.mix.node_faults)
        device = rng.randrange(len(node.gpus)) if world.happenings.node_faults[name].strikes == "gpu" else None
        if node.hazard > 1:
            node.weak_spot = (name, device)
        return name, device

    def _happen(
        self, name: str, node: Node, device: int | None, at_ms: int, *, shown: bool = False, blamed: bool = True
    ) -> _Fault:
        """Show the fault and strike the jobs that hold what it is in."""
        world, kind = self._world, self._world.happenings.node_faults[name]
        broken.begin(world, node, kind.code, at_ms, device=device)
        shown |= signs.show(world, node, kind.signs, at_ms, device)
        shown |= any(check.tells for check in kind.checks) and node.sees(at_ms)
        if kind.checks:
            care.ail(node, Ailment(name, kind.checks, device))
        fault = _Fault(name, kind, node, device, pick(world.chances.faults, kind.manners), at_ms, shown, blamed)
        for attempt in self._struck(fault):
            if happens(world.chances.faults, kind.harms):
                blow = self._blow(fault, attempt)
                world.agenda.at(blow.at_ms, partial(self._land, attempt, blow))
        return fault

    def _land(self, attempt: Attempt, blow: Blow, _at_ms: int) -> None:
        self._schedule.fail(attempt, blow)

    def _struck(self, fault: _Fault) -> Iterable[Attempt]:
        node, kind = fault.node, fault.kind
        if kind.strikes == "gpu" and fault.device is not None:
            holder = node.gpus[fault.device].holder
            struck = [holder] if holder is not None else []
        else:
            struck = list(node.holders)
        return [attempt for attempt in struck if not kind.gang_only or attempt.job.nodes > 1]

    def _blow(self, fault: _Fault, attempt: Attempt) -> Blow:
        rng, kind = self._world.chances.faults, fault.kind
        texts = pick(rng, kind.texts)
        return Blow(
            fault.at_ms + span_ms(rng, kind.trouble_after_s),
            kind.code,
            kind.why,
            self._manner(fault, attempt),
            tells=fault.shown or self._missed(fault, attempt),
            draft=self._world.texts.draft(texts),
            text_tells=texts in kind.telling_texts,
            node=fault.node,
            blamed=fault.blamed,
            device=fault.device,
            exit_code=kind.exit_code,
            signal=kind.signal,
        )

    def _manner(self, fault: _Fault, attempt: Attempt) -> Manner:
        if fault.manner == "stuck":
            return "stuck" if attempt.job.reporter == "slurm" and attempt.job.nodes > 1 else "hang"
        if fault.manner == "node_lost":
            return endings.manner_of_loss(self._world, attempt, fault.node, fault.at_ms)
        return fault.manner

    def _missed(self, fault: _Fault, attempt: Attempt) -> bool:
        """Whether a lost node is missed: by its reports, which stop, or by the scheduler."""
        return fault.manner == "node_lost" and (fault.node.sees(fault.at_ms) or attempt.scheduler is not None)

    def _strike_switch(self, name: str, kind: NodeFaultKind, node: Node, at_ms: int) -> None:
        """Let all ports behind a switch lose their link until it is replaced; no node is taken out for that."""
        world = self._world
        reached = scope_of(world.fleet, "switch", node.domains["switch"])
        for other in reached:
            if other.up:
                self._happen(name, other, None, at_ms, blamed=False)
        back_ms = at_ms + self._repair_ms(kind)
        for other in reached:
            world.agenda.at(back_ms, partial(self._cure, other, name))

    def _cure(self, node: Node, name: str, at_ms: int) -> None:
        care.cure(node, name)
        broken.over(self._world, node, at_ms, self._world.happenings.node_faults[name].code)

    def _recur(self, case: _Recurring, at_ms: int) -> None:
        """Let a fault that nobody recognises come again and again, whoever holds the GPU; then it is repaired."""
        world = self._world
        if at_ms > world.quiet_from_ms:
            return
        holder = case.node.gpus[case.device].holder
        if holder is not None:
            others_met_it = bool(case.users - {holder.job.user})
            fault = self._happen(case.name, case.node, case.device, at_ms, shown=others_met_it)
            case.users.add(holder.job.user)
            case.left -= 1
            if case.left <= 0:
                self._begin_repair(fault)
                return
        again_ms = at_ms + round(between(world.chances.faults, case.every_hours) * HOUR_MS)
        world.agenda.at(again_ms, partial(self._recur, case))

    def _begin_repair(self, fault: _Fault) -> None:
        world, kind = self._world, fault.kind
        if fault.manner == "node_lost":
            care.switch_off(world, fault.node, "repair")
            world.agenda.at(fault.at_ms + self._repair_ms(kind), partial(self._return, fault))
            return
        noticed_s = kind.repair.after_s
        if noticed_s is None:
            interval_s = world.shape.interval_s
            noticed_s = (interval_s + _NOTICED_AFTER_S[0], interval_s + _NOTICED_AFTER_S[1])
        world.agenda.at(fault.at_ms + span_ms(world.chances.faults, noticed_s), partial(self._take_out, fault))

    def _take_out(self, fault: _Fault, at_ms: int) -> None:
        world, node = self._world, fault.node
        if "repair" in node.held or not node.up:
            return
        care.hold(world, node, "repair")
        care.tell_action(world, node, at_ms, "cordon", reason=fault.kind.code)
        care.when_empty(node, at_ms, partial(self._repair, fault))

    def _repair(self, fault: _Fault, at_ms: int) -> None:
        """Repair the node: it is off meanwhile if it restarts for it."""
        if fault.kind.repair.reboot:
            care.switch_off(self._world, fault.node, "repair")
        self._world.agenda.at(at_ms + self._repair_ms(fault.kind), partial(self._return, fault))

    def _return(self, fault: _Fault, at_ms: int) -> None:
        world, node = self._world, fault.node
        care.cure(node, fault.name)
        broken.over(world, node, at_ms)
        if care.bring_back(world, node, "repair", at_ms):
            care.tell_action(world, node, at_ms, "uncordon", reason="repaired")
            self._schedule.freed(node, at_ms)

    def _repair_ms(self, kind: NodeFaultKind) -> int:
        repair = kind.repair
        took_ms = round(skewed(self._world.chances.faults, repair.minutes, repair.spread) * MINUTE_MS)
        return max(_SHORTEST_REPAIR_MS, took_ms)
