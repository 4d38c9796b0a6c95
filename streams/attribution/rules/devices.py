"""Rules on faults of devices and nodes that the job held."""

from __future__ import annotations

from typing import Final

from faultlens.events import Basis
from faultlens.internal import Observation
from streams.attribution.facts import Facts, Said
from streams.attribution.pointing import pointed
from streams.attribution.roots import (
    COMPETING_MS,
    candidates,
    cleared_by_progress,
    crashed_by_itself,
    decisive,
    first_root_exit,
    has_prefix,
    holds_part,
    in_window,
    names_another_cause,
    node_in_words,
    own_error,
    rank_on,
    spoken,
    too_late,
)
from streams.attribution.verdict import Finding

# A fault this severe ends every process on the device; a program's own words in the same seconds are its echo.
_OVERRULES_WORDS: Final = 80
_SAME_MOMENT_MS: Final = 60_000
# Against words that only point somewhere, a fault that ends jobs is believed when the job ended soon after it.
_OVERRULES_HINTS: Final = 60
_SOON_MS: Final = 120_000
# What is stuck makes others wait: for less than this a rank that broke is missed anyway.
_WAITS_MS: Final = 300_000
_ECHOES: Final = ("app.exception",)
# What words can be the echo of: neither an adapter nor a disk makes a GPU say that its memory or driver is broken.
# Words that are not here can be the echo of any fault.
_BEHIND: Final = {
    "gpu": ("gpu", "fabric", "driver", "host.pcie", "host.memory", "host.power", "host.cpu", "host.lost"),
    "driver": ("gpu", "fabric", "driver", "host.pcie", "host.memory", "host.power", "host.cpu", "host.lost"),
    "app.illegal_access": ("gpu", "host.pcie", "host.memory"),
    "app.numerics": ("gpu.compute", "gpu.memory", "host.memory"),
    "app.cuda_error": ("gpu", "fabric", "driver", "host.pcie"),
}
_OF_LINKS: Final = ("network", "platform.network", "host.lost", "app.hang")
_WRONG_RESULTS: Final = ("gpu.compute.wrong_result",)
_ON_A_DEVICE: Final = frozenset({"gpu", "fabric", "driver"})
# The steps of Xid 154 after which the device, as it is, is of no use to a job.
_NEEDS_RECOVERY: Final = frozenset(
    {"gpu_reset_required", "node_reboot_required", "system_reboot", "drain_and_reset", "bus_reset"}
)


def _explains(facts: Facts, fault: Observation) -> bool:
    """Return whether the fault can stand although a text names another cause."""
    said = spoken(facts)
    if (own_error(said) and _also_elsewhere(facts, fault)) or _another_was_lost(facts, said, fault):
        return False
    if any(has_prefix(fault.cause_code, (code,)) or has_prefix(code, (fault.cause_code,)) for code in said.also):
        return True
    behind = next((f for code, f in _BEHIND.items() if has_prefix(said.cause_code, (code,))), None)
    if said.role == "root" and behind is not None:
        return has_prefix(fault.cause_code, behind)
    if not _sounds_like(facts, said, fault):
        return False
    return not names_another_cause(said) or _is_echoed(facts, said, fault)


def _another_was_lost(facts: Facts, said: Said, fault: Observation) -> bool:
    """Return whether the scheduler says of another node by name that it was lost."""
    return (
        said.role == "root"
        and has_prefix(said.cause_code, ("host.lost",))
        and (node_in_words(facts) not in (None, fault.node))
    )


def _is_echoed(facts: Facts, said: Said, fault: Observation) -> bool:
    """Return whether another cause that the text names is only what the program makes of the fault."""
    teller = first_root_exit(facts)
    if teller is not None and teller.node != fault.node and not fault.cause_code.startswith("network."):
        return False
    first_ms = facts.trouble_ms if teller is None else teller.first_ms
    ahead_ms = first_ms + COMPETING_MS - fault.since_ms
    if not said.strong:
        return fault.severity >= _OVERRULES_HINTS and 0 <= ahead_ms <= _SOON_MS
    before = 0 <= ahead_ms <= _SAME_MOMENT_MS and fault.severity >= _OVERRULES_WORDS
    return before and teller is not None and fault.node == teller.node and has_prefix(said.cause_code, _ECHOES)


