"""Rules on what people and our own commands did."""

from __future__ import annotations

from typing import Final

from faultlens.causes import title_of
from faultlens.clock import MINUTE_MS, moment_of
from faultlens.events import EvidenceItem, PlatformMaintenance
from faultlens.internal import Observation
from streams.attribution.facts import Facts
from streams.attribution.roots import (
    behind_our_command,
    decisive,
    first_exit,
    has_prefix,
    in_window,
    node_said_lost,
    own_error,
    rollout_behind,
    spoken,
)
from streams.attribution.verdict import Finding
from streams.context import Open

# A drain or reboot ends jobs within minutes of it; grace periods of half an hour are usual.
_ACT_REACH_MS: Final = 30 * MINUTE_MS
_TERMINATED: Final = frozenset({9, 15})


def labelled_by_a_person(facts: Facts) -> Finding | None:
    """A person's label on the true cause overrules everything; the label is the root evidence."""
    label = facts.label
    if label is None:
        return None
    what = f"labelled by {label.by}" + (f": {label.why}" if label.why else "")
    item = EvidenceItem("root", facts.label_source, facts.label_id, moment_of(facts.label_ms), what[:300])
    return Finding(
        label.code, "established", f"{title_of(label.code)} ({what})"[:300], label.node, label.device, items=(item,),
        said_class=label.cause_class,
    )  # fmt: skip


def ended_by_our_command(facts: Facts) -> Finding | None:
    """An end that our own command brought about is charged to the fault behind the command.

    Where the end does not name the command, it is one that reached the node within minutes, and no error of its own.
    """
    what = None if facts.end.command_id is None else f"ended by command {facts.end.command_id}"
    if what is None and not own_error(spoken(facts)):
        acts = (o for o in facts.observations if o.cause_code == "platform.remediation" and _reaches(facts, o))
        what = next((f"{act.node} was {act.meaning}" for act in acts), None)
    if what is None:
        return None
    item = EvidenceItem("context", facts.end.source, facts.end.id, moment_of(facts.end.at_ms), what)
    fault = behind_our_command(facts.observations, facts.end.at_ms)
    if fault is None:
        root = EvidenceItem("root", item.source, item.id, item.time, item.what)
        return Finding("platform.remediation", "established", "Ended by our own command", items=(root,))
    return Finding(
        fault.cause_code, "established", f"{fault.meaning} on {fault.node}, for which our command ended the job",
        fault.node, fault.device, roots=(fault,), items=(item,),
    )  # fmt: skip


def ended_by_maintenance(facts: Facts) -> Finding | None:
    """A job that a drain, reboot or maintenance of its node ended is charged to that, unless it failed by itself."""
    if own_error(spoken(facts)):
        return None
    acts = [o for o in facts.observations if o.code.startswith("act_") and _reaches(facts, o)]
    acts = [o for o in acts if not _broken_before(facts, o.since_ms)]
    if acts:
        act = min(acts, key=lambda o: (o.since_ms, o.id))
        return Finding(act.cause_code, "established", f"{act.node} was {act.meaning}", roots=(act,), advice="retry")
    running = [m for m in facts.maintenance if _covers_end(facts, m) and not _broken_before(facts, m.since_ms)]
    if running and _was_terminated(facts):
        return _maintained(facts, min(running, key=lambda m: m.since_ms))
    return None


def ended_by_rollout(facts: Facts) -> Finding | None:
    """A node of which the others say that it is gone, and which a roll-out restarted, was taken by that."""
    gone = spoken(facts).role == "cascade" or has_prefix(facts.end.said.cause_code, ("host.lost",))
    heard, lost = {e.node for e in facts.exits if e.said.line}, node_said_lost(facts)
    for restart in facts.observations if gone else ():
        rollout = rollout_behind(facts, restart)
        another = restart.node in heard or lost not in (None, restart.node)
        if rollout is None or another or not in_window(facts, restart):
            continue
        what = f"{restart.node} was restarted in roll-out {rollout.rollout_id} ({rollout.what} {rollout.version})"
        return Finding("platform.maintenance", "supported", what, roots=(restart,), advice="retry")
    return None


def _broken_before(facts: Facts, began_ms: int) -> bool:
    """Return whether a fault that ends jobs came first, or came to a job that was put there in spite of it."""
    in_spite = began_ms < (facts.allocated_ms or 0)
    return any(in_spite or o.since_ms < began_ms for o in decisive(facts) if o.cause_class != "platform")


def _reaches(facts: Facts, act: Observation) -> bool:
    ends_with_it = facts.end.at_ms - _ACT_REACH_MS <= act.since_ms <= facts.end.at_ms + MINUTE_MS
    return ends_with_it and act.since_ms <= facts.trouble_ms + MINUTE_MS


def _covers_end(facts: Facts, entry: Open[PlatformMaintenance]) -> bool:
    began = entry.since_ms <= facts.end.at_ms + MINUTE_MS
    return began and (entry.until_ms is None or entry.until_ms >= facts.trouble_ms)


def _was_terminated(facts: Facts) -> bool:
    first = first_exit(facts)
    ways = [(facts.end.signal, facts.end.exit_code)] + ([] if first is None else [(first.signal, first.exit_code)])
    killed = any((signal or (code or 0) - 128) in _TERMINATED for signal, code in ways)
    lost = any(o.code in ("silent", "rebooted") for o in facts.observations)
    return killed or lost or facts.end.said.cause_code.startswith("platform.maintenance")


def _maintained(facts: Facts, entry: Open[PlatformMaintenance]) -> Finding:
    name = entry.what.maintenance_id
    item = EvidenceItem("root", "scheduler/maintenance", name, moment_of(entry.since_ms), f"maintenance {name}")
    return Finding("platform.maintenance", "established", f"Ended by maintenance {name}", items=(item,), advice="retry")
