"""The way of an incident: up its ladder as far as its trouble needs, verified after each repair, and back."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from faultlens.clock import HOUR_MS, MINUTE_MS
from faultlens.events import Action
from streams.remediation import controls, issuing, proof
from streams.remediation.closing import close
from streams.remediation.desk import Desk
from streams.remediation.gates import HARMLESS, Step, is_by_people, is_for_approval, obstacle
from streams.remediation.policy import LASTING, REPAIRS, Route, Rung
from streams.remediation.record import WAITING_MAX, CommandCard, IncidentCard, NodeCard
from streams.remediation.telling import keep
from streams.remediation.wrong import is_bad, is_taken

# From mild to severe: a repair that did not last is not tried again, and neither is what is milder.
_SEVERITY: Final[tuple[Action, ...]] = (
    "validate",
    "restart_services",
    "reset_device",
    "reboot",
    "power_cycle",
    "replace",
)
# What waits is woken by what it waits for; this often it is looked at even so.
_LOOK_AGAIN_MS: Final = 10 * MINUTE_MS
# Reports a node owes after a repair, and the moment that the last may take.
_REPORTS: Final = 3
_PROOFS: Final = 3
_TEST_AGAIN_MS: Final = HOUR_MS
_RETURN_AFTER_MS: Final = (MINUTE_MS, 2 * MINUTE_MS, 5 * MINUTE_MS, 10 * MINUTE_MS, 30 * MINUTE_MS)
# An actuator says so when it cannot do a thing at all (actuators, `Refusal`).
UNSUPPORTED: Final = "unsupported"
_BY_PEOPLE: Final = "a person: all steps were taken"
_BACK: Final = Rung("return_to_service")
# What a return to service takes back.
_UNDONE: Final[frozenset[Action]] = frozenset({"block_new_work", "drain", "exclude_device"})


def advance(desk: Desk, incident: IncidentCard) -> IncidentCard:
    """Take the incident as far as it goes now, keep it, and return it."""
    goes_on = incident.stage != "closed"
    while goes_on:
        incident, goes_on = _step(desk, incident)
        goes_on = goes_on and incident.stage != "closed"
    return incident if incident.stage == "closed" else keep(desk, incident)


def _step(desk: Desk, incident: IncidentCard) -> tuple[IncidentCard, bool]:
    """Take one step; whether there may be another one at once."""
    card = _card_of(desk, incident)
    if _is_held_up(desk, incident, card):
        return replace(incident, due_ms=None, waits=None), False
    if incident.node:
        incident = _cleared(desk, incident, card)
    if incident.stage in ("climbing", "handed_over") and incident.cleared_ms is not None:
        return replace(incident, stage="verifying", tries=0, waits=None), True
    if incident.stage == "climbing":
        return _climb(desk, incident, card)
    if incident.stage == "verifying":
        return _verify(desk, incident, card)
    if incident.stage == "returning":
        return _give_back(desk, incident, card)
    return _tested_again(desk, _acknowledged(desk, incident, card), card), False


def _is_held_up(desk: Desk, incident: IncidentCard, card: NodeCard) -> bool:
    """Return whether a command is open that has to end first: a word to people from another way may be for hours."""
    command = desk.issued(card.command)
    if command is None or command.action not in HARMLESS:
        return card.command is not None
    return _rung_of(desk, incident, command) is not None


def _card_of(desk: Desk, incident: IncidentCard) -> NodeCard:
    """Return the node that the incident's commands are for; a job's are for no node."""
    if incident.job_id:
        return NodeCard(desk.cluster, "")
    return desk.node(incident.node or incident.members[0])


def _cleared(desk: Desk, incident: IncidentCard, card: NodeCard) -> IncidentCard:
    """Return the incident with since when nothing is wrong any more; trouble that is back sends it up again."""
    if is_bad(desk, incident, card):
        gone_back = incident.stage == "returning"
        return replace(incident, cleared_ms=None, stage="climbing" if gone_back else incident.stage, proven=False)
    return incident if incident.cleared_ms is not None else replace(incident, cleared_ms=desk.learnt_ms)


# --- up ------------------------------------------------------------------------------------------------


def _climb(desk: Desk, incident: IncidentCard, card: NodeCard) -> tuple[IncidentCard, bool]:
    ladder = desk.policy.ladders.get(incident.ladder, ())
    if incident.at >= len(ladder):
        return _at_the_top(desk, incident, taught=bool(ladder) or incident.ladder not in desk.policy.ladders)
    rung = ladder[incident.at]
    if incident.tries >= rung.attempts and not _is_left_out(desk, incident, rung):
        return _given_up(incident, card, ladder), True
    step = Step(incident, card, rung, issuing.command_id_of(incident, _target(incident, card), rung.action))
    if _is_left_out(desk, incident, rung) or controls.denied(desk.own(), step.aim, desk.now_ms) is not None:
        return _next(incident), True
    due_ms = max(incident.not_before_ms, _lasted_ms(incident, card, rung))
    if desk.now_ms < due_ms:
        return replace(incident, due_ms=due_ms, waits=None), False
    why = obstacle(desk, step)
    if why is not None:
        return _waiting(desk, step, why)
    incident = replace(issuing.issue(desk, step), waits=None, waits_ms=0, due_ms=None)
    return (_as_if_done(incident, rung), True) if incident.mode == "shadow" else (incident, False)


def _lasted_ms(incident: IncidentCard, card: NodeCard, rung: Rung) -> int:
    """Return when the trouble will have lasted long enough for the rung: work on a node shows that it lived then."""
    if rung.wait not in LASTING:
        return 0
    since_ms = max(incident.first_ms, card.worked_ms) if rung.wait == "vacant" else incident.first_ms
    return since_ms + incident.tolerance_ms


def _at_the_top(desk: Desk, incident: IncidentCard, *, taught: bool) -> tuple[IncidentCard, bool]:
    """Return the incident as a person's when its ladder has no more rungs; `taught`: it had any."""
    if incident.job_id:
        return close(desk, incident, "all steps were taken"), False
    if taught:
        _queue(desk, incident)
    return replace(incident, stage="handed_over", waits=_BY_PEOPLE if taught else None, due_ms=None), False