def _sounds_like(facts: Facts, said: Said, fault: Observation) -> bool:
    """Return whether a fault of this kind can show in what is said."""
    if fault.cause_code.startswith("network."):
        return _sounds_like_network(facts, said)
    if has_prefix(fault.cause_code, _WRONG_RESULTS):
        return _may_compute_wrong(facts, said, fault)
    return True


def _sounds_like_network(facts: Facts, said: Said) -> bool:
    """Return whether a link that fails can print this: its peers' complaints, time-outs, or nothing at all."""
    vague = said.role == "symptom" and said.cause_code == "app.crash" and not crashed_by_itself(said)
    if vague or said.role in ("none", "cascade"):
        return len(facts.held) > 1 or facts.loss is not None
    return has_prefix(said.cause_code, _OF_LINKS) and not has_prefix(said.cause_code, ("app.hang.collective",))


def _may_compute_wrong(facts: Facts, said: Said, fault: Observation) -> bool:
    """Return whether wrong results can have ended the attempt: it names no root, and points there."""
    where, index = pointed(facts), fault.device.index if fault.device else None
    if said.role in ("none", "cascade"):
        return len(facts.held) == 1 or fault.node in where.nodes
    named = {device for node, device in where.devices if node == fault.node}
    return said.role == "symptom" and fault.node in where.nodes and (not named or index in named)


def _also_elsewhere(facts: Facts, fault: Observation) -> bool:
    """Return whether ranks that do not run on what is broken name an error of their own as well."""
    index = fault.device.index if fault.device and not fault.whole_node else None
    telling = [e for e in facts.exits if own_error(e.said)]
    return any(e.node != fault.node or (index is not None and e.device not in (None, index)) for e in telling)


def shared_switch(facts: Facts) -> Finding | None:
    """Links that drop on several nodes of one switch within seconds have the switch in common, not a bad adapter."""
    links = [o for o in decisive(facts) if o.cause_code.startswith("network.")]
    if len({o.node for o in links}) < 2 or not _explains(facts, links[0]):
        return None
    first = links[0]
    switch = first.domains.get("switch")
    together = [
        o
        for o in links
        if switch is not None and o.domains.get("switch") == switch and abs(o.since_ms - first.since_ms) <= COMPETING_MS
    ]
    if len({o.node for o in together}) < 2:
        return None
    nodes = sorted({o.node for o in together})
    return Finding(
        "network.link", "established",
        f"Links of {len(nodes)} nodes on switch {switch} dropped together", roots=tuple(together[:8]), advice="retry",
    )  # fmt: skip


def device_fault_on_allocated_gpu(facts: Facts) -> Finding | None:
    """The earliest root fault on a device that the job held, inside the window, is the cause."""
    faults = [o for o in decisive(facts) if o.cause_code.split(".")[0] in _ON_A_DEVICE]
    every = decisive(facts)
    if not faults or every[0] is not faults[0] or not _explains(facts, faults[0]):
        return None
    return _charged(facts, faults[0])


def node_fault_under_the_job(facts: Facts) -> Finding | None:
    """The earliest root fault of the node itself (memory, disk, network adapter, PCIe, power) is the cause."""
    faults = [o for o in decisive(facts) if o.cause_class != "platform"]
    if not faults or not _explains(facts, faults[0]):
        return None
    return _charged(facts, faults[0])


def _charged(facts: Facts, fault: Observation) -> Finding:
    basis: Basis = "supported" if holds_part(facts, fault) else "established"
    where = f" GPU {fault.device.index}" if fault.device and fault.device.index is not None else ""
    return Finding(
        fault.cause_code, basis, f"{fault.meaning} on {fault.node}{where}",
        fault.node, fault.device, rank_on(facts, fault), roots=(fault,),
    )  # fmt: skip


def unexpected_code(facts: Facts) -> Finding | None:
    """A code that nobody knows for this family, just before the end, is held against the device for a person."""
    found = [o for o in facts.observations if o.role == "unexpected" and _unexplained(facts, o)]
    if not found:
        return None
    fault = min(found, key=lambda o: (o.since_ms, o.id))
    return Finding(
        fault.cause_code, "supported", f"{fault.kind} {fault.code} on {fault.node}: {fault.meaning}",
        fault.node, fault.device, rank_on(facts, fault), roots=(fault,),
    )  # fmt: skip


