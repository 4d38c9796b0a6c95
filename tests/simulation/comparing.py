"""Whether lanes that were played a recording have said what its replay says: verdicts, books, objectives, remedies."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

from msgspec.structs import replace

from faultlens import topics
from faultlens.clock import moment_of
from faultlens.codec import Event
from faultlens.events import Cause, Incident, JobAttributed, JobTime, RemediationCommand, SloStatus

COMPARED: Final = (
    topics.ATTRIBUTIONS,
    topics.GOODPUT,
    topics.NODE_STATES,
    topics.FINDINGS,
    topics.SLO_STATUS,
    topics.DEAD_LETTERS,
    topics.INCIDENTS,
    topics.REMEDIATION_COMMANDS,
)
# An incident waits for others where nodes compete for what a scope may have out at a time, or few are heard at all.
_FOR_OTHERS: Final = ("cap of", "only ")
_OF_MANY: Final = frozenset({"common_cause", "black_hole"})
# Rules whose words say how many others failed, as far as that was known when the verdict became final.
_COUNTING: Final = frozenset({"black_hole_node", "different_users_fail_here"})
_NUMBER: Final = re.compile(r"\d+ (?=starts|users|jobs|failures)")
Attempt = tuple[str, int, int]
Piece = tuple[Any, ...]
# What was written to each of the topics above.
Written = Mapping[str, Sequence[Event]]


def assert_the_same(live: Written, replayed: Written) -> None:
    """Fail unless live is what the replay is: nothing lost, nothing twice, and the same decisions and figures."""
    for topic in COMPARED:
        twice = {event_id: n for event_id, n in Counter(event.id for event in live[topic]).items() if n > 1}
        assert twice == {}, f"{topic}: written twice"
    verdicts, expected = lasting(live[topics.ATTRIBUTIONS]), lasting(replayed[topics.ATTRIBUTIONS])
    finals = {key: sum(verdict.status == "final" for verdict in told) for key, told in verdicts.items()}
    assert {key: count for key, count in finals.items() if count != 1} == {}, "failures without one final verdict"
    assert sorted(verdicts) == sorted(expected), "failures without a final verdict"
    _assert_equal(verdicts, expected, "verdicts")
    _assert_equal(books(live[topics.GOODPUT]), books(replayed[topics.GOODPUT]), "books")
    _assert_equal(standings(live[topics.SLO_STATUS]), standings(replayed[topics.SLO_STATUS]), "objectives")
    _assert_same_remedies(live, replayed)
    for topic in (topics.NODE_STATES, topics.FINDINGS, topics.DEAD_LETTERS):
        assert _said(live[topic]) == _said(replayed[topic]), topic


def _assert_equal(live: Mapping[Any, Any], replayed: Mapping[Any, Any], what: str) -> None:
    keys = [key for key in {**live, **replayed} if live.get(key) != replayed.get(key)]
    other = "\n".join(f"{key}\n  live     {live.get(key)}\n  replayed {replayed.get(key)}" for key in keys)
    assert not keys, f"{what}:\n{other}"


def lasting(events: Iterable[Event]) -> dict[Attempt, list[JobAttributed]]:
    """Return the final and amended verdicts on each attempt and loss in order, without revision and others' numbers."""
    found: dict[Attempt, list[JobAttributed]] = defaultdict(list)
    verdicts = [event.data for event in events if isinstance(event.data, JobAttributed)]
    for data in sorted(verdicts, key=lambda data: data.revision):
        if data.status in ("final", "amended"):
            found[data.job_id, data.attempt, data.loss or 0].append(_uncounted(replace(data, revision=0)))
    return found


def _uncounted(data: JobAttributed) -> JobAttributed:
    if data.rule not in _COUNTING:
        return data
    evidence = tuple(replace(item, what=_NUMBER.sub("", item.what)) for item in data.evidence)
    return replace(data, cause=_unnumbered(data.cause), evidence=evidence)


def _unnumbered(cause: Cause) -> Cause:
    return replace(cause, summary=_NUMBER.sub("", cause.summary))


def standings(events: Iterable[Event]) -> dict[tuple[str, str], SloStatus]:
    """Return where each objective stood last in each scope."""
    found: dict[tuple[str, str], SloStatus] = {}
    for event in sorted(events, key=lambda event: event.time_ms):
        assert isinstance(event.data, SloStatus)
        found[event.data.objective, repr(event.data.scope)] = event.data
    return found