def _target(incident: IncidentCard, card: NodeCard) -> str:
    return incident.job_id or card.node


def _is_left_out(desk: Desk, incident: IncidentCard, rung: Rung) -> bool:
    """Return whether the rung was done, cannot be executed, or is no stronger than a repair that did not last."""
    action, floor = rung.action, incident.floor
    if action in incident.done or not _can(desk, action):
        return True
    return floor is not None and action in _SEVERITY and _SEVERITY.index(action) <= _SEVERITY.index(floor)


def _next(incident: IncidentCard) -> IncidentCard:
    return replace(incident, at=incident.at + 1, tries=0, not_before_ms=0, waits=None, waits_ms=0)


def _given_up(incident: IncidentCard, card: NodeCard, ladder: tuple[Rung, ...]) -> IncidentCard:
    """Return the incident beyond a rung that did not help; what needs an empty node is out of reach without one."""
    jobs = card.facts.jobs if card.facts is not None else ()
    if ladder[incident.at].action != "drain" or not jobs:
        return _next(incident)
    telling = [at for at in range(incident.at, len(ladder)) if ladder[at].action == "open_ticket"]
    return replace(_next(incident), at=telling[0] if telling else len(ladder))


def _as_if_done(incident: IncidentCard, rung: Rung) -> IncidentCard:
    """Return a shadow's incident after a step that nobody takes: what a repair would have done nobody knows."""
    if rung.action in REPAIRS:
        return replace(incident, stage="handed_over", waits="shadow: nothing is done", due_ms=None)
    return _next(replace(incident, done=(*incident.done, rung.action)))


