"""Rules on lost hosts, shared services and nodes that swallow jobs."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from faultlens.clock import MINUTE_MS, moment_of
from faultlens.events import EvidenceItem, PlatformIncident
from faultlens.internal import NodeAnswer, Observation
from streams.attribution.facts import Facts, Said
from streams.attribution.pointing import broke_first
from streams.attribution.roots import (
    UNCERTAIN,
    candidates,
    crashed_by_itself,
    first_exit_saying,
    has_prefix,
    in_window,
    node_in_words,
    node_named,
    node_said_lost,
    own_error,
    shares,
    spoken,
    too_late,
)
from streams.attribution.verdict import Finding
from streams.context import Open, covers

# Several users cannot all be wrong on one node within hours while each is right elsewhere.
_BLACK_HOLE_JOBS: Final = 3
_BLACK_HOLE_USERS: Final = 2
# An incident is often announced some minutes after it began to hurt.
_ANNOUNCED_LATE_MS: Final = 15 * MINUTE_MS
_CODE_OF_SERVICE: Final = {
    "registry": "platform.registry",
    "storage": "platform.storage",
    "network": "platform.network",
    "scheduler": "platform.scheduler",
    "control_plane": "platform.control_plane",
    "auth": "platform.auth",
    "power": "platform.power",
    "cooling": "platform.cooling",
    "other": "platform.control_plane",
}
# Which words a service's trouble can hide behind when the text does not name it.
_HIDES_BEHIND: Final = {
    "storage": ("app.hang", "app.data", "platform", "network"),
    "network": ("network", "platform", "app.hang", "app.exception"),
    "scheduler": ("platform", "app.crash"),
    "control_plane": ("platform", "app.crash"),
    "auth": ("platform",),
    "registry": ("platform",),
}
# Errors that a program names as its own and that are a shared service's while that is in trouble.
_ALSO_OF: Final = {"storage": ("app.data.disk_full",)}
# Roots in a text that a service which a node sees fail can be behind.
_SERVICE_WORDS: Final = ("platform", "host.lost", "app.data.disk_full", "app.hang")
# What the kernel prints when the whole node is short of memory; of a job's own limit it says `Memory cgroup`.
_OF_THE_NODE: Final = re.compile(r"(?i)^(?!.*memory cgroup).*out of memory|CONSTRAINT_NONE")
# Words of devices that stop, or take too long.
_OF_HEAT: Final = ("gpu", "driver", "app.cuda_error", "app.hang")
# What a flight recorder shows of the program itself: no service makes ranks call different collectives.
_NO_SERVICES: Final = ("app.hang.collective",)
_START_SERVICES: Final = frozenset({"registry"})
# What starts containers, and can make them fail in the runtime's words.
_START_CONTAINERS: Final = frozenset({"control_plane"})
_TERMINATED: Final = frozenset({9, 15})


def _incidents(facts: Facts) -> list[Open[PlatformIncident]]:
    """Return the incidents that touch the window, the earliest first."""
    found = [entry for entry in facts.incidents if _touches(facts, entry)]
    return sorted(found, key=lambda entry: (entry.since_ms, entry.what.incident_id))


def _touches(facts: Facts, entry: Open[PlatformIncident]) -> bool:
    if entry.since_ms > min(facts.closes_ms, facts.end.at_ms + _ANNOUNCED_LATE_MS):
        return False
    return entry.until_ms is None or entry.until_ms >= facts.opens_ms


def _lost(facts: Facts) -> list[Observation]:
    """Return the held nodes that were lost, unless the job's end surely began on another one: the scheduler names that
    as lost, a process crashed there by itself, or its GPU broke there first.
    """
    teller = first_exit_saying(facts)
    crashed_on = teller.node if teller is not None and crashed_by_itself(teller.said) else None
    elsewhere = node_said_lost(facts) or crashed_on or broke_first(facts)
    return [o for o in candidates(facts) if o.code in UNCERTAIN and elsewhere in (None, o.node)]


def _announced(entry: Open[PlatformIncident]) -> EvidenceItem:
    incident = entry.what
    what = f"{incident.service} incident {incident.incident_id}"
    if incident.message:
        what += f": {incident.message}"
    return EvidenceItem(
        "root", f"status/{incident.service}", incident.incident_id, moment_of(entry.since_ms), what[:300]
    )


def power_or_cooling_incident(facts: Facts) -> Finding | None:
    """Hosts that are lost, or GPUs too hot, while the site's power or cooling fails, are so by that."""
    for entry in _incidents(facts):
        incident = entry.what
        if incident.service not in ("power", "cooling"):
            continue
        reached = _reached_by(facts, entry)
        hit = [o for o in _lost(facts) if reached(o)]
        if incident.service == "cooling" and _may_be_heat(spoken(facts)):
            hit += [
                o
                for o in facts.observations
                if o.cause_code.startswith("gpu.thermal") and in_window(facts, o) and reached(o)
            ]
        if _broke_elsewhere(facts, reached):
            continue
        if hit or facts.end.said.cause_code.startswith("host.lost"):
            return Finding(
                _CODE_OF_SERVICE[incident.service],
                "established",
                f"{incident.service.capitalize()} incident {incident.incident_id} took what the job held",
                items=(_announced(entry),),
                roots=tuple(hit[:4]),
                advice="retry",
            )
    return None


