"""Rules on what happened before: to the job elsewhere, and to others on the same device or node."""

from __future__ import annotations

from typing import Final

from faultlens.clock import DAY_MS, moment_of
from faultlens.events import EvidenceItem
from faultlens.internal import NodeAnswer, Observation
from streams.attribution.facts import Facts
from streams.attribution.roots import in_window, own_error, spoken, too_late
from streams.attribution.verdict import Finding

# A program breaks on all its devices alike; a device breaks alone.
_ALONE: Final = 1
# Programs with such errors are many: the same device within a day is a pattern, within a month it is chance.
_REPEATED_WITHIN_MS: Final = DAY_MS
_SAME_ENDS: Final = 3
_UNEXPLAINED_USERS: Final = 3
# So many people's programs do not break on one node alone by chance: then it is as sure as failed starts are.
_UNEXPLAINED_FOR_SURE: Final = 5
_ELSEWHERE: Final = frozenset({"assumed", "supported"})


def device_faults_under_several_users(facts: Facts) -> Finding | None:
    """A fault that is the program's by default, met by another user's job on the same device alone, is the device's."""
    mine = [o for o in facts.observations if o.role == "application" and in_window(facts, o) and not too_late(facts, o)]
    hit = {(o.node, o.device.index if o.device else None) for o in mine}
    if len(hit) != _ALONE:
        return None
    fault = min(mine, key=lambda o: (o.since_ms, o.id))
    if fault.cause_code in facts.brought:
        return None
    others = [
        u
        for u in facts.others
        if u.code == fault.code
        and u.user != facts.user
        and u.image != facts.image
        and fault.since_ms - u.at_ms <= _REPEATED_WITHIN_MS
    ]
    if not others:
        return None
    other = max(others, key=lambda u: u.at_ms)
    item = EvidenceItem(
        "context", fault.source, f"{other.job_id}-{other.code}", moment_of(other.at_ms),
        f"the same device did it to {other.job_id} of {other.user}",
    )  # fmt: skip
    return Finding(
        "gpu.compute.repeated_fault", "established",
        f"{fault.kind} {fault.code} on {fault.node}{_gpu(fault)} under different users and images",
        fault.node, fault.device, roots=(fault,), items=(item,),
    )  # fmt: skip


def _gpu(fault: Observation) -> str:
    index = fault.device.index if fault.device else None
    return "" if index is None else f" GPU {index}"


def same_failure_on_other_nodes(facts: Facts) -> Finding | None:
    """A job that fails the same way on different nodes, none of which shows a fault, is broken itself."""
    same = [e for e in facts.earlier if e.how == facts.how and e.how and e.basis in _ELSEWHERE]
    nodes = {frozenset(facts.held)} | {frozenset(e.nodes) for e in same}
    apart = all(not one & other for one in nodes for other in nodes if one is not other)
    if len(same) + 1 < _SAME_ENDS or len(nodes) < _SAME_ENDS or not apart:
        return None
    said = spoken(facts)
    code = said.cause_code if said.cause_code.startswith("app.") else "app.crash"
    return Finding(
        code, "supported", f"Failed the same way on {len(nodes)} different sets of nodes", advice="do_not_retry"
    )


def different_users_fail_here(facts: Facts) -> Finding | None:
    """A node on which several users' jobs end unexplained within hours, and none well, is suspect itself."""
    if own_error(spoken(facts)) or len(facts.held) != 1:
        return None
    for answer in facts.answers:
        if answer.failure_users + 1 >= _UNEXPLAINED_USERS and answer.starts == 0:
            return _suspected(answer)
    return None


def _suspected(answer: NodeAnswer) -> Finding:
    jobs, users = answer.failures + 1, answer.failure_users + 1
    what = f"{jobs} jobs of {users} users failed unexplained on {answer.node}"
    if users < _UNEXPLAINED_FOR_SURE:
        return Finding("host.lost", "supported", what, answer.node, advice="retry_elsewhere")
    item = EvidenceItem("root", f"agent/{answer.node}", f"{answer.node}-ends", moment_of(answer.up_to_ms), what)
    return Finding("host.lost", "established", what, answer.node, items=(item,), advice="retry_elsewhere")
