"""Commands: issued once with an id that follows from what they are about, and followed until they have ended."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from faultlens.clock import moment_of
from faultlens.codec import stable_id, uuid5
from faultlens.events import Action, CommandReason, DeviceRef, RemediationCommand, RemediationResult
from faultlens.internal import Tended
from faultlens.topics import REMEDIATION_RESULTS
from streams.remediation import fleet
from streams.remediation.desk import Desk
from streams.remediation.gates import Step
from streams.remediation.policy import TAKING
from streams.remediation.record import (
    COMMANDS_MAX,
    EXCLUDED_MAX,
    CommandCard,
    IncidentCard,
    NodeCard,
    Taking,
)

_US: Final = "faultlens"
# Device and nothing else is what these act on.
_ON_A_DEVICE: Final = frozenset({"reset_device", "exclude_device"})
# What a device is noted as that is told apart by something else.
_UNNUMBERED: Final = -1
# An actuator that may have begun before it went silent has perhaps done it.
_UNCERTAIN: Final = frozenset({"failed", "expired"})


def command_id_of(incident: IncidentCard, target: str, action: Action) -> str:
    """Return the id of the incident's next command (contract: cluster, incident, target, action and rung)."""
    return uuid5(f"faultlens/{incident.cluster}/{incident.id}/{target}/{action}/{incident.issued}")


def issue(desk: Desk, step: Step) -> IncidentCard:
    """Issue the step's command and return the incident with it open; the node is counted as about to be taken."""
    incident, action, shadow = step.incident, step.action, step.incident.mode == "shadow"
    timing = desk.policy.timings[action]
    expires_ms = desk.now_ms + timing.start_ms
    facts = step.card.facts
    command = CommandCard(
        cluster=incident.cluster,
        id=step.command_id,
        incident=incident.id,
        action=action,
        rung=incident.issued,
        issued_ms=desk.now_ms,
        expires_ms=expires_ms,
        finish_ms=expires_ms + timing.finish_ms,
        mode=incident.mode,
        node=step.card.node,
        job_id=incident.job_id,
        device=incident.device if action in _ON_A_DEVICE else None,
        boot_id=None if facts is None or not step.card.node else facts.boot_id,
    )
    if shadow:
        # Nobody carries it out, so nobody will say that it ended.
        command = replace(command, ended_ms=desk.now_ms, state="succeeded", actuator="shadow")
    desk.put(command)
    _publish(desk, incident, command)
    if step.card.node:
        taking = _taking(action, shadow=shadow)
        card = replace(step.card, command=None if shadow else command.id, taking=taking)
        fleet.keep(desk, card)
    return replace(
        incident,
        issued=incident.issued + 1,
        tries=incident.tries + 1,
        commands=(*incident.commands, command.id)[-COMMANDS_MAX:],
    )


def _taking(action: Action, *, shadow: bool) -> Taking:
    if shadow:
        return "shadow"
    return "node" if action in TAKING else "device" if action == "exclude_device" else ""


def _publish(desk: Desk, incident: IncidentCard, command: CommandCard) -> None:
    stopping = command.action == "terminate_job"
    data = RemediationCommand(
        command_id=command.id,
        cluster=command.cluster,
        action=command.action,
        rung=command.rung,
        reason=CommandReason(incident.faults, incident.id, incident.jobs),
        issued_at=moment_of(command.issued_ms),
        expires_at=moment_of(command.expires_ms),
        finish_by=moment_of(command.finish_ms),
        mode=command.mode,
        policy=f"{incident.policy} {incident.route}",
        node=command.node or None,
        job_id=command.job_id or None,
        device=command.device,
        boot_id=command.boot_id,
        exclude_nodes=incident.members if stopping and incident.members else None,
        replayed=desk.replayed,
    )
    desk.command(command.node or command.job_id, command.id, data)


# --- what became of it ---------------------------------------------------------------------------------


def heard(desk: Desk, command: CommandCard, result: RemediationResult) -> CommandCard:
    """Return the command after a word of its actuator that is not its end."""
    started_ms = command.started_ms or (desk.now_ms if result.state == "started" else 0)
    command = replace(
        command, accepted=True, started_ms=started_ms, heard_ms=desk.now_ms, actuator=result.actuator[:80]
    )
    desk.put(command)
    return command


def overdue(desk: Desk, command: CommandCard) -> CommandCard:
    """Return the command closed as expired, and say so where results are said (contract, results)."""
    why = "not ended in time" if command.started_ms else "not started in time"
    data = RemediationResult(
        command_id=command.id,
        cluster=command.cluster,
        state="expired",
        actuator=_US,
        at=moment_of(desk.now_ms),
        node=command.node or None,
        job_id=command.job_id or None,
        action=command.action,
        reason=why,
    )
    desk.send(REMEDIATION_RESULTS, command.cluster, stable_id(command.id, "expired"), data)
    return ended(desk, command, "expired", why)


def ended(desk: Desk, command: CommandCard, state: str, reason: str) -> CommandCard:
    """Return the command as it ended, with the node counted as that left it and its processor told."""
    command = replace(command, ended_ms=desk.now_ms, state=state, reason=reason[:200])
    desk.put(command)
    if command.node:
        card = desk.node(command.node)
        if card.command == command.id:
            card = replace(card, command=None, taking="")
        fleet.keep(desk, _left(card, command, desk.now_ms))
    return command


def late(desk: Desk, command: CommandCard, state: str) -> CommandCard:
    """Note what a result that comes after its command was closed says of the node; return the command as it says."""
    told = replace(command, state=state)
    if state == "succeeded" and command.node and command.mode == "live":
        fleet.keep(desk, _left(desk.node(command.node), told, desk.now_ms))
    return told


def _left(card: NodeCard, command: CommandCard, now_ms: int) -> NodeCard:
    """Return the node's card as the command's end leaves it: in doubt it is out."""
    action, state = command.action, command.state
    if action == "return_to_service" and state == "succeeded":
        return replace(card, taken=False, excluded=(), returned_ms=now_ms)
    is_done = state == "succeeded" or (state in _UNCERTAIN and bool(command.started_ms))
    if action == "exclude_device" and is_done:
        index = _UNNUMBERED if command.device is None or command.device.index is None else command.device.index
        return replace(card, excluded=tuple(dict.fromkeys((*card.excluded, index)))[:EXCLUDED_MAX])
    return replace(card, taken=True, taken_ms=now_ms) if action in TAKING and is_done else card


def tend(desk: Desk, command: CommandCard, watch_until_ms: int) -> None:
    """Tell the node's processor what was done there, and up to when we want to know of every report."""
    succeeded = command.state == "succeeded" and command.mode == "live"
    desk.tend(
        Tended(
            node=command.node,
            cluster=command.cluster,
            at_ms=desk.now_ms,
            watch_until_ms=watch_until_ms,
            done=command.action if succeeded else None,
            device=command.device,
            command_id=command.id,
            incident_id=command.incident,
        )
    )


def device_of(device: DeviceRef | None) -> DeviceRef | None:
    """Return what tells a device apart, without the link or partition of it that a fault was seen on."""
    if device is None or (device.index is None and device.uuid is None and device.pci is None):
        return None
    return DeviceRef(index=device.index, uuid=device.uuid, pci=device.pci, serial=device.serial, dra=device.dra)
