"""The actuator of a story: it refuses, fails, dies, is late, tells things twice, and lies."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from faultlens.clock import HOUR_MS, MINUTE_MS, SECOND_MS, moment_of
from faultlens.events import RemediationCommand, RemediationResult
from tests.simulation.workshop import CLUSTER, RESTARTS, Machine

if TYPE_CHECKING:
    from tests.simulation.repairing import Story


class Hands:
    """Carries out what is commanded in a story, or does not."""

    def __init__(self, story: Story) -> None:
        self._story = story
        self.back_ms = 0
        self.lies_until_ms = 0

    def take(self, command: RemediationCommand) -> None:
        """Take a command as it is sent, and do with it what the dice say."""
        story, dice, done = self._story, self._story.dice, partial(self._done, command)
        if story.now_ms < self.back_ms:
            # A zombie does it anyway, and says so when everybody has given up, or never.
            kind, later_ms = dice.random(), dice.randrange(10 * MINUTE_MS, 4 * HOUR_MS)
            if kind < 0.2:
                story.after(later_ms, done)
            elif kind < 0.3 and story.bridge is not None:
                story.after(later_ms, partial(self._do, story.by_name[command.node or ""], command))
            return
        kind = dice.random()
        if kind < 0.05:
            story.after(SECOND_MS, partial(self._tell, command, "refused", "busy"))
        elif kind < 0.12:
            story.after(MINUTE_MS, partial(self._tell, command, "failed", "no"))
        elif kind < 0.17:
            story.after(SECOND_MS, partial(self._tell, command, "started"))  # and then it dies
        elif kind < 0.22:
            story.after(dice.randrange(HOUR_MS, 5 * HOUR_MS), done)
        else:
            story.after(SECOND_MS, partial(self._tell, command, "started"))
            story.after(dice.randrange(2 * SECOND_MS, 4 * MINUTE_MS), done)

    def _done(self, command: RemediationCommand) -> None:
        machine = self._story.by_name[command.node or ""]
        # Nothing but its word tells of a return.
        if self._story.now_ms < self.lies_until_ms and command.action != "return_to_service":
            self._tell(command, "succeeded")
            return
        self._do(machine, command)
        self._tell(command, "failed" if command.action == "validate" and machine.broken else "succeeded")

    def _do(self, machine: Machine, command: RemediationCommand) -> None:
        action = command.action
        if action in RESTARTS:
            self._story.restart(machine, 3 * MINUTE_MS)
        for gpu, fault in list(machine.broken.items()):
            if action in fault.mended_by:
                del machine.broken[gpu]
        if action == "block_new_work":
            machine.blocked = True
            self._story.bridge_tells(machine, "cordon", command.command_id)
        if action == "return_to_service" and machine.blocked:
            machine.blocked = False
            self._story.bridge_tells(machine, "uncordon", command.command_id)

    def _tell(self, command: RemediationCommand, state: str, reason: str | None = None) -> None:
        story = self._story
        at = moment_of(story.now_ms + story.off_ms("actuator/sim"))
        result = RemediationResult(
            command.command_id, CLUSTER, state, "sim", at, command.node, reason=reason,  # type: ignore[arg-type]
        )  # fmt: skip
        story.say(result, "actuator/sim", twice=story.dice.random() < 0.1)
