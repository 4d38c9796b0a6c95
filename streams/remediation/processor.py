"""The remediation state machine: what is wrong with nodes in; incidents and commands out, within hard limits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, cast

from msgspec import Struct
from msgspec.structs import replace

from faultlens import topics
from faultlens.clock import HOUR_MS, MINUTE_MS
from faultlens.codec import Event, fingerprint
from faultlens.events import (
    OperatorControl,
    PlatformIncident,
    PlatformMaintenance,
    PlatformRollout,
    RemediationResult,
)
from faultlens.internal import (
    Announced,
    Condition,
    ContextChange,
    Intervened,
    JobTrouble,
    JobVerdict,
    LaneCensus,
    NodeFacts,
)
from streams.context import Context, apply_change
from streams.processor import Effects, Emit, Shelf
from streams.remediation import announcing, common, controls, fleet, hanging, incidents, issuing, renaming, verdicts
from streams.remediation.climbing import advance, followed, undone
from streams.remediation.desk import Desk
from streams.remediation.gates import is_for_room
from streams.remediation.policy import Policy
from streams.remediation.record import (
    SEEN_BYTES,
    Card,
    ClusterCard,
    CommandCard,
    HungJob,
    IncidentCard,
    Machine,
    Place,
    Recent,
    key_of,
)
from streams.remediation.telling import keep
from streams.remediation.wrong import is_taken, troubles

# Conditions that call for nothing: harmless ones, and a node that has yet to be validated.
_ROLES: Final = frozenset({"root", "unexpected", "trend"})
_OPEN: Final = frozenset({"accepted", "started"})
_COUNT_KEPT_MS: Final = 15 * MINUTE_MS
# The cluster's card is not written for every word of a bridge.
_WATCHED_AGAIN_MS: Final = HOUR_MS
# By then a node's processor has said what became of a step on it; it does so at once.
_TOLD_BY_MS: Final = 10 * MINUTE_MS
# Of those that wait for room in a cap, so many are looked at when some comes back.
_AT_ONCE: Final = 32


class RemediationProcessor:
    """Steps one cluster; what it knows is kept by node, incident, command and scope (`streams/remediation/record.py`).

    `replayed`: its commands are marked as decided over a recording.
    """

    name = "remediation"
    topics = (topics.CONDITIONS, topics.PLATFORM_EVENTS, topics.REMEDIATION_RESULTS, topics.CENSUS)
    state_type = Card
    survey_every_ms: int | None = None
    surveys_while_idle = False

    def __init__(self, policy: Policy, *, replayed: bool = False) -> None:
        self._policy = policy
        self._replayed = replayed
        self._steps: dict[type, Callable[[Desk, Event, Any], None]] = {
            Condition: _on_condition,
            NodeFacts: _on_facts,
            Intervened: _on_intervened,
            Announced: _on_announced,
            JobVerdict: _on_verdict,
            JobTrouble: _on_trouble,
            LaneCensus: _on_census,
            OperatorControl: _on_control,
            RemediationResult: _on_result,
            PlatformIncident: _on_platform,
            PlatformRollout: _on_platform,
            PlatformMaintenance: _on_platform,
        }

    def key_of(self, event: Event) -> str | None:
        """Return the cluster."""
        return event.subject if type(event.data) in self._steps else None

    def on_event(self, event: Event, now_ms: int, context: Context, state: Shelf) -> Effects:
        """Return what follows from one record about the cluster."""
        told_by_us = event.type not in topics.INPUT_TYPES
        desk = self._desk(event.subject, state, now_ms, event.time_ms if told_by_us else None)
        if not told_by_us and _is_known(desk, event):
            return Effects(None, duplicate=True)
        self._steps[type(event.data)](desk, event, event.data)
        return _settled(desk)

    def on_time(self, key: str, now_ms: int, context: Context, state: Shelf) -> Effects:
        """Return what is due: tolerances, deadlines of commands, verification, words that expire."""
        card = cast("Card | None", state.get(key))
        if card is None:
            return Effects(None)
        desk = self._desk(card.cluster, state, now_ms)
        _due(desk, card)
        return _settled(desk)

    def survey(self, now_ms: int, states: Iterable[tuple[str, Struct]], lane: int) -> Sequence[Emit]:
        """Return nothing: each key wakes by itself."""
        return ()

    def on_end(self, key: str, now_ms: int, context: Context, state: Shelf) -> Effects:
        """Return nothing: all is told when it is decided."""
        return Effects(None)

    def _desk(self, cluster: str, shelf: Shelf, now_ms: int, learnt_ms: int | None = None) -> Desk:
        return Desk(cluster, shelf, now_ms, self._policy, learnt_ms=learnt_ms, replayed=self._replayed)


# --- what every step ends with ---------------------------------------------------------------------------


def _settled(desk: Desk) -> Effects:
    """Return the effects once all that follows from what ended, was let go or came back is done too."""
    while desk.closed or desk.released or desk.cleared:
        while desk.closed:
            closed = desk.incident(desk.closed.pop(0))
            if closed is not None and closed.probe is not None and not closed.domain:
                common.probed(desk, closed.probe, closed.node)
        while desk.released:
            _let_go(desk, *desk.released.pop(0))
        while desk.cleared:
            _left_behind(desk, desk.cleared.pop(0))
    if desk.freed:
        desk.freed = False
        _look_at_waiting(desk, for_room=True)
    return desk.effects()


def _left_behind(desk: Desk, node: str) -> None:
    """Take up what else is wrong with a node that has nothing of its common incident any more."""
    card = desk.node(node)
    wrong = troubles(card)
    if card.incident is None and wrong:
        incidents.taken_up(desk, node, incidents.worst_of(wrong))
    _let_go(desk, node, None)


def _let_go(desk: Desk, node: str, probe_of: str | None) -> None:
    """Give a node that leaves a common incident one of its own, if something is still to be done about it."""
    card = desk.node(node)
    if card.incident is not None:
        return
    if renaming.is_empty(desk, card):
        # What a command did there late, nobody can take back.
        renaming.emptied(desk, card)
        card = desk.node(node)
    begun = None
    if troubles(card):
        begun = incidents.open_for(desk, node, probe_of=probe_of)
    if begun is None and is_taken(card):
        begun = incidents.open_return(desk, node, probe_of=probe_of)
    if begun is None and probe_of is not None:
        common.probed(desk, probe_of, node)


def _move(desk: Desk, incident: IncidentCard) -> None:
    if incident.domain:
        common.turned(desk, incident)
    else:
        advance(desk, incident)


def _look_at_waiting(desk: Desk, *, for_room: bool = False) -> None:
    """Look again at incidents that wait, the worst first; those that wait no more leave the queue.

    `for_room`: only at those that a cap holds back, and at no more than can be looked at in one step.
    """
    waiting = [i for name in desk.own().waiting if (i := desk.incident(name)) is not None and i.waits is not None]
    waiting.sort(key=lambda i: (-i.severity, i.waits_ms, i.id))
    chosen = [i for i in waiting if is_for_room(i.waits or "")][:_AT_ONCE] if for_room else waiting
    for incident in chosen:
        if (as_it_stands := desk.incident(incident.id)) is not None and as_it_stands.stage != "closed":
            _move(desk, as_it_stands)
    own = desk.own()
    still = tuple(name for name in own.waiting if (i := desk.incident(name)) is not None and i.waits is not None)
    if still != own.waiting:
        desk.put(replace(own, waiting=still))


# --- records -------------------------------------------------------------------------------------------


def _is_known(desk: Desk, event: Event) -> bool:
    """Return whether the record came before, and note that it did."""
    own, mark = desk.own(), fingerprint(event.source, event.id)
    at = own.seen.find(mark)
    while at >= 0 and at % len(mark):
        at = own.seen.find(mark, at + 1)
    if at >= 0:
        return True
    desk.put(replace(own, seen=(own.seen + mark)[-SEEN_BYTES:]))
    return False


def _on_condition(desk: Desk, event: Event, data: Condition) -> None:
    observation = data.observation
    trait = incidents.trait_of(observation)
    if data.phase == "cleared":
        incidents.cleared(desk, data.node, trait.key, observation.until_ms or data.at_ms)
    elif observation.role in _ROLES and not observation.synthetic:
        incidents.opened(desk, data.node, trait)


def _on_facts(desk: Desk, event: Event, data: NodeFacts) -> None:
    card = desk.node(data.node)
    gone, over = data.state == "removed", announcing.over_by_boot(card, data)
    is_known_anew = _hardware(card.facts) != _hardware(data)
    if card.facts is not None and card.facts.jobs:
        card = replace(card, worked_ms=desk.learnt_ms)
    card = replace(card, facts=data, taken=card.taken and not gone, traits=() if gone else card.traits)
    fleet.keep(desk, card)
    for key in over:
        incidents.cleared(desk, data.node, key, desk.now_ms)
    if is_known_anew or data.report_ms:
        renaming.followed(desk, data.node, is_new=is_known_anew)
    incident = desk.incident(desk.node(data.node).incident)
    if incident is None:
        return
    if is_known_anew:
        renaming.noted(desk, desk.node(data.node))
    if gone:
        incidents.gone(desk, incident) if incident.node else common.left(desk, incident, data.node)
    elif incident.node:
        hanging.held(desk, data)
        is_other = is_known_anew or incidents.is_more_at_stake(incident, data)
        is_other = is_other or incident.policy != desk.policy.version
        advance(desk, incidents.recognised(desk, incident) if is_other else incident)


def _hardware(facts: NodeFacts | None) -> tuple[str | None, tuple[str, ...]]:
    return (None, ()) if facts is None else (facts.host_id, facts.gpus)


def _on_intervened(desk: Desk, event: Event, data: Intervened) -> None:
    if data.watched and desk.now_ms - desk.own().watched_ms >= _WATCHED_AGAIN_MS:
        desk.put(replace(desk.own(), watched_ms=desk.now_ms))
    incidents.intervened(desk, data)
    if data.action == "uncordon" and data.command_id is None and data.actor in desk.policy.controllers:
        _put_back_by_a_program(desk, data)


def _put_back_by_a_program(desk: Desk, word: Intervened) -> None:
    """Note that a node which we kept takes work again, and have it taken anew if something is still wrong with it."""
    card = desk.node(word.node)
    if not card.taken or card.command is not None or word.at_ms < card.taken_ms:
        return
    fleet.keep(desk, replace(card, taken=False, returned_ms=word.at_ms))
    incident = desk.incident(card.incident)
    if incident is not None and incident.node:
        _put_back(desk, incident)


def _on_announced(desk: Desk, event: Event, data: Announced) -> None:
    incidents.announced(desk, data)


def _on_verdict(desk: Desk, event: Event, data: JobVerdict) -> None:
    verdicts.judged(desk, data)


def _on_trouble(desk: Desk, event: Event, data: JobTrouble) -> None:
    hanging.troubled(desk, data)


def _on_census(desk: Desk, event: Event, data: LaneCensus) -> None:
    own = desk.own()
    kept = {lane: count for lane, count in own.lanes.items() if desk.now_ms - count[0] <= _COUNT_KEPT_MS}
    desk.put(replace(own, lanes={**kept, data.lane: (data.at_ms, data.covered, data.on_time)}))


def _on_control(desk: Desk, event: Event, data: OperatorControl) -> None:
    desk.put(controls.noted(controls.lapsed(desk.own(), desk.now_ms), data, desk.now_ms))
    _look_at_waiting(desk)


def _on_platform(desk: Desk, event: Event, data: PlatformIncident | PlatformRollout | PlatformMaintenance) -> None:
    own = desk.own()
    change = ContextChange(
        desk.cluster,
        event.time_ms,
        incident=replace(data, message=None) if isinstance(data, PlatformIncident) else None,
        rollout=data if isinstance(data, PlatformRollout) else None,
        maintenance=data if isinstance(data, PlatformMaintenance) else None,
    )
    desk.put(replace(own, context=apply_change(own.context, change, arrived_ms=desk.now_ms)))
    if isinstance(data, PlatformIncident):
        common.explained(desk, data)
    _look_at_waiting(desk)


def _on_result(desk: Desk, event: Event, data: RemediationResult) -> None:
    command = desk.issued(data.command_id)
    if command is None or data.state == "expired":
        return
    if command.ended_ms:
        _late(desk, issuing.late(desk, command, data.state))
    elif data.state in _OPEN:
        issuing.heard(desk, command, data)
    else:
        _ended(desk, issuing.ended(desk, command, data.state, data.reason or ""))


def _ended(desk: Desk, command: CommandCard) -> None:
    """Go on with the incident that the command was a step of, and with the one that its node is in by now."""
    incident = desk.incident(command.incident)
    if incident is not None and incident.stage != "closed":
        incident = followed(desk, incident, command)
        _heard_of(desk, incidents.unreturned(desk, incident), command.node)
    if not command.node:
        return
    issuing.tend(desk, command, incidents.watched_until_ms(desk, command.node))
    now_in = desk.incident(desk.node(command.node).incident)
    if now_in is not None and now_in.id != command.incident:
        _heard_of(desk, now_in, command.node)
    _noticed(desk, command.node)


def _heard_of(desk: Desk, incident: IncidentCard, node: str) -> None:
    """Go on with an incident now that a command on the node has ended, which may have shown that nothing is wrong."""
    if incident.domain:
        common.left(desk, incident, node)
    else:
        advance(desk, incident)


def _late(desk: Desk, command: CommandCard) -> None:
    if command.state == "succeeded" and command.node:
        issuing.tend(desk, command, incidents.watched_until_ms(desk, command.node))
        incident = desk.incident(desk.node(command.node).incident)
        if command.action == "return_to_service" and incident is not None and incident.node:
            _put_back(desk, incident)
        _noticed(desk, command.node)


def _put_back(desk: Desk, incident: IncidentCard) -> None:
    """Have a node taken again that an earlier return has put back while something is wrong with it.

    Once its processor has said where it stands now: as long as it passes for out, taking it would seem to cost nothing.
    """
    if incident.stage in ("climbing", "handed_over"):
        keep(desk, replace(undone(desk, incident), due_ms=desk.now_ms + _TOLD_BY_MS))


def _noticed(desk: Desk, node: str) -> None:
    """Bring a node back that was taken by what came out of nowhere: a late word, or a step of what is over."""
    card = desk.node(node) if node else None
    if card is not None and card.incident is None and is_taken(card):
        desk.released.append((node, None))


# --- time ----------------------------------------------------------------------------------------------


def _due(desk: Desk, card: Card) -> None:
    if isinstance(card, IncidentCard):
        if card.stage == "closed":
            desk.drop(key_of(card))
        else:
            _move(desk, card)
    elif isinstance(card, CommandCard):
        if card.ended_ms:
            desk.drop(key_of(card))
        else:
            _ended(desk, issuing.overdue(desk, card))
    elif isinstance(card, ClusterCard):
        desk.put(controls.lapsed(card, desk.now_ms))
        _look_at_waiting(desk)
    elif isinstance(card, HungJob | Machine | Place | Recent):
        desk.drop(key_of(card))