def _reached_by(facts: Facts, entry: Open[PlatformIncident]) -> Callable[[Observation], bool]:
    """Return what tells whether an observation is of a node that the incident reaches."""
    pools = {answer.node: answer.pool for answer in facts.answers}
    domains = {answer.node: answer.domains for answer in facts.answers}
    scope = entry.what.scope
    return lambda o: covers(scope, node=o.node, pool=pools.get(o.node), domains=o.domains or domains.get(o.node, {}))


def _may_be_heat(said: Said) -> bool:
    """Return whether a GPU that slows down or stops can be behind the words."""
    return said.role != "root" or has_prefix(said.cause_code, _OF_HEAT)


def _broke_elsewhere(facts: Facts, reached: Callable[[Observation], bool]) -> bool:
    """Return whether the likeliest root is a fault of another kind on a node that the incident does not reach."""
    found = [o for o in candidates(facts) if o.fatal and o.code not in UNCERTAIN]
    return bool(found) and not reached(found[0])


def service_fault_on_the_node(facts: Facts) -> Finding | None:
    """A shared service that a held node sees fail (a stale mount, a dead runtime) is the cause, not the node."""
    said = spoken(facts)
    if said.role == "root" and not has_prefix(said.cause_code, _SERVICE_WORDS):
        return None
    if has_prefix(said.cause_code, _NO_SERVICES):
        return None
    found = [o for o in candidates(facts) if o.cause_class == "platform" and not o.code.startswith("act_")]
    if _failed_in_the_runtime(facts):
        found = [o for o in found if has_prefix(o.cause_code, ("platform.runtime",))]
    if not found:
        return None
    fault = found[0]
    what = f"{fault.meaning} on {fault.node}"
    if has_prefix(fault.cause_code, ("platform.runtime",)):
        # Each node has a container runtime of its own: that one is to be kept away from.
        return Finding(fault.cause_code, "established", what, fault.node, roots=(fault,))
    return Finding(fault.cause_code, "established", what, roots=(fault,), advice="retry")


def _failed_in_the_runtime(facts: Facts) -> bool:
    """Return whether it never started, and the words for it are the container runtime's: each node has its own."""
    said = spoken(facts)
    return facts.started_ms is None and said.role == "root" and has_prefix(said.cause_code, ("platform.runtime",))


def service_incident(facts: Facts) -> Finding | None:
    """An announced incident of a service that the job's own words point to, or can hide behind, is the cause."""
    said, incidents = spoken(facts), _incidents(facts)
    for entry in incidents if said.role != "none" else ():
        if has_prefix(said.cause_code, (_CODE_OF_SERVICE[entry.what.service],)):
            return _by_incident(entry, said.cause_code, "established")
    for entry in incidents:
        code = _CODE_OF_SERVICE[entry.what.service]
        if said.role != "none" and not said.strong and code in said.also:
            return _by_incident(entry, code, "established")
        if _plausible(facts, entry.what.service):
            return _by_incident(entry, code, "established" if facts.held else "supported")
    return None


def _plausible(facts: Facts, service: str) -> bool:
    """Return whether a service in trouble explains an end whose text does not name it."""
    said = spoken(facts)
    elsewhere = service not in _START_CONTAINERS and _failed_in_the_runtime(facts)
    if elsewhere or service not in _HIDES_BEHIND or has_prefix(said.cause_code, _NO_SERVICES):
        return False
    if own_error(said):
        return has_prefix(said.cause_code, _ALSO_OF.get(service, ()))
    if service in _START_SERVICES:
        return facts.end.outcome == "never_started" and said.role == "none"
    if said.role == "root":
        return said.cause_class == "platform" and not said.strong
    if service in ("scheduler", "control_plane"):
        signal = facts.end.signal or (facts.end.exit_code or 0) - 128
        return signal in _TERMINATED or facts.end.outcome == "never_started"
    peers_gone = service == "network" and said.role == "cascade"
    return said.role != "none" and (peers_gone or has_prefix(said.cause_code, _HIDES_BEHIND[service]))


def _by_incident(entry: Open[PlatformIncident], code: str, basis: str) -> Finding:
    item = _announced(entry)
    return Finding(code, basis, f"{item.what}"[:200], items=(item,), advice="retry")  # type: ignore[arg-type]


