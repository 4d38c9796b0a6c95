"""Runs the simulated fleet: every node's reports in turn, and between them whatever is due."""

from __future__ import annotations

from collections.abc import Callable

from faultlens.truth import Truth
from producers.simulation.breakdowns import Breakdowns
from producers.simulation.chance import stream
from producers.simulation.disturbances import Disturbances
from producers.simulation.incidents import Incidents
from producers.simulation.reports import Reporter, rounds
from producers.simulation.schedule import Schedule
from producers.simulation.tables import Happenings, Mix
from producers.simulation.upkeep import Upkeep
from producers.simulation.world import Shape, World, build_world


def simulate(
    shape: Shape,
    mix: Mix,
    happenings: Happenings,
    *,
    write: Callable[[bytes], None],
    told: Callable[[Truth], None],
    watch: Callable[[World, int], None] = lambda _world, _now_ms: None,
) -> World:
    """Simulate a fleet: `write` gets each record as it arrives, `told` the truth of each failure.

    `watch` is called with the time reached, once for each round of reports. The same shape and mix give the
    same records, byte for byte.
    """
    world = build_world(shape, mix, happenings, write=write, told=told)
    schedule = Schedule(world)
    breakdowns = Breakdowns(world, schedule)
    for part in (
        schedule,
        breakdowns,
        Incidents(world, schedule),
        Disturbances(world, schedule),
        Upkeep(world, schedule, breakdowns),
    ):
        part.open(shape.start_ms)
    reporter = Reporter(world.delivery, shape.interval_s, stream(shape.seed, "reports"))
    interval_ms = round(shape.interval_s * 1_000)
    for number, (at_ms, node) in enumerate(
        rounds(world.fleet, interval_ms, shape.start_ms, stream(shape.seed, "places"))
    ):
        if at_ms >= shape.end_ms:
            break
        world.agenda.run_until(at_ms)
        world.delivery.advance(at_ms)
        if node.sees(at_ms):
            reporter.report(node, at_ms)
        if number % shape.nodes == 0:
            watch(world, at_ms)
    world.agenda.run_until(shape.end_ms)
    world.delivery.finish()
    return world
