"""All that who repairs a machine needs to know of an incident: identities, raw lines, verdicts, and what was tried."""

from __future__ import annotations

from typing import Any

from slo.queries import Reader, ask


def bundle(reader: Reader, incident_id: str) -> dict[str, Any]:
    """Return an incident's evidence as plain values; `known` is False of one that the store has not heard of yet.

    `faults` have the driver's own lines and the device as it was named, serial numbers with it; `verdicts` are those
    in force on the jobs that it cost; `steps` are the commands that ended, and how.
    """
    found = ask(reader, "command_incident", {"incident": incident_id})
    if not found:
        return {"known": False, "incident_id": incident_id}
    incident = found[0]
    evidence, jobs = list(incident["evidence"]), list(incident["jobs"])
    return {
        "known": True,
        "incident_id": incident_id,
        "cause": incident["cause"],
        "nodes": list(incident["nodes"]),
        "first_ms": incident["first_ms"],
        "times": incident["count"],
        "faults": [dict(row) for row in ask(reader, "incident_faults", {"evidence": evidence})],
        "verdicts": [dict(row) for row in ask(reader, "incident_verdicts", {"jobs": jobs})],
        "steps": [dict(row) for row in ask(reader, "incident_steps", {"incident": incident_id})],
    }
