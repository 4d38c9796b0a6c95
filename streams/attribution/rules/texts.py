"""Rules on what the program, its libraries and the scheduler say."""

from __future__ import annotations

from faultlens.causes import title_of
from faultlens.clock import moment_of
from faultlens.events import DeviceRef, EvidenceItem
from streams.attribution.facts import Exit, Facts, Said
from streams.attribution.roots import first_root_exit, has_prefix, node_named, own_error, spoken
from streams.attribution.verdict import Finding

# Whose texts are about the machine they come from; the container runtime is one for each node.
_ABOUT_THE_NODE = ("gpu", "fabric", "network", "host", "driver", "platform.runtime")


def own_error_in_log(facts: Facts) -> Finding | None:
    """The program names an error of its own."""
    return _told(facts) if own_error(spoken(facts)) else None


def root_in_log(facts: Facts) -> Finding | None:
    """The earliest text that names a root, whoever's fault it is."""
    told = spoken(facts).role == "root" and not _by_scheduler(facts) and not _ended_a_hang(facts)
    return _told(facts) if told else None


def scheduler_says(facts: Facts) -> Finding | None:
    """Nothing but the scheduler's own word says what it was."""
    return _told(facts) if spoken(facts).role == "root" and not _ended_a_hang(facts) else None


def symptom_only(facts: Facts) -> Finding | None:
    """Only symptoms or consequences were printed: what they come from by default, assumed."""
    said = spoken(facts)
    if said.role not in ("symptom", "cascade"):
        return None
    node = node_named(facts) if has_prefix(said.cause_code, ("platform.runtime",)) else None
    return Finding(said.cause_code, "assumed", f"{title_of(said.cause_code)} (only a symptom was seen)", node)


def _ended_a_hang(facts: Facts) -> bool:
    """Return whether the text only tells of the time limit, which ended a job that stood still before."""
    return facts.stalled_ms is not None and has_prefix(spoken(facts).cause_code, ("app.time_limit",))


def _by_scheduler(facts: Facts) -> bool:
    return first_root_exit(facts) is None and facts.end.scheduler and not facts.end.said.strong


def _told(facts: Facts) -> Finding:
    said = spoken(facts)
    teller = first_root_exit(facts)
    node = None
    if has_prefix(said.cause_code, _ABOUT_THE_NODE):
        node = teller.node if teller is not None else node_named(facts)
    rank = teller.rank if teller is not None and node is not None else None
    return Finding(
        said.cause_code, "supported", title_of(said.cause_code), node, _device(said, teller), rank,
        items=(_line(facts, said),),
    )  # fmt: skip


def _device(said: Said, teller: Exit | None) -> DeviceRef | None:
    """Return the GPU of which a rank says that it is broken: the one that the rank ran on."""
    if teller is None or teller.device is None or not has_prefix(said.cause_code, ("gpu",)):
        return None
    return DeviceRef(index=teller.device)


def _line(facts: Facts, said: Said) -> EvidenceItem:
    teller = first_root_exit(facts)
    if teller is None:
        return EvidenceItem("symptom", facts.end.source, facts.end.id, moment_of(facts.end.at_ms), said.line)
    return EvidenceItem(
        "symptom", teller.source, teller.id, moment_of(teller.first_ms), f"rank {teller.rank}: {said.line}"
    )
