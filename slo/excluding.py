"""An incident as an exclusion: a document that leaves its time out of the objectives, for a person to sign."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from faultlens.clock import HOUR_MS, iso
from slo.measure import Row, class_or_overhead
from slo.queries import Reader, ask
from slo.wording import printable

NODES_NAMED: Final = 20


@dataclass(frozen=True, slots=True)
class Signed:
    """Why something is left out, who says so, and of which objectives (none: every one)."""

    reason: str
    author: str
    objectives: Sequence[str] = ()


def incidents(reader: Reader, incident_id: str) -> Sequence[Row]:
    """Return what is known of an incident of that id, one row for each cluster that has one."""
    return ask(reader, "incident_extent", {"incident": incident_id})


def document(incident_id: str, found: Row, signed: Signed, as_of_ms: int) -> str:
    """Return the exclusion as a document of YAML: whole hours around the incident, of its cluster and class.

    Of one that goes on, up to the end of the hour of `as_of_ms`. What is counted is kept by the hour and not by node:
    the class alone tells what the incident did from what else happened then.
    """
    from_ms = found["began_ms"] // HOUR_MS * HOUR_MS
    to_ms = -(-max(found["ended_ms"] or as_of_ms, from_ms + 1) // HOUR_MS) * HOUR_MS
    lines = [
        *([] if found["ended_ms"] else ["# The incident goes on: write this anew when it has ended."]),
        *_nodes(found["nodes"]),
        "apiVersion: faultlens/v1",
        "kind: Exclusion",
        f"metadata: {{name: {_quoted(incident_id)}, labels: {{cluster: {_quoted(found['cluster'])}}}}}",
        "spec:",
        f"  from: {iso(from_ms)}",
        f"  to: {iso(to_ms)}",
        f"  reason: {_quoted(signed.reason)}",
        f"  author: {_quoted(signed.author)}",
        f"  classes: [{class_or_overhead(found['cause'])}]",
    ]
    if signed.objectives:
        lines.append(f"  objectives: [{', '.join(map(_quoted, signed.objectives))}]")
    return "\n".join(lines) + "\n"


def _nodes(names: Sequence[str]) -> list[str]:
    if not names:
        return []
    more = f" and {len(names) - NODES_NAMED} more" if len(names) > NODES_NAMED else ""
    return [f"# On {', '.join(printable(name) for name in names[:NODES_NAMED])}{more}."]


def _quoted(text: str) -> str:
    """Return text as YAML takes it for text whatever it holds: its strings in double quotes are those of JSON."""
    return json.dumps(text)