def _waiting(desk: Desk, step: Step, why: str) -> tuple[IncidentCard, bool]:
    """Return the incident as waiting. After too long it is a person's, and what nobody approved of is left out."""
    incident, is_asked = step.incident, is_for_approval(why)
    is_asked_now = is_asked and not is_for_approval(incident.waits or "")
    since_ms = desk.now_ms if is_asked_now else incident.waits_ms or desk.now_ms
    if desk.now_ms - since_ms >= desk.policy.breaker.queue_ms:
        if is_asked:
            return _next(incident), True
        is_told = "open_ticket" in incident.done or step.rung.approval
        if not is_told and incident.mode == "live" and not is_by_people(why):
            return _told_meanwhile(desk, step), False
    _queue(desk, incident)
    due_ms = min(desk.now_ms + _LOOK_AGAIN_MS, max(desk.now_ms + MINUTE_MS, since_ms + desk.policy.breaker.queue_ms))
    return replace(incident, waits=why, waits_ms=since_ms, due_ms=due_ms), False


def _told_meanwhile(desk: Desk, step: Step) -> IncidentCard:
    """Return the incident with a person told of it, while it goes on waiting where it is."""
    incident, tries = step.incident, step.incident.tries
    ticket = Step(
        incident, step.card, Rung("open_ticket"), issuing.command_id_of(incident, step.card.node, "open_ticket")
    )
    incident = replace(issuing.issue(desk, ticket), tries=tries)
    return replace(incident, done=(*incident.done, "open_ticket"))


def _queue(desk: Desk, incident: IncidentCard) -> None:
    own = desk.own()
    if incident.id not in own.waiting and len(own.waiting) < WAITING_MAX:
        desk.put(replace(own, waiting=(*own.waiting, incident.id)))


def _acknowledged(desk: Desk, incident: IncidentCard, card: NodeCard) -> IncidentCard:
    """Return the incident of a person with whoever has said to see to it; after a test it waits for them again."""
    if incident.waits is None and incident.node and desk.policy.ladders.get(incident.ladder):
        _queue(desk, incident)
        incident = replace(incident, waits=_BY_PEOPLE)
    word = controls.said(desk.own(), "acknowledge", controls.Aim(card.node), desk.now_ms)
    if incident.waits is None or word is None or word.since_ms < incident.first_ms:
        return incident
    return replace(incident, waits=f"a person: {controls.by_whom(word)}")


def _tested_again(desk: Desk, incident: IncidentCard, card: NodeCard) -> IncidentCard:
    """Return the incident of a person with its node tested again now and then, where only a test can clear it."""
    only_proof = bool(card.traits) and all(proof.only_clears(trait) for trait in card.traits)
    if not only_proof or not is_taken(card) or not _can(desk, "validate"):
        return replace(incident, due_ms=None)
    if desk.now_ms < incident.not_before_ms:
        return replace(incident, due_ms=incident.not_before_ms)
    incident = replace(incident, not_before_ms=desk.now_ms + _TEST_AGAIN_MS)
    step = Step(incident, card, Rung("validate"), issuing.command_id_of(incident, card.node, "validate"))
    if obstacle(desk, step) is not None:
        return replace(incident, due_ms=incident.not_before_ms)
    return replace(_issued_in_earnest(desk, step), waits=incident.waits)


# --- what became of a step -----------------------------------------------------------------------------


def followed(desk: Desk, incident: IncidentCard, command: CommandCard) -> IncidentCard:
    """Return the incident after a command of it has ended; it is not advanced yet."""
    incident = replace(incident, due_ms=None)
    if command.state == "succeeded":
        return _succeeded(desk, incident, command)
    if command.action == "return_to_service":
        pause_ms = _RETURN_AFTER_MS[min(incident.tries, len(_RETURN_AFTER_MS) - 1)]
        return replace(incident, not_before_ms=desk.now_ms + pause_ms)
    if incident.stage == "verifying" and command.action not in HARMLESS:
        return _unproven(desk, incident, command)
    rung = _rung_of(desk, incident, command)
    if rung is None:
        return incident
    if command.state == "refused" and command.reason.startswith(UNSUPPORTED):
        return _next(incident)
    return replace(incident, not_before_ms=desk.now_ms + rung.cooldown_ms if incident.tries < rung.attempts else 0)


