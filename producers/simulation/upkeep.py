"""What operators do to the fleet: planned maintenance, and roll-outs of drivers and agents, good and bad."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Literal

from faultlens.clock import HOUR_MS, MINUTE_MS, SECOND_MS, moment_of
from faultlens.events import PlatformMaintenance, PlatformRollout, Scope
from producers.simulation import care, rulings
from producers.simulation.breakdowns import Breakdowns
from producers.simulation.chance import between, happens, pick, sample, wait_ms
from producers.simulation.fleet import scope_of
from producers.simulation.model import CLUSTER, Node
from producers.simulation.schedule import Schedule
from producers.simulation.world import World

_NOTICE_HOURS: Final = (2.0, 6.0)
_CORDONED_BEFORE_MS: Final = HOUR_MS
_LASTS_HOURS: Final = (0.5, 2.0)
_DRAIN_AFTER_MS: Final = 5 * SECOND_MS
_GRACE_MS: Final = 10 * MINUTE_MS
_RESTART_MS: Final = 6 * MINUTE_MS
_BATCH: Final = (8, 24)
_GIVES_UP_MS: Final = 8 * HOUR_MS
# Of a bad driver's nodes half show it, within hours; operators roll back when this many did.
_BREAKS: Final = 0.6
_BREAKS_WITHIN_HOURS: Final = (0.05, 2.5)
_ENOUGH: Final = 5
_BAD_FAULTS: Final = {"gsp_timeout": 3, "gsp_error": 1}


@dataclass(slots=True, eq=False)
class _Rollout:
    """A new driver on a batch of nodes: which have it, and how often it broke."""

    id: str
    version: str
    before: str
    nodes: Sequence[Node]
    bad: bool
    updated: dict[Node, None] = field(default_factory=dict)
    broke: int = 0
    over: bool = False


class Upkeep:
    """Maintains nodes and rolls out drivers at random times."""

    def __init__(self, world: World, schedule: Schedule, breakdowns: Breakdowns) -> None:
        self._world = world
        self._schedule = schedule
        self._breakdowns = breakdowns

    def open(self, at_ms: int) -> None:
        """Let there be maintenance and roll-outs from now on."""
        mix = self._world.mix
        for per_day, happen in ((mix.maintenances_per_day, self._maintain), (mix.rollouts_per_day, self._roll_out)):
            if per_day > 0:
                self._put_down(per_day, happen, at_ms)

    def _put_down(self, per_day: float, happen: Callable[[int], None], at_ms: int) -> None:
        def next_one(now_ms: int) -> None:
            if now_ms < self._world.quiet_from_ms:
                happen(now_ms)
                self._put_down(per_day, happen, now_ms)

        self._world.agenda.at(at_ms + wait_ms(self._world.chances.luck, per_day), next_one)

    # --- maintenance ------------------------------------------------------------------------------------

    def _maintain(self, at_ms: int) -> None:
        world, rng = self._world, self._world.chances.luck
        rack = rng.choice(world.fleet).domains["rack"]
        nodes = scope_of(world.fleet, "rack", rack)
        id_ = f"mnt-{world.count('maintenances'):04d}"
        starts_ms = at_ms + round(between(rng, _NOTICE_HOURS) * HOUR_MS)
        ends_ms = starts_ms + round(between(rng, _LASTS_HOURS) * HOUR_MS)
        tell = partial(self._tell_maintenance, id_, nodes, (starts_ms, ends_ms))
        tell("scheduled", at_ms)
        world.agenda.at(starts_ms, partial(tell, "started"))
        for node in nodes:
            world.agenda.at(starts_ms - _CORDONED_BEFORE_MS, partial(self._hold, node, id_))
            world.agenda.at(starts_ms + _DRAIN_AFTER_MS, partial(self._drain, node, id_))
            world.agenda.at(starts_ms + _GRACE_MS, partial(self._end_jobs, node))
            world.agenda.at(ends_ms, partial(self._bring_back, node, id_))
        world.agenda.at(ends_ms, partial(tell, "ended"))

    def _tell_maintenance(
        self,
        id_: str,
        nodes: Sequence[Node],
        window_ms: tuple[int, int],
        phase: Literal["scheduled", "started", "ended"],
        at_ms: int,
    ) -> None:
        told = PlatformMaintenance(
            id_, CLUSTER, planned=True, phase=phase, scope=Scope(nodes=tuple(node.name for node in nodes)),
            starts_at=moment_of(window_ms[0]), ends_at=moment_of(window_ms[1]),
        )  # fmt: skip
        self._world.delivery.post(self._world.sender("scheduler/maintenance"), at_ms, told)

    def _hold(self, node: Node, id_: str, _at_ms: int) -> None:
        care.hold(self._world, node, id_)

    def _drain(self, node: Node, id_: str, at_ms: int) -> None:
        care.tell_action(self._world, node, at_ms, "drain", reason=f"maintenance {id_}", planned=True)
        care.when_empty(node, at_ms, lambda _now: care.switch_off(self._world, node, id_) if id_ in node.held else None)

    def _end_jobs(self, node: Node, at_ms: int) -> None:
        world, ruling = self._world, self._world.happenings.maintenance
        for attempt in list(node.holders):
            self._schedule.fail(attempt, rulings.ended(world, ruling, at_ms, node))

    def _bring_back(self, node: Node, why: str, at_ms: int) -> None:
        if care.bring_back(self._world, node, why, at_ms):
            care.tell_action(self._world, node, at_ms, "uncordon", reason=why, planned=True)
            self._schedule.freed(node, at_ms)

    # --- roll-outs --------------------------------------------------------------------------------------

    def _roll_out(self, at_ms: int) -> None:
        world, rng = self._world, self._world.chances.luck
        pool = rng.choice(world.fleet).pool
        candidates = [node for node in scope_of(world.fleet, "pool", pool) if not node.cordoned]
        if not candidates:
            return
        nodes = sample(rng, candidates, rng.randint(*_BATCH))
        number = world.count("rollouts")
        rollout = _Rollout(
            f"ro-driver-{number:03d}",
            f"{575 + number}.{rng.randrange(10, 90)}.{rng.randrange(1, 9):02d}",
            nodes[0].driver_version,
            nodes,
            happens(rng, world.mix.bad_rollouts),
        )
        self._tell_rollout(rollout, "started", at_ms)
        for node in nodes:
            care.hold(world, node, rollout.id)
            care.when_empty(node, at_ms, partial(self._update, rollout, node, rollout.version))
        world.agenda.at(at_ms + _GIVES_UP_MS, partial(self._close, rollout, "ended"))

    def _update(self, rollout: _Rollout, node: Node, version: str, at_ms: int) -> None:
        if rollout.over and version == rollout.version:
            self._bring_back(node, rollout.id, at_ms)
            return
        care.switch_off(self._world, node, rollout.id)
        self._world.agenda.at(at_ms + _RESTART_MS, partial(self._updated, rollout, node, version))

    def _updated(self, rollout: _Rollout, node: Node, version: str, at_ms: int) -> None:
        node.driver_version = version
        self._bring_back(node, rollout.id, at_ms)
        if version == rollout.before:
            rollout.updated.pop(node, None)
            return
        rollout.updated[node] = None
        rng = self._world.chances.luck
        if rollout.bad and happens(rng, _BREAKS):
            breaks_ms = at_ms + round(between(rng, _BREAKS_WITHIN_HOURS) * HOUR_MS)
            self._world.agenda.at(breaks_ms, partial(self._break, rollout, node))
        if len(rollout.updated) == len(rollout.nodes):
            self._close(rollout, "ended", at_ms)

    def _break(self, rollout: _Rollout, node: Node, at_ms: int) -> None:
        if node.driver_version != rollout.version or node.cordoned or at_ms > self._world.quiet_from_ms:
            return
        rng = self._world.chances.luck
        rollout.broke += 1
        held = [gpu.index for gpu in node.gpus if gpu.holder is not None]
        self._breakdowns.strike(node, pick(rng, _BAD_FAULTS), at_ms, rng.choice(held) if held else None)
        if rollout.broke == _ENOUGH:
            self._world.agenda.at(at_ms + 20 * MINUTE_MS, partial(self._roll_back, rollout))

    def _roll_back(self, rollout: _Rollout, at_ms: int) -> None:
        self._close(rollout, "rolled_back", at_ms)
        for node in list(rollout.updated):
            care.hold(self._world, node, rollout.id)
            care.when_empty(node, at_ms, partial(self._update, rollout, node, rollout.before))

    def _close(self, rollout: _Rollout, phase: Literal["ended", "rolled_back"], at_ms: int) -> None:
        if not rollout.over or phase == "rolled_back":
            self._tell_rollout(rollout, phase, at_ms)
        rollout.over = True

    def _tell_rollout(self, rollout: _Rollout, phase: Literal["started", "ended", "rolled_back"], at_ms: int) -> None:
        scope = Scope(nodes=tuple(node.name for node in rollout.nodes))
        told = PlatformRollout(rollout.id, CLUSTER, "driver", rollout.version, phase, scope)
        self._world.delivery.post(self._world.sender("deploy/fleet"), at_ms, told)
