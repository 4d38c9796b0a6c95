"""What a person looked past who put a node back: it calls for nothing until it has cleared, or for a day."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from faultlens.clock import DAY_MS
from streams.remediation.policy import is_of_accelerator
from streams.remediation.record import MUTED_MAX, NodeCard, Trait

# A check that failed when a person put the node back does not call for anything before that (contract: 24 hours).
MUTED_FOR_MS: Final = DAY_MS


def put_back(card: NodeCard, at_ms: int, now_ms: int) -> NodeCard:
    """Return the node as a person put it back at `at_ms`: ours no more, and what is wrong with it looked past."""
    muted = {**card.muted, **{trait.key: now_ms + MUTED_FOR_MS for trait in card.traits}}
    newest = _newest({key: until for key, until in muted.items() if until > now_ms})
    parts = tuple(sorted({_part(trait) for trait in card.traits}))
    return replace(card, traits=(), muted=newest, taken=False, excluded=(), put_back_ms=at_ms, put_back_with=parts)


def is_looked_past(card: NodeCard, trait: Trait, now_ms: int) -> bool:
    """Return whether a fault is one that a person looked past.

    So is a check that the first report after that finds failing, where what was known to be wrong was of the same part
    of the machine: faults are told at once, and what a report says of them comes up to an interval later.
    """
    if card.muted.get(trait.key, 0) > now_ms:
        return True
    interval_ms = 0 if card.facts is None else card.facts.interval_ms
    is_first_report = trait.fault.startswith("check:") and 0 <= trait.since_ms - card.put_back_ms <= interval_ms
    return is_first_report and _part(trait) in card.put_back_with


def passed(card: NodeCard, trait: Trait, now_ms: int) -> NodeCard:
    """Return the node with a fault that is looked past noted as such, as long as what it was found with."""
    if card.muted.get(trait.key, 0) > now_ms:
        return card
    return replace(card, muted=_newest({**card.muted, trait.key: card.put_back_ms + MUTED_FOR_MS}))


def cleared(card: NodeCard, key: str, now_ms: int) -> NodeCard:
    """Return the node after a fault has cleared: it counts again, unless it was looked past at this very moment."""
    muted = {k: until for k, until in card.muted.items() if k != key or until - MUTED_FOR_MS == now_ms}
    return replace(card, muted=muted)


def _newest(muted: dict[str, int]) -> dict[str, int]:
    return dict(sorted(muted.items(), key=lambda entry: entry[1])[-MUTED_MAX:])


def _part(trait: Trait) -> str:
    """Return the part of a machine that a fault is of: a GPU that is gone makes its driver's tools hang too."""
    return "accelerator" if is_of_accelerator(trait.cause) else trait.cause.partition(".")[0]
