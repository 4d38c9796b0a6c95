"""What the driver says that a GPU needs (Xid 154): it overrides the catalogue near it, and is a reason itself."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from faultlens.causes import class_of
from faultlens.events import Action, DeviceRef
from faultlens.internal import Announced, NodeFacts
from streams.node_health.judging import device_key
from streams.remediation.policy import is_of_accelerator
from streams.remediation.record import STEPS_MAX, NodeCard, NodeStep, Trait

# How long the driver's announcement holds for the faults near it (NVIDIA's Xid catalogue, Xid 154).
ANNOUNCED_FOR_MS: Final = 30_000
FAULT: Final = "xid:154"
_CAUSE: Final = "gpu.unknown"
# A GPU that cannot be used before it is reset: as bad as one whose work has stopped, and no sign that data was lost.
SEVERITY: Final = 60
_WHOLE_NODE: Final = frozenset({"reboot", "power_cycle", "replace"})


def calls_for(hint: str) -> bool:
    """Return whether what was announced is a step: the driver says `none` when the GPU has recovered."""
    return hint not in ("", "none")


def noted(card: NodeCard, word: Announced) -> NodeCard:
    """Return the card with the newest step that is announced for the device; the oldest of too many are dropped."""
    key = device_key(word.device)
    known = next((step for step in card.steps if device_key(step.device) == key), None)
    if known is not None and known.at_ms > word.at_ms:
        return card
    others = tuple(step for step in card.steps if step is not known)
    return replace(card, steps=(*others, NodeStep(word.hint, word.at_ms, word.device))[-STEPS_MAX:])


def announced_for(card: NodeCard, trait: Trait) -> str | None:
    """Return the last step that the driver announced near a fault, which overrides the catalogue; None: it did not."""
    near = [step for step in card.steps if is_near(trait, step.device, step.at_ms)]
    return max(near, key=lambda step: step.at_ms).hint if near else None


def is_near(trait: Trait, device: DeviceRef | None, at_ms: int) -> bool:
    """Return whether what was announced for the device at that time is about this fault."""
    of_gpu = trait.origin in ("condition", "announced") and is_of_accelerator(trait.cause)
    return of_gpu and abs(trait.since_ms - at_ms) <= ANNOUNCED_FOR_MS and _may_be_one(trait.device, device)


def _may_be_one(one: DeviceRef | None, other: DeviceRef | None) -> bool:
    """Return whether two names may be of one device: they are told apart only by what both of them say."""
    if one is None or other is None:
        return True
    said = ((one.index, other.index), (one.uuid, other.uuid), (one.pci, other.pci), (one.serial, other.serial))
    return next((mine == theirs for mine, theirs in said if mine is not None and theirs is not None), True)


def explained_by(card: NodeCard, word: Announced) -> tuple[Trait, ...]:
    """Return the faults that the announcement is about; what only wears out asks for nothing by itself."""
    near = (trait for trait in card.traits if is_near(trait, word.device, word.at_ms))
    return tuple(trait for trait in near if trait.origin == "condition" and trait.role != "trend")


def trait_of(card: NodeCard, word: Announced) -> Trait:
    """Return the announcement as a fault of its own, in trouble since the device was first said to need something."""
    key = _key(word.device)
    since_ms = min([word.at_ms, *(trait.since_ms for trait in card.traits if trait.key == key)])
    return Trait(
        id=word.evidence or key,
        key=key,
        fault=FAULT,
        cause=_CAUSE,
        cause_class=class_of(_CAUSE),
        role="root",
        severity=SEVERITY,
        since_ms=since_ms,
        evidence=word.evidence or key,
        hint=word.hint,
        origin="announced",
        rule=word.step,
        device=word.device,
    )


def _key(device: DeviceRef | None) -> str:
    return f"{FAULT}:{device_key(device)}"


def without_echoes(card: NodeCard, trait: Trait) -> tuple[Trait, ...]:
    """Return the node's faults as they are when this one opens: an announcement near it is about it."""
    if trait.origin != "condition" or trait.role == "trend":
        return card.traits
    return tuple(
        known
        for known in card.traits
        if known.origin != "announced" or not is_near(trait, known.device, known.since_ms)
    )


def is_taken_back(trait: Trait, word: Announced) -> bool:
    """Return whether it is an earlier announcement for the device, which now says that it needs nothing any more."""
    return trait.origin == "announced" and trait.key == _key(word.device) and trait.since_ms <= word.at_ms


def over_by_boot(card: NodeCard, facts: NodeFacts) -> tuple[str, ...]:
    """Return the keys of announcements that a restart of the node has taken back."""
    before = None if card.facts is None else card.facts.boot_id
    if before is None or facts.boot_id in (None, before):
        return ()
    return tuple(trait.key for trait in card.traits if trait.origin == "announced")


def is_met(trait: Trait, action: Action, device: DeviceRef | None) -> bool:
    """Return whether an action that succeeded is the step that was announced, or a stronger one."""
    if trait.origin != "announced":
        return False
    if action == "reset_device":
        return trait.hint == action and _may_be_one(trait.device, device)
    return action in _WHOLE_NODE or action == trait.hint
