"""Why a command was issued, and what became of it: from the policy and the incident down to the driver's own lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from faultlens.clock import iso
from faultlens.errors import FaultlensError
from slo.queries import Reader, ask
from slo.wording import listed, printable

Row = Mapping[str, Any]
_LINE = 300


class UnknownCommandError(FaultlensError):
    """The store knows no such command, or more than one that begins so."""


def command_story(reader: Reader, command_id: str) -> dict[str, Any]:
    """Return the command with its incident, the verdicts and faults behind it, and its results, as plain values.

    `command_id` may be cut short, as long as one command begins so. Raises UnknownCommandError.
    """
    found = ask(reader, "command", {"command": command_id})
    if len(found) != 1:
        raise UnknownCommandError("no such command" if not found else "several commands begin so: give more of the id")
    command = found[0]
    incidents = ask(reader, "command_incident", {"incident": command["incident_id"]})
    incident = incidents[0] if incidents else None
    evidence = list(incident["evidence"]) if incident is not None else []
    return {
        "command": dict(command),
        "incident": None if incident is None else dict(incident),
        "faults": [dict(row) for row in ask(reader, "command_evidence", {"evidence": evidence})] if evidence else [],
        "results": [dict(row) for row in ask(reader, "command_results", {"command": command["command_id"]})],
    }


def as_text(story: Mapping[str, Any]) -> str:
    """Return the story for a terminal; what others wrote cannot steer it."""
    command, incident = story["command"], story["incident"]
    target = command["node"] or command["job_id"]
    lines = [f"{command['action']} of {_clean(target)}: {_ended(command, story['results'])}", ""]
    lines += [
        f"Issued      {iso(command['issued_ms'])}, rung {command['rung']}, {command['mode']}"
        + (", decided over a recording" if command["replayed"] else ""),
        f"To start by {iso(command['expires_ms'])}, to end by {iso(command['finish_ms'])}",
        f"Policy      {_clean(command['policy'])}",
        f"Because of  {listed([_clean(code) for code in command['fault_codes']]) or 'what follows'}",
    ]
    if incident is not None:
        lines += _incident_lines(incident)
    if story["faults"]:
        lines += ["", "What was seen", *(f"  {_fault_line(row)}" for row in story["faults"])]
    if story["results"]:
        lines += ["", "What became of it", *(f"  {_result_line(row)}" for row in story["results"])]
    return "\n".join(lines)


def _incident_lines(incident: Row) -> list[str]:
    where, since = listed(_names(incident["nodes"])), iso(incident["first_ms"])
    lines = [
        f"Incident    {incident['incident_id']} ({incident['phase']})",
        f"            {_clean(incident['cause'])}, {incident['count']} times since {since}, on {where}",
        f"Commands    {len(incident['command_ids'])} for this incident",
    ]
    if incident["jobs"]:
        lines.append(f"Verdicts    {listed(_names(incident['jobs']))}")
    if incident["waits_for"]:
        lines.append(f"Waits for   {_clean(incident['waits_for'])}")
    if incident["closed_because"]:
        lines.append(f"Closed      {_clean(incident['closed_because'])}")
    return lines


def _names(names: Sequence[str]) -> list[str]:
    shown = [_clean(name) for name in names[:8]]
    return [*shown, f"{len(names) - 8} more"] if len(names) > 8 else shown


def _ended(command: Row, results: Sequence[Row]) -> str:
    ends = [row for row in results if row["state"] in ("succeeded", "failed", "refused", "expired")]
    if not ends:
        return "no end of it is known" if not command["replayed"] else "nobody was to carry it out"
    first = ends[0]
    reason = f" ({_clean(first['reason'])})" if first["reason"] else ""
    return f"{first['state']} by {_clean(first['actuator'])}{reason}"


def _fault_line(row: Row) -> str:
    what = f"{_clean(row['kind'])} {_clean(row['code'])} on {_clean(row['node'])}"
    return f"{iso(row['at_ms'])}  {what}  {_clean(row['message'])}"


def _result_line(row: Row) -> str:
    return f"{iso(row['at_ms'])}  {row['state']:<10} {_clean(row['actuator'])}  {_clean(row['reason'])}"


def _clean(text: str) -> str:
    return printable(text, limit=_LINE)