def undone(desk: Desk, incident: IncidentCard) -> IncidentCard:
    """Return the incident of a node that a late step of ours has put back: what kept work away is to be done again."""
    ladder = desk.policy.ladders.get(incident.ladder, ())
    passed = (*incident.done, *(rung.action for rung in ladder[: incident.at]))
    done = tuple(dict.fromkeys(action for action in passed if action not in _UNDONE))
    return replace(
        incident, stage="climbing", at=0, tries=0, done=done, not_before_ms=0, waits=None, waits_ms=0, due_ms=None
    )


def _rung_of(desk: Desk, incident: IncidentCard, command: CommandCard) -> Rung | None:
    """Return the rung that the command was a step of; None: the incident is elsewhere by now."""
    ladder = desk.policy.ladders.get(incident.ladder, ())
    rung = ladder[incident.at] if incident.at < len(ladder) else None
    return rung if rung is not None and rung.action == command.action else None


def _succeeded(desk: Desk, incident: IncidentCard, command: CommandCard) -> IncidentCard:
    action = command.action
    if action == "return_to_service":
        return close(desk, incident, _how(incident))
    if action in REPAIRS:
        proven = action == "validate"
        proof.cured(desk, command)
        if proven and incident.stage == "verifying":
            return replace(incident, proven=True, tries=0)
        return replace(
            incident,
            stage="verifying",
            acted_ms=desk.now_ms,
            proven=proven,
            tries=0,
            repaired_by=incident.repaired_by if proven else action,
        )
    done = incident.done if action in incident.done else (*incident.done, action)
    incident = replace(incident, done=done)
    return incident if _rung_of(desk, incident, command) is None else _next(incident)


def _how(incident: IncidentCard) -> str:
    repaired = incident.repaired_by
    return "it cleared by itself" if repaired is None else f"repaired by {repaired}, verified by fresh reports"


def _unproven(desk: Desk, incident: IncidentCard, command: CommandCard) -> IncidentCard:
    """Return the incident after a validation that did not pass: a failed one is bad, one that did not run is tried."""
    if command.state == "failed":
        proof.doubted(desk, incident, command)
        return _up_again(desk, incident)
    if command.reason.startswith(UNSUPPORTED) or incident.tries >= _PROOFS:
        return replace(incident, proven=True)
    return replace(incident, not_before_ms=desk.now_ms + MINUTE_MS)


def _up_again(desk: Desk, incident: IncidentCard) -> IncidentCard:
    """Return the incident on its way up again, beyond the repair that did not help; a node that is back is taken."""
    ladder = desk.policy.ladders.get(incident.ladder, ())
    tried = bool(incident.acted_ms) and incident.at < len(ladder) and ladder[incident.at].action in REPAIRS
    again = replace(incident, stage="climbing", proven=False, acted_ms=0, cleared_ms=None)
    further = _next(again) if tried else again
    return further if not incident.node or is_taken(desk.node(incident.node)) else undone(desk, further)


# --- verified, and back --------------------------------------------------------------------------------


