"""What disturbs nodes without breaking them: agents that are gone, cut lines, black holes, evictions, herrings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from faultlens.clock import MINUTE_MS
from producers.simulation import broken, herrings, rulings
from producers.simulation.chance import between, happens, wait_ms
from producers.simulation.model import Node
from producers.simulation.schedule import Schedule
from producers.simulation.world import World

_LAUNCHER_CUT_TOO: Final = 0.5


class Disturbances:
    """Lets nodes be disturbed at random, each kind at its own rate."""

    def __init__(self, world: World, schedule: Schedule) -> None:
        self._world = world
        self._schedule = schedule

    def open(self, at_ms: int) -> None:
        """Let nodes be disturbed from now on."""
        mix, nodes = self._world.mix, len(self._world.fleet)
        per_1000_node_days = nodes / 1_000
        for per_day, happen in (
            (mix.herrings_per_node_day * nodes, self._herring),
            (mix.evidence.agent_outages_per_1000_node_days * per_1000_node_days, self._agent_outage),
            (mix.transport.cuts_per_1000_node_days * per_1000_node_days, self._cut),
            (mix.black_holes_per_1000_node_days * mix.acceleration * per_1000_node_days, self._black_hole),
            (mix.evictions_per_1000_node_days * mix.acceleration * per_1000_node_days, self._evict),
        ):
            if per_day > 0:
                self._put_down(per_day, happen, at_ms)

    def _put_down(self, per_day: float, happen: Callable[[Node, int], None], at_ms: int) -> None:
        rng = self._world.chances.luck

        def next_one(now_ms: int) -> None:
            if now_ms < self._world.quiet_from_ms:
                happen(rng.choice(self._world.fleet), now_ms)
                self._put_down(per_day, happen, now_ms)

        self._world.agenda.at(at_ms + wait_ms(rng, per_day), next_one)

    def _herring(self, node: Node, at_ms: int) -> None:
        herrings.show_herring(self._world, node, self._world.chances.luck.randrange(len(node.gpus)), at_ms)

    def _agent_outage(self, node: Node, at_ms: int) -> None:
        """The agent is gone: no reports, no records; jobs run on."""
        lasts_ms = round(between(self._world.chances.luck, self._world.mix.evidence.agent_outage_minutes) * MINUTE_MS)
        node.agent_down_until_ms = max(node.agent_down_until_ms, at_ms + lasts_ms)

    def _cut(self, node: Node, at_ms: int) -> None:
        """Nothing gets through from the node for a while; all of it arrives later."""
        world, rng = self._world, self._world.chances.luck
        until_ms = at_ms + round(between(rng, world.mix.transport.cut_minutes) * MINUTE_MS)
        node.agent.cut_until_ms = until_ms
        for attempt in node.holders:
            if attempt.launched_on is node and happens(rng, _LAUNCHER_CUT_TOO):
                attempt.teller.cut_until_ms = until_ms

    def _black_hole(self, node: Node, at_ms: int) -> None:
        """Every start on the node fails from now on, until somebody notices."""
        node.swallows = self._world.chances.luck.randint(*self._world.mix.black_hole_starts)
        broken.begin(self._world, node, self._world.happenings.black_hole.code, at_ms)

    def _evict(self, node: Node, at_ms: int) -> None:
        world, ruling = self._world, self._world.happenings.eviction
        pods = [attempt for attempt in node.holders if attempt.job.reporter == "kubernetes"]
        if not pods:
            return
        attempt = world.chances.luck.choice(pods)
        self._schedule.fail(attempt, rulings.ended(world, ruling, at_ms, node))