def node_out_of_memory(facts: Facts) -> Finding | None:
    """A job killed because a node that it shares ran out of memory, and not it of its own limit, was put there so."""
    said = spoken(facts)
    if own_error(said) and not has_prefix(said.cause_code, ("app.oom.host",)):
        return None
    kills = [o for o in facts.observations if o.code == "oom_kill" and _OF_THE_NODE.search(o.message or "")]
    kills = [o for o in kills if in_window(facts, o) and not too_late(facts, o) and shares(facts, o.node)]
    if not kills:
        return None
    kill = min(kills, key=lambda o: (o.since_ms, o.id))
    return Finding(
        "platform.eviction", "supported", f"{kill.node} ran out of the memory that its jobs share", kill.node,
        roots=(kill,),
    )  # fmt: skip


def host_lost(facts: Facts) -> Finding | None:
    """A held node that fell silent or restarted during the job, with no fault code to explain it, is the cause."""
    said = spoken(facts)
    if said.role == "root" and not said.cause_code.startswith("host."):
        return None
    lost = [o for o in _lost(facts) if _held_then(facts, o)]
    if not lost:
        return None
    first = lost[0]
    together = _of_one_feed(lost)
    if together is not None:
        return Finding(
            "platform.power", "supported", f"Nodes of power feed {together} were lost together",
            roots=tuple(lost[:8]), advice="retry",
        )  # fmt: skip
    return Finding(first.cause_code, "established", f"{first.node}: {first.meaning}", first.node, roots=(first,))


def _held_then(facts: Facts, lost: Observation) -> bool:
    """Return whether the attempt held the node at its last sign of life: else it may have been lost before that."""
    if facts.allocated_ms is None or facts.allocated_ms <= lost.since_ms:
        return True
    return spoken(facts).role == "none" or facts.end.said.cause_code.startswith("host.")


def _of_one_feed(lost: list[Observation]) -> str | None:
    """Return the power feed that several lost nodes have in common."""
    nodes_of: dict[str, set[str]] = {}
    for observation in lost:
        feed = observation.domains.get("power")
        if feed is not None:
            nodes_of.setdefault(feed, set()).add(observation.node)
    feed, nodes = max(nodes_of.items(), key=lambda item: (len(item[1]), item[0]), default=("", set()))
    return feed if len(nodes) >= 3 else None


def black_hole_node(facts: Facts) -> Finding | None:
    """A node on which starts of different users fail while its checks are green is broken itself."""
    said = spoken(facts)
    if facts.started_ms is not None or own_error(said):
        return None
    suspects = [answer for answer in facts.answers if _swallows(answer)]
    named = node_in_words(facts)
    if named is not None:
        suspects = [answer for answer in suspects if answer.node == named]
    worst = _worst(facts, suspects)
    if worst is None:
        return None
    jobs, users = worst.start_failures + 1, worst.start_failure_users + 1
    code = said.cause_code if said.cause_class in ("platform", "driver") else "platform.runtime"
    what = f"{jobs} starts of {users} users failed on {worst.node} within six hours"
    item = EvidenceItem("root", f"agent/{worst.node}", f"{worst.node}-starts", moment_of(worst.up_to_ms), what)
    return Finding(code, "established", what, worst.node, items=(item,), advice="retry_elsewhere")


def _swallows(answer: NodeAnswer) -> bool:
    row = answer.start_failures_in_a_row, answer.start_failure_users_in_a_row
    more_than_ran_well = answer.start_failures + 1 > answer.starts
    return _are_many(*row) or (more_than_ran_well and _are_many(answer.start_failures, answer.start_failure_users))


def _are_many(jobs: int, users: int) -> bool:
    """Return whether so many other jobs, and other users' ones, are enough together with the attempt's own."""
    return jobs + 1 >= _BLACK_HOLE_JOBS and users + 1 >= _BLACK_HOLE_USERS


def _worst(facts: Facts, suspects: list[NodeAnswer]) -> NodeAnswer | None:
    """Return the node that the failure is about: the one that its words name, else the one with most such starts.

    Nodes that were held together by the same few jobs cannot be told apart: then it is none of them yet.
    """
    named = node_named(facts)
    for answer in suspects:
        if answer.node == named:
            return answer
    by_count = sorted(suspects, key=lambda answer: (_counts(facts, answer), answer.starts, answer.node))
    if len(by_count) > 1 and _counts(facts, by_count[0]) == _counts(facts, by_count[1]):
        return None
    return by_count[0] if by_count else None


def _counts(facts: Facts, answer: NodeAnswer) -> tuple[int, int, int]:
    """Return the order of suspects: by failed starts that are surely the node's, by all tries there, by jobs.

    The job's own earlier tries count as well: whatever else they held, they held what is broken.
    """
    code = spoken(facts).cause_code
    own = sum(answer.node in earlier.nodes for earlier in facts.earlier if earlier.cause_code == code)
    return -answer.start_failures_here, -answer.start_tries - own, -answer.start_failures
