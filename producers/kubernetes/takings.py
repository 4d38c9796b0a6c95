"""What our own commands take work away from, and when: evictions from there are ours, and are told as such."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from faultlens.clock import HOUR_MS, SECOND_MS, ms_of
from faultlens.kubernetes_marks import COMMAND, DRAIN, MANAGER, OUT_TAINT
from producers.kubernetes.device_objects import TaintRule
from producers.kubernetes.model import Attempt, Worker
from producers.kubernetes.objects import Node, held_by
from producers.kubernetes.runs import Ending
from producers.kubernetes.words import load_words

# The server writes times in whole seconds, and each of its parts by its own clock.
_SLACK_MS: Final = 2 * SECOND_MS
# So long an end may be told after what it ended by was over: watches come up to the present one by one.
KEPT_MS: Final = 24 * HOUR_MS


class Taking(Struct, frozen=True):
    """A command that took work away from a node or device from `from_ms` on; `to_ms` None: it still does.

    `uid`: of the object that says so.
    """

    command_id: str
    uid: str
    from_ms: int
    to_ms: int | None = None

    def is_past(self, now_ms: int) -> bool:
        """Return whether it is over for so long that no end by it is told any more."""
        return self.to_ms is not None and now_ms - self.to_ms > KEPT_MS


def by_drain(node: Node, known: Taking | None, now_ms: int) -> Taking | None:
    """Return what empties the node, or did last; `known`: what is remembered of it."""
    command_id = (node.metadata.annotations or {}).get(DRAIN) if node.spec.unschedulable else None
    held = held_by(node.metadata, DRAIN.encode(), MANAGER)
    since_ms = ms_of(held.time) if held is not None and held.time is not None else now_ms
    return _next(known, command_id, node.metadata.uid, since_ms) or over(known, now_ms)


def by_rule(rule: TaintRule, known: Taking | None, now_ms: int) -> Taking | None:
    """Return what a rule of ours takes its device's work away by, or did last."""
    taint = rule.spec.taint
    is_ours = taint.key == OUT_TAINT and taint.effect == "NoExecute"
    command_id = (rule.metadata.annotations or {}).get(COMMAND) if is_ours else None
    since_ms = rule.metadata.created_ms or now_ms
    return _next(known, command_id, rule.metadata.uid, since_ms) or over(known, now_ms)


def over(known: Taking | None, now_ms: int) -> Taking | None:
    """Return what is remembered once nothing is taken any more."""
    return known if known is None or known.to_ms is not None else replace(known, to_ms=now_ms)


def _next(known: Taking | None, command_id: str | None, uid: str, since_ms: int) -> Taking | None:
    if command_id is None:
        return None
    is_known = known is not None and (known.command_id, known.to_ms) == (command_id, None)
    return known if is_known else Taking(command_id, uid, since_ms)


def behind(attempt: Attempt, ending: Ending, takings: Mapping[str, Taking]) -> str | None:
    """Return our command that ended an attempt; None: none did. `takings`: by `node NAME` and `device REF`.

    It is the first of the attempt's workers to fail that says how the attempt ended.
    """
    word = load_words().ends.get(ending.reason or "")
    if word is None or word.taken is None:
        return None
    failed = [(w.ending.at_ms, w) for w in attempt.workers.values() if w.ending is not None and w.ending.failed]
    if not failed:
        return None
    at_ms, worker = min(failed, key=lambda entry: entry[0])
    found = (takings.get(name) for name in _names(worker, word.taken))
    return next((taking.command_id for taking in found if taking is not None and _reaches(taking, at_ms)), None)


def _names(worker: Worker, of: str) -> list[str]:
    return [f"node {worker.run.node}"] if of == "node" else [f"device {ref}" for ref in worker.run.refs or ()]


def _reaches(taking: Taking, at_ms: int) -> bool:
    return taking.from_ms - _SLACK_MS <= at_ms and (taking.to_ms is None or at_ms <= taking.to_ms + _SLACK_MS)
