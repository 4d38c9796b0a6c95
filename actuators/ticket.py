"""Tickets by mail: what is wrong with which machine, the driver's own lines, the verdicts, and what was tried."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

from actuators.others_words import ROWS, bounded, one_line
from actuators.sdk import Actuator, Beat, Failed
from actuators.webhook import Bundle
from faultlens.clock import iso, ms_of
from faultlens.errors import WorldError
from faultlens.events import Action, RemediationCommand

_ATTEMPTS: Final = 5
_FIRST_PAUSE_S: Final = 2.0

Send = Callable[[str, str], None]


class MailedTicket(Actuator):
    """Sends each ticket as a mail. `send` takes subject and text, and raises WorldError where it was not taken.

    The command's id stands in the text: a mail may come twice after a kill.
    """

    name: ClassVar[str] = "ticket"
    actions: frozenset[Action] = frozenset({"open_ticket"})

    def __init__(self, send: Send, *, sleep: Callable[[float], None], bundle: Bundle = lambda _command: {}) -> None:
        self._send = send
        self._sleep = sleep
        self._bundle = bundle

    def do(self, command: RemediationCommand, beat: Beat) -> str:
        """Write the mail and send it, again where it was not taken."""
        subject, text = letter(command, self._bundle(command).get("evidence") or {})
        pause_s = _FIRST_PAUSE_S
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self._send(subject, text)
            except WorldError as error:
                if attempt == _ATTEMPTS:
                    raise Failed(f"{error} ({attempt} times)") from None
            else:
                return "mailed"
            self._sleep(pause_s)
            beat()
            pause_s *= 2
        raise AssertionError("the last attempt returns or raises")


def letter(command: RemediationCommand, evidence: Mapping[str, Any]) -> tuple[str, str]:
    """Return the subject and text of a ticket; what others wrote stands in one line each, cut where it is long."""
    evidence = bounded(evidence)
    target = command.node or command.job_id or command.cluster
    faults = ", ".join(command.reason.fault_codes) or command.reason.incident_id
    lines = [
        f"Machine   {one_line(target)} of cluster {one_line(command.cluster)}",
        f"Why       {one_line(faults)}",
        f"Incident  {one_line(command.reason.incident_id)}",
        f"Command   {one_line(command.command_id)}, policy {one_line(command.policy)}, {iso(ms_of(command.issued_at))}",
    ]
    if evidence.get("known"):
        seen = f"seen {evidence.get('times', 1)} times on {', '.join(map(str, evidence.get('nodes') or ()))}"
        lines.append(f"Cause     {one_line(evidence.get('cause'))}, {one_line(seen)}")
    for title, rows, shown in (
        ("What the driver said", "faults", _fault),
        ("Verdicts on jobs that it cost", "verdicts", _verdict),
        ("What was tried", "steps", _step),
    ):
        found = evidence.get(rows) or ()
        lines += ["", title, *(f"  {shown(row)}" for row in found[:ROWS])] if found else []
    return f"{one_line(target)}: {one_line(faults)}", "\n".join(lines) + "\n"


def _fault(row: Mapping[str, Any]) -> str:
    names = [row.get("node"), _device(row.get("device")), row.get("gpu_family"), row.get("driver_version")]
    what = f"{row.get('kind')} {row.get('code')} x{row.get('count')}"
    return one_line(f"{what} on {', '.join(str(name) for name in names if name)}: {row.get('message') or ''}")


def _device(raw: object) -> str:
    """Return a device's identities, the serial number among them, as `index 5, uuid GPU-…`."""
    try:
        named = json.loads(str(raw)) if raw else {}
    except (ValueError, RecursionError):
        return ""
    if not isinstance(named, dict):
        return ""
    said = {key: value for key, value in named.items() if value is not None and not isinstance(value, dict)}
    return ", ".join(f"{key} {value}" for key, value in said.items())


def _verdict(row: Mapping[str, Any]) -> str:
    founded = f"{row.get('basis')}, rule {row.get('rule')}"
    return one_line(f"{row.get('job')}: {row.get('class')}, {row.get('code')} ({founded})")


def _step(row: Mapping[str, Any]) -> str:
    return one_line(f"{row.get('action')}: {row.get('state')} by {row.get('actuator')} {row.get('reason') or ''}")
