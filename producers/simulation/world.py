"""The simulated world: what every part of the simulation sees and changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final

from faultlens.clock import DAY_MS, MINUTE_MS
from faultlens.events import Scope
from faultlens.truth import Truth
from producers.simulation.agenda import Agenda
from producers.simulation.chance import stream
from producers.simulation.delivery import Delivery
from producers.simulation.fleet import build_fleet
from producers.simulation.logs import Texts
from producers.simulation.model import Broken, Node, Sender
from producers.simulation.placement import Placement
from producers.simulation.tables import Happenings, IncidentKind, Mix, load_log_texts

# Nothing new goes wrong in the last half hour, so that every failure's evidence window closes before the end.
QUIET_MS: Final = 30 * MINUTE_MS


@dataclass(frozen=True)
class Shape:
    """What is to be simulated. `interval_s`: between two health reports of a node, and two signs of life of a job."""

    nodes: int
    days: float
    seed: int
    start_ms: int
    interval_s: float = 300.0
    gpus_per_node: int = 8

    @property
    def end_ms(self) -> int:
        """When it is over."""
        return self.start_ms + round(self.days * DAY_MS)


@dataclass(slots=True, eq=False)
class OpenIncident:
    """Trouble of a service that goes on, and the nodes that it reaches."""

    name: str
    kind: IncidentKind
    nodes: frozenset[Node]
    told: bool
    scope: Scope


@dataclass(frozen=True)
class Chances:
    """Streams of chance, one for each part: a change in one part leaves what the others draw as it was."""

    fleet: Random
    jobs: Random
    lives: Random
    faults: Random
    luck: Random


@dataclass(eq=False)
class World:
    """Everything. Times are true times in milliseconds; `pools` counts the nodes of each."""

    shape: Shape
    mix: Mix
    happenings: Happenings
    chances: Chances
    agenda: Agenda
    delivery: Delivery
    texts: Texts
    fleet: list[Node]
    pools: dict[str, int]
    placement: Placement
    told: Callable[[Truth], None]
    status: dict[str, Sender]
    incidents: list[OpenIncident] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    broken: dict[Node, list[Broken]] = field(default_factory=dict)

    @property
    def quiet_from_ms(self) -> int:
        """From when on nothing new goes wrong."""
        return self.shape.end_ms - QUIET_MS

    def count(self, what: str) -> int:
        """Count something and return how many there have been."""
        self.counts[what] = self.counts.get(what, 0) + 1
        return self.counts[what]

    def sender(self, source: str) -> Sender:
        """Return a central sender (a scheduler's bridge, a status page), whose clock is right."""
        return self.status.setdefault(source, Sender(source))


def build_world(
    shape: Shape, mix: Mix, happenings: Happenings, *, write: Callable[[bytes], None], told: Callable[[Truth], None]
) -> World:
    """Return a world in which nothing has happened yet."""
    chances = Chances(*(stream(shape.seed, name) for name in ("fleet", "jobs", "lives", "faults", "luck")))
    fleet = build_fleet(shape.nodes, shape.gpus_per_node, mix, chances.fleet)
    return World(
        shape,
        mix,
        happenings,
        chances,
        Agenda(),
        Delivery(write, mix.transport, shape.seed, stream(shape.seed, "delivery")),
        Texts(load_log_texts(), stream(shape.seed, "texts")),
        fleet,
        dict(Counter(node.pool for node in fleet)),
        Placement(fleet),
        told,
        {},
    )
