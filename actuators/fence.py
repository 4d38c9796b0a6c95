"""What must not be done twice, and what time it is for a command: what a worker refuses by."""

from __future__ import annotations

from typing import Final, NamedTuple

from faultlens.codec import stable_id
from faultlens.events import Action, RemediationCommand

# What is felt each time that it is done: the rest leaves things as they are when they are so already.
ONCE: Final[frozenset[Action]] = frozenset({"reset_device", "restart_services", "reboot", "power_cycle", "replace"})
# After these the node is in another boot, or is another one.
STARTS_ANEW: Final[frozenset[Action]] = frozenset({"reboot", "power_cycle", "replace"})
# Each of these is told to somebody, and says something of its own.
_TOLD: Final[frozenset[Action]] = frozenset({"watch", "open_ticket"})


def what_of(command: RemediationCommand) -> str:
    """Return what a command does to what: the same of two commands must not be done at once."""
    if command.action in _TOLD:
        return stable_id(command.command_id)
    device = command.device
    parts = () if device is None else (device.index, device.uuid, device.pci, device.serial, device.dra)
    return stable_id(command.cluster, command.node or "", command.job_id or "", command.action, *map(str, parts))


class Since(NamedTuple):
    """When a command was taken, by the clock and by one that nothing sets (ms)."""

    wall_ms: int
    steady_ms: int

    def now_ms(self, wall_ms: int, steady_ms: int) -> int:
        """Return what time it is for the command: the clock's, but no less than what has passed since."""
        return max(wall_ms, self.wall_ms + steady_ms - self.steady_ms)
