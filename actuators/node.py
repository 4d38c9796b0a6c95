"""On the host itself: validate it, reset a device, restart services, by the programs that its owner names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from actuators.programs import gpu_of
from actuators.sdk import Actuator, Beat, Memory, Refused
from actuators.watched import Execute, run_all
from faultlens.events import Action, RemediationCommand

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Programs:
    """What to run, as argument lists; empty: that is not done here. `{device}` is the GPU's UUID or index."""

    validate: tuple[str, ...] = ()
    reset_device: tuple[str, ...] = ("nvidia-smi", "--gpu-reset", "-i", "{device}")
    restart_services: tuple[tuple[str, ...], ...] = ()


class Node(Actuator):
    """Acts on the node that it runs on, and on no other."""

    name: ClassVar[str] = "node"

    def __init__(
        self,
        node: str,
        programs: Programs,
        memory_of: Callable[[str], Memory],
        *,
        execute: Execute = run_all,
        boot_id: Path = BOOT_ID,
    ) -> None:
        self._node = node
        self._programs = programs
        self._memory_of = memory_of
        self._run = execute
        self._boot_id = boot_id
        can: list[tuple[Action, object]] = [
            ("validate", programs.validate),
            ("reset_device", programs.reset_device),
            ("restart_services", programs.restart_services),
        ]
        self.actions = frozenset(action for action, named in can if named)

    def boot_id(self, node: str) -> str | None:
        """Return the kernel's boot id."""
        try:
            return self._boot_id.read_text("ascii").strip()
        except OSError:
            return None

    def do(self, command: RemediationCommand, beat: Beat) -> str:
        """Run what the action stands for."""
        if command.node != self._node:
            raise Refused(f"this is {self._node}, not {command.node}")
        memory = self._memory_of(command.command_id)
        if command.action == "validate":
            self._run([self._programs.validate], beat, memory)
            return "validation passed"
        if command.action == "reset_device":
            device = gpu_of(command)
            self._run([[word.replace("{device}", device) for word in self._programs.reset_device]], beat, memory)
            return f"GPU {device} was reset"
        self._run(self._programs.restart_services, beat, memory)
        return f"{len(self._programs.restart_services)} services were restarted"
