"""Shared services in trouble: whom an incident reaches, what they feel of it, and who tells of it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from faultlens.clock import MINUTE_MS
from faultlens.events import PlatformIncident, Scope
from producers.simulation import broken, care, endings
from producers.simulation.chance import between, happens, pick, span_ms, wait_ms
from producers.simulation.fleet import scope_of
from producers.simulation.model import CLUSTER, Ailment, Attempt, Blow, Node
from producers.simulation.schedule import Schedule
from producers.simulation.tables import IncidentKind
from producers.simulation.world import OpenIncident, World

_FELT_WITHIN_S: Final = 300.0
_POWER_GONE_S: Final = (0.5, 3.0)
_OFF: Final = "service"


class Incidents:
    """Lets services fail at random."""

    def __init__(self, world: World, schedule: Schedule) -> None:
        self._world = world
        self._schedule = schedule

    def open(self, at_ms: int) -> None:
        """Let services fail from now on."""
        for name, per_day in self._world.mix.incidents_per_day.items():
            if per_day > 0:
                self._put_down(name, per_day, at_ms)

    def begin(self, name: str, at_ms: int) -> None:
        """Let one kind of trouble begin."""
        world, rng = self._world, self._world.chances.luck
        kind = world.happenings.incidents[name]
        nodes, scope = self._reached(kind)
        lasts_ms = round(between(rng, kind.minutes) * MINUTE_MS)
        told_after_ms = span_ms(rng, kind.announced_after_s)
        # What is over before anybody noticed is not announced any more.
        told = happens(rng, kind.announced) and told_after_ms < lasts_ms
        id_ = f"inc-{name.replace('_', '-')}-{world.count(f'incident {name}')}"
        incident = OpenIncident(id_, kind, frozenset(nodes), told, scope)
        world.incidents.append(incident)
        if told:
            self._tell(incident, at_ms + told_after_ms, "started", rng.choice(kind.began))
        for node in nodes:
            self._reach(kind, id_, node)
        for attempt in dict.fromkeys(attempt for node in nodes for attempt in node.holders):
            if attempt.job.reporter in kind.under and happens(rng, kind.hits_running):
                self._hit(incident, attempt, at_ms, lasts_ms)
        if kind.takes_nodes_down:
            for node in nodes:
                care.switch_off(world, node, _OFF)
                broken.begin(world, node, kind.code, at_ms)
        world.agenda.at(at_ms + lasts_ms, partial(self._end, incident, nodes))

    def _put_down(self, name: str, per_day: float, at_ms: int) -> None:
        due_ms = at_ms + wait_ms(self._world.chances.luck, per_day)

        def happen(now_ms: int) -> None:
            if now_ms < self._world.quiet_from_ms:
                self.begin(name, now_ms)
                self._put_down(name, per_day, now_ms)

        self._world.agenda.at(due_ms, happen)

    def _reached(self, kind: IncidentKind) -> tuple[list[Node], Scope]:
        fleet = self._world.fleet
        one = self._world.chances.luck.choice(fleet)
        match kind.reaches:
            case "cluster":
                return list(fleet), Scope()
            case "pool":
                return scope_of(fleet, "pool", one.pool), Scope(pools=(one.pool,))
            case domain:
                name = one.domains[domain]
                return scope_of(fleet, domain, name), Scope(domains={domain: (name,)})

    def _reach(self, kind: IncidentKind, id_: str, node: Node) -> None:
        if kind.checks:
            care.ail(node, Ailment(id_, kind.checks, lasts=True))

    def _hit(self, incident: OpenIncident, attempt: Attempt, at_ms: int, lasts_ms: int) -> None:
        world, rng, kind = self._world, self._world.chances.luck, incident.kind
        felt_ms = at_ms + span_ms(rng, _felt_within_s(kind, lasts_ms))
        texts = pick(rng, kind.texts)
        node = next(node for node in attempt.nodes() if node in incident.nodes)
        manner = pick(rng, kind.manners)
        blow = Blow(
            felt_ms,
            kind.code,
            kind.why,
            endings.manner_of_loss(world, attempt, node, at_ms) if manner == "node_lost" else manner,
            tells=incident.told or bool(kind.checks) or kind.reason is not None,
            draft=world.texts.draft(texts),
            text_tells=texts in kind.telling_texts,
            node=node,
            exit_code=143 if manner == "killed" else 1,
            signal=15 if manner == "killed" else None,
            reason=kind.reason,
            message=kind.message,
        )
        world.agenda.at(felt_ms, lambda _now_ms: self._schedule.fail(attempt, blow))

    def _end(self, incident: OpenIncident, nodes: Sequence[Node], at_ms: int) -> None:
        world = self._world
        world.incidents.remove(incident)
        if incident.told:
            self._tell(incident, at_ms, "ended", incident.kind.over)
        for node in nodes:
            care.cure(node, incident.name)
            if incident.kind.takes_nodes_down and care.bring_back(world, node, _OFF, at_ms):
                self._schedule.freed(node, at_ms)

    def _tell(self, incident: OpenIncident, at_ms: int, phase: str, message: str) -> None:
        told = PlatformIncident(
            incident.name, CLUSTER, incident.kind.service, "started" if phase == "started" else "ended",
            scope=incident.scope, message=message,
        )  # fmt: skip
        self._world.delivery.post(self._world.sender(f"status/{incident.kind.service}"), at_ms, told)


def _felt_within_s(kind: IncidentKind, lasts_ms: int) -> tuple[float, float]:
    """Return when running jobs notice: at once where the power is gone, else as soon as they need the service."""
    return _POWER_GONE_S if kind.takes_nodes_down else (1.0, max(1.0, min(_FELT_WITHIN_S, lasts_ms / 1_000)))