def application_fault(facts: Facts) -> Finding | None:
    """The driver reports illegal accesses of the program, and nothing says that the device makes them."""
    found = [o for o in facts.observations if o.role == "application" and _unexplained(facts, o)]
    if not found:
        return None
    first = min(found, key=lambda o: (o.since_ms, -o.severity, o.id))
    devices = len({(o.node, o.device.index if o.device else None) for o in found})
    return Finding(
        first.cause_code, "supported", f"{first.meaning} on {devices} device{'s' if devices != 1 else ''}",
        roots=(first,),
    )  # fmt: skip


def other_end_of_a_link(facts: Facts) -> Finding | None:
    """A device says that the other side of its link is gone, and that side is not known: the fabric, no device."""
    if spoken(facts).role == "root":
        return None
    found = [o for o in facts.observations if o.role == "sympathetic" and has_prefix(o.cause_code, ("fabric",))]
    found = [o for o in found if _unexplained(facts, o)]
    if not found:
        return None
    seen = min(found, key=lambda o: (o.since_ms, o.id))
    return Finding(seen.cause_code, "supported", f"{seen.meaning}, as {seen.node} saw it")


def harm_short_of_fatal(facts: Facts) -> Finding | None:
    """A fault that need not end a job explains one that ended with symptoms only."""
    if spoken(facts).role == "root":
        return None
    found = [o for o in candidates(facts) if o.code not in ("silent", "rebooted") and o.cause_class != "platform"]
    found = [o for o in found if _explains(facts, o)]
    if not found:
        return None
    fault = found[0]
    return Finding(
        fault.cause_code, "supported", f"{fault.meaning} on {fault.node}",
        fault.node, fault.device, rank_on(facts, fault), roots=(fault,),
    )  # fmt: skip


def recovery_announced(facts: Facts) -> Finding | None:
    """The driver says that a device has to be reset, and no code says why: that device, for a reason unknown."""
    if spoken(facts).role == "root":
        return None
    found = [o for o in facts.observations if (o.kind, o.code) == ("xid", "154") and o.subcode in _NEEDS_RECOVERY]
    found = [o for o in found if _unexplained(facts, o)]
    if not found:
        return None
    fault = min(found, key=lambda o: (o.since_ms, o.id))
    return Finding(
        "gpu.unknown", "supported", f"{fault.meaning}, on {fault.node}",
        fault.node, fault.device, rank_on(facts, fault), roots=(fault,),
    )  # fmt: skip


def kernel_stuck(facts: Facts) -> Finding | None:
    """The kernel of a held node says that it is stuck, the job stood still, and nothing says by what: that node."""
    if spoken(facts).role == "root" or not _stood_still(facts):
        return None
    found = [o for o in facts.observations if o.kind == "kernel" and o.role == "sympathetic" and _unexplained(facts, o)]
    # What nodes share fails on more than one of them: a process that waits on one of many is a coincidence.
    shared = {o.node for o in found if o.cause_class == "platform"}
    found = [o for o in found if o.cause_class != "platform" or len(shared) >= min(2, len(facts.held))]
    if not found:
        return None
    seen = min(found, key=lambda o: (o.since_ms, o.id))
    node = None if seen.cause_class == "platform" else seen.node
    return Finding(seen.cause_code, "supported", f"{seen.meaning}, on {seen.node}", node, roots=(seen,))


def _stood_still(facts: Facts) -> bool:
    """Return whether the job waited for something before its end: what exits or crashes by itself did not."""
    waited_ms = facts.end.at_ms - facts.trouble_ms
    return facts.stalled_ms is not None or facts.end.outcome == "timed_out" or waited_ms >= _WAITS_MS


def _unexplained(facts: Facts, seen: Observation) -> bool:
    """Return whether what was seen can belong to the failure at all."""
    if seen.synthetic or not in_window(facts, seen):
        return False
    return not cleared_by_progress(facts, seen) and not too_late(facts, seen)