def _assert_same_remedies(live: Written, replayed: Written) -> None:
    """Fail unless the incidents and commands are the same, but for what rests on who was heard first within a step.

    Caps let the first through, and what many nodes share begins with the first of them. The one lane that decides this
    hears what happened in a minute of a recording after it, node by node, and so in another order than a replay does.
    """
    open_to_chance = contested(live[topics.INCIDENTS]) | contested(replayed[topics.INCIDENTS])
    for told, what in ((incidents, "incidents"), (commands, "commands")):
        mine, others = told(live, open_to_chance), told(replayed, open_to_chance)
        _assert_equal(mine, others, what)


def contested(events: Iterable[Event]) -> set[str]:
    """Return the incidents that waited for others, are about what many share, or about what was said of many jobs.

    And those that are what was left of such a one when it closed: it lasts as long as the node with which it began.
    """
    told = [(event.time_ms, event.data) for event in events if isinstance(event.data, Incident)]
    closed = {(at_ms, node) for at_ms, data in told if _left_over(data) for node in data.scope.nodes}
    return {
        data.incident_id
        for at_ms, data in told
        if (data.waits_for or "").startswith(_FOR_OTHERS)
        or (data.closed_because or "").startswith("part of")
        or data.rule in _OF_MANY
        or (data.phase == "opened" and any((at_ms, node) in closed for node in data.scope.nodes))
    }


def _left_over(data: Incident) -> bool:
    return data.rule in _OF_MANY and (data.closed_because or "").startswith("only ")


def incidents(written: Written, without: AbstractSet[str] = frozenset()) -> dict[str, Incident]:
    """Return how each incident stood in the end, by its id.

    What it waits for is what stood in its way when it was looked at last, and when that is lies within a step: only
    whether it waits is kept.
    """
    told = [event.data for event in written[topics.INCIDENTS] if isinstance(event.data, Incident)]
    return {
        data.incident_id: replace(
            data, phase="closed" if data.phase == "closed" else "changed", waits_for=data.waits_for and "something"
        )
        for data in told
        if data.incident_id not in without
    }


def commands(written: Written, without: AbstractSet[str] = frozenset()) -> dict[str, RemediationCommand]:
    """Return what was asked for, by its id, without when: what happens within a step is heard at the end of it."""
    told = [event.data for event in written[topics.REMEDIATION_COMMANDS] if isinstance(event.data, RemediationCommand)]
    never = moment_of(0)
    return {
        data.command_id: replace(data, issued_at=never, expires_at=never, finish_by=never)
        for data in told
        if data.reason.incident_id not in without
    }


def books(events: Iterable[Event]) -> dict[tuple[str, int], list[Piece]]:
    """Return what every attempt's time went into in the end: later records replace what earlier ones said of it.

    A piece without GPUs only takes back what was said of its time.
    """
    found: dict[tuple[str, int], list[Piece]] = defaultdict(list)
    records = [event.data for event in events if isinstance(event.data, JobTime)]
    for data in sorted(records, key=lambda data: data.revision):
        key = data.job_id, data.attempt
        new = (data.start, data.stop, data.category, repr(data.cause), data.gpus)
        found[key] = [piece for old in found[key] for piece in _outside(old, new)] + ([new] if data.gpus else [])
    return {key: _joined(sorted(pieces)) for key, pieces in found.items()}


def _outside(old: Piece, new: Piece) -> list[Piece]:
    """Return what is left of a piece that another one may cover."""
    begin, end = old[0], old[1]
    if new[1] <= begin or new[0] >= end:
        return [old]
    left = [(begin, new[0], *old[2:])] if begin < new[0] else []
    return left + ([(new[1], end, *old[2:])] if new[1] < end else [])


def _joined(pieces: list[Piece]) -> list[Piece]:
    joined: list[Piece] = []
    for piece in pieces:
        if joined and joined[-1][1] == piece[0] and joined[-1][2:] == piece[2:]:
            joined[-1] = (joined[-1][0], *piece[1:])
        else:
            joined.append(piece)
    return joined


def _said(events: Iterable[Event]) -> list[str]:
    return sorted(repr(event.data) for event in events)
