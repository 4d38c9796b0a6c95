"""What a machine and a GPU had before: it follows the hardware, whatever the node is called that it is in now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from faultlens.events import DeviceRef
from faultlens.internal import NodeFacts
from streams.remediation.desk import Desk
from streams.remediation.record import REPAIRS_MAX, IncidentCard, Machine, NodeCard, Repair

_FEWER: Final = 2  # more than one half of a machine's GPUs are the machine


def family_of(cause: str) -> str:
    """Return the part of a cause by which troubles are the same: its first two words."""
    return ".".join(cause.split(".")[:2])


def earlier_repairs(desk: Desk, incident: IncidentCard, card: NodeCard) -> list[Repair]:
    """Return the repairs of the same trouble on this machine or GPU within the history, the latest last."""
    found = [r for r in _records(desk, incident, card) if r.by is not None and _is_the_same(r, incident)]
    return sorted(found, key=lambda repair: repair.at_ms)


def _is_the_same(repair: Repair, incident: IncidentCard) -> bool:
    """Return whether it was the same trouble: a code that comes back after a restart may be charged otherwise."""
    return family_of(repair.cause) == family_of(incident.cause) or repair.fault in incident.faults


def earlier_incidents(desk: Desk, incident: IncidentCard, card: NodeCard) -> int:
    """Return how many incidents machine and GPU had within the history that cost a job or took a repair."""
    return sum(repair.harmed or repair.by is not None for repair in _records(desk, incident, card))


def earlier_times(desk: Desk, incident: IncidentCard, card: NodeCard) -> int:
    """Return how often the same trouble came to this machine or GPU and went again within a day, repaired or not."""
    since_ms = desk.now_ms - desk.policy.verification.probation_ms
    found = (repair for repair in _records(desk, incident, card) if repair.at_ms >= since_ms)
    return sum(family_of(repair.cause) == family_of(incident.cause) for repair in found)


# --- whose record it is --------------------------------------------------------------------------------


def _records(desk: Desk, incident: IncidentCard, card: NodeCard) -> list[Repair]:
    """Return what the node's machine and the incident's GPU had within the history, each once."""
    since_ms = desk.now_ms - desk.policy.verification.history_ms
    gpus = () if card.facts is None else card.facts.gpus
    found: dict[tuple[int, str, str], Repair] = {}
    for name in _machines(desk, card):
        # What a GPU had that is somewhere else by now went with it.
        own = [r for r in desk.machine(name).repairs if not (r.device and gpus and r.device not in gpus)]
        _add(found, own)
    for name in _device_names(incident.device):
        _add(found, desk.machine(name).repairs)
    return [repair for repair in found.values() if repair.at_ms >= since_ms]


def _add(found: dict[tuple[int, str, str], Repair], repairs: tuple[Repair, ...] | list[Repair]) -> None:
    for repair in repairs:
        key = (repair.at_ms, repair.cause, repair.fault)
        found[key] = replace(repair, harmed=repair.harmed or (key in found and found[key].harmed))


def _machines(desk: Desk, card: NodeCard) -> list[str]:
    """Return the names that the node's machine has its record under: its own, and where most of its GPUs were before.

    Machines that say who they are are believed; what only has the same node name or GPUs is told apart by its GPUs.
    """
    own, facts = _machine_of(card), card.facts
    if facts is None or not facts.gpus:
        return [own]
    names = [own] if facts.host_id is not None or not _is_another(desk.machine(own), facts) else []
    former = _where_most_were(desk, facts)
    if former not in (None, own) and not (facts.host_id is not None and desk.machine(former or "").identified):
        names.append(former or "")
    return names


def _machine_of(card: NodeCard) -> str:
    facts = card.facts
    return f"machine/{card.node if facts is None or facts.host_id is None else facts.host_id}"


def _is_another(machine: Machine, facts: NodeFacts) -> bool:
    """Return whether the record is of other hardware that had the node's name before."""
    return bool(machine.gpus) and _FEWER * len(set(machine.gpus) & set(facts.gpus)) <= len(facts.gpus)


def _where_most_were(desk: Desk, facts: NodeFacts) -> str | None:
    """Return the machine in which more than half of the node's GPUs were when it was last in trouble."""
    return most_of([where for gpu in facts.gpus if (where := desk.machine(f"device/{gpu}").inside)], len(facts.gpus))


def most_of(names: Sequence[str], total: int) -> str | None:
    """Return the name that stands for more than half of a total; None: none does."""
    name, count = Counter(names).most_common(1)[0] if names else (None, 0)
    return name if _FEWER * count > total else None


def _device_names(device: DeviceRef | None) -> list[str]:
    """Return the names that a GPU has its record under: whichever of them a later report says."""
    return [] if device is None else [f"device/{name}" for name in (device.uuid, device.serial) if name is not None]


# --- what is remembered --------------------------------------------------------------------------------


def remember(desk: Desk, incident: IncidentCard, card: NodeCard) -> None:
    """Note an incident that is over with the machine and with the GPU that it was about."""
    names = _device_names(incident.device)
    repair = Repair(
        incident.cause,
        desk.now_ms,
        incident.repaired_by,
        incident.faults[0] if incident.faults else "",
        harmed=bool(incident.harmed),
        device=_in_this_machine(incident.device, card),
    )
    for name in names:
        desk.put(_with(desk, desk.machine(name), repair))
    _with_machine(desk, card, repair)


def _in_this_machine(device: DeviceRef | None, card: NodeCard) -> str:
    """Return the GPU by the name that the machine's inventory has it by; empty: it has none of it."""
    gpus = () if card.facts is None else card.facts.gpus
    names = () if device is None else (device.uuid, device.serial)
    return next((name for name in names if name is not None and name in gpus), "")


def _with_machine(desk: Desk, card: NodeCard, repair: Repair) -> None:
    own, facts = _machine_of(card), card.facts
    machine = desk.machine(own)
    if facts is not None and facts.gpus:
        # From here on its GPUs are known to be under this name: what the machine had under the former one comes along.
        found: dict[tuple[int, str, str], Repair] = {}
        for name in _machines(desk, card):
            _add(found, desk.machine(name).repairs)
        repairs = tuple(sorted(found.values(), key=lambda known: known.at_ms))
        machine = Machine(desk.cluster, own, repairs, facts.gpus, identified=facts.host_id is not None)
        for gpu in facts.gpus:
            desk.put(replace(desk.machine(f"device/{gpu}"), inside=own, seen_ms=desk.now_ms))
    desk.put(_with(desk, machine, repair))


def _with(desk: Desk, machine: Machine, repair: Repair) -> Machine:
    since_ms = desk.now_ms - desk.policy.verification.history_ms
    kept = [known for known in machine.repairs if known.at_ms >= since_ms]
    return replace(machine, repairs=(*kept, repair)[-REPAIRS_MAX:])


def cost_a_job(desk: Desk, card: NodeCard) -> None:
    """Note with the machine's last incident that a job was lost to it, which was settled only after its end."""
    machine = desk.machine(_machine_of(card))
    if not machine.repairs:
        return
    last = machine.repairs[-1]
    names = [machine.name, *([f"device/{last.device}"] if last.device else [])]
    for known in map(desk.machine, names):
        noted = tuple(replace(r, harmed=True) if r.at_ms == last.at_ms else r for r in known.repairs)
        desk.put(replace(known, repairs=noted))
