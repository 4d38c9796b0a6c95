"""The default: says of each command what would be done, and does nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, get_args

from actuators.sdk import Actuator, Beat, Refused
from faultlens.events import Action, RemediationCommand


class DryRun(Actuator):
    """Shows every command and refuses it, so that nothing is taken for done."""

    name: ClassVar[str] = "dry-run"
    actions = frozenset(get_args(Action))

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show

    def do(self, command: RemediationCommand, beat: Beat) -> str:
        """Show the command and refuse it."""
        target = command.node or command.job_id or command.cluster
        why = ", ".join(command.reason.fault_codes) or command.reason.incident_id
        self._show(f"would {command.action} {target} (rung {command.rung}, {command.policy}): {why}")
        raise Refused("dry run: nothing is done")
