"""What people said: pauses, holds, approvals. The newest word that concerns something decides."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from faultlens.clock import ms_of
from faultlens.events import ControlScope, OperatorControl
from streams.remediation.record import CONTROLS_MAX, ClusterCard, Control

# Of two words of a pair the later one counts.
_PAIRS = {
    "pause": ("pause", "resume"),
    "hold": ("hold", "release"),
    "approve": ("approve", "deny"),
    "acknowledge": ("acknowledge",),
}


class Aim(Struct, frozen=True):
    """What a person's word may concern: a node, its pool, a route, a command."""

    node: str = ""
    pool: str | None = None
    route: str = ""
    command_id: str = ""


def noted(own: ClusterCard, control: OperatorControl, at_ms: int) -> ClusterCard:
    """Return the cluster's card with the word in force; of too many the least are dropped, and counted."""
    until_ms = None if control.expires_at is None else ms_of(control.expires_at)
    words = (*own.controls, Control(control, at_ms, until_ms))
    excess = max(0, len(words) - CONTROLS_MAX)
    least = set(sorted(range(len(words)), key=lambda at: (_weight(words, at), at))[:excess]) if excess else set()
    kept = tuple(word for at, word in enumerate(words) if at not in least)
    return replace(own, controls=kept, dropped=own.dropped + excess)


def _weight(words: tuple[Control, ...], at: int) -> int:
    """Return how much depends on a word: most on what stops something, nothing on what was taken back for good."""
    word = words[at]
    pair = next(pair for pair in _PAIRS.values() if word.control.verb in pair)
    later = (w for w in words[at + 1 :] if w.until_ms is None and w.control.scope == word.control.scope)
    if any(w.control.verb in pair for w in later):
        return 0
    return {"acknowledge": 1, "approve": 1, "hold": 3, "pause": 3}.get(word.control.verb, 2)


def lapsed(own: ClusterCard, now_ms: int) -> ClusterCard:
    """Return the card without the words that have expired."""
    return replace(own, controls=tuple(c for c in own.controls if c.until_ms is None or c.until_ms > now_ms))


def said(own: ClusterCard, verb: str, aim: Aim, now_ms: int) -> Control | None:
    """Return the word of this verb that is in force for the aim; None: none is, or a later one undid it."""
    for word in reversed(own.controls):
        if word.control.verb in _PAIRS[verb] and _in_force(word, now_ms) and _covers(word.control.scope, aim):
            return word if word.control.verb == verb else None
    return None


def denied(own: ClusterCard, aim: Aim, now_ms: int) -> Control | None:
    """Return the word that denies what is aimed at."""
    for word in reversed(own.controls):
        if word.control.verb in _PAIRS["approve"] and _in_force(word, now_ms) and _covers(word.control.scope, aim):
            return word if word.control.verb == "deny" else None
    return None


def _in_force(word: Control, now_ms: int) -> bool:
    return word.until_ms is None or word.until_ms > now_ms


def _covers(scope: ControlScope, aim: Aim) -> bool:
    """Return whether the scope names the aim in every way in which it names something; empty: everything."""
    wanted: Iterable[tuple[tuple[str, ...] | None, str | None]] = (
        (scope.nodes, aim.node),
        (scope.pools, aim.pool),
        (scope.routes, aim.route),
        (scope.command_ids, aim.command_id),
    )
    return all(not names or value in names for names, value in wanted)


def by_whom(word: Control) -> str:
    """Return who said it and why, for people."""
    return f"{word.control.by}: {word.control.reason}"