def _verify(desk: Desk, incident: IncidentCard, card: NodeCard) -> tuple[IncidentCard, bool]:
    by_ms, still_bad = _shows_by_ms(desk, incident, card), is_bad(desk, incident, card)
    if still_bad and desk.now_ms >= by_ms:
        return _up_again(desk, incident), True
    if still_bad or not proof.is_fresh(desk, incident, card):
        due_ms = by_ms if by_ms > desk.now_ms else desk.now_ms + _LOOK_AGAIN_MS
        return replace(incident, due_ms=due_ms, waits="fresh reports after the repair"), False
    stable_ms = max(incident.cleared_ms or 0, incident.acted_ms) + desk.policy.verification.stable_ms
    if desk.now_ms < max(stable_ms, incident.not_before_ms):
        return replace(incident, due_ms=max(stable_ms, incident.not_before_ms), waits=None), False
    if _needs_proof(desk, incident, card):
        return _prove(desk, incident, card)
    return replace(incident, stage="returning", tries=0, waits=None, not_before_ms=0), True


def _shows_by_ms(desk: Desk, incident: IncidentCard, card: NodeCard) -> int:
    """Return by when a repair must show in reports; what nobody repaired has nothing to show."""
    if not incident.acted_ms:
        return 0
    interval_ms = 0 if card.facts is None else card.facts.interval_ms
    return incident.acted_ms + max(desk.policy.verification.within_ms, _REPORTS * interval_ms + MINUTE_MS)


def _needs_proof(desk: Desk, incident: IncidentCard, card: NodeCard) -> bool:
    route = _route_of(desk, incident)
    return _can(desk, "validate") and not incident.proven and is_taken(card) and (route is None or route.validate)


def _can(desk: Desk, action: Action) -> bool:
    executable = desk.policy.executable
    return executable is None or action in executable


def _route_of(desk: Desk, incident: IncidentCard) -> Route | None:
    return desk.policy.named(incident.route)


def _prove(desk: Desk, incident: IncidentCard, card: NodeCard) -> tuple[IncidentCard, bool]:
    if incident.tries >= _PROOFS:
        return replace(incident, proven=True), True
    step = Step(incident, card, Rung("validate"), issuing.command_id_of(incident, card.node, "validate"))
    why = obstacle(desk, step)
    if why is not None:
        return _held_back(desk, incident, why)
    return _issued_in_earnest(desk, step), False


def _issued_in_earnest(desk: Desk, step: Step) -> IncidentCard:
    """Return the incident with a step back issued: a shadow's node was taken in earnest too, by what was before."""
    live = replace(step, incident=replace(step.incident, mode="live"))
    return replace(issuing.issue(desk, live), mode=step.incident.mode, waits=None, due_ms=None)


def _give_back(desk: Desk, incident: IncidentCard, card: NodeCard) -> tuple[IncidentCard, bool]:
    if not is_taken(card):
        return close(desk, incident, _how(incident)), False
    step = Step(incident, card, _BACK, issuing.command_id_of(incident, card.node, _BACK.action))
    route = _route_of(desk, incident)
    if route is not None and route.returns_by == "person" and not _is_released(desk, step):
        return _held_back(desk, incident, f"a person: faultlens release --node {card.node}")
    if not _can(desk, _BACK.action):
        return _held_back(desk, incident, f"a person: nobody here can put {card.node} back (the policy's executable)")
    if desk.now_ms < incident.not_before_ms:
        return replace(incident, due_ms=incident.not_before_ms), False
    why = obstacle(desk, step)
    if why is not None:
        return _held_back(desk, incident, why)
    return _issued_in_earnest(desk, step), False


def _is_released(desk: Desk, step: Step) -> bool:
    word = controls.said(desk.own(), "hold", step.aim, desk.now_ms)
    return word is None and any(
        c.control.verb == "release"
        and c.since_ms >= step.incident.first_ms
        and step.aim.node in (c.control.scope.nodes or ())
        for c in desk.own().controls
    )


def _held_back(desk: Desk, incident: IncidentCard, why: str) -> tuple[IncidentCard, bool]:
    _queue(desk, incident)
    since_ms = incident.waits_ms or desk.now_ms
    return replace(incident, waits=why, waits_ms=since_ms, due_ms=desk.now_ms + _LOOK_AGAIN_MS), False
