"""A management controller that `ipmitool` 1.8.19 talks to, as recorded against OpenIPMI's `ipmi_sim` 2.0.33."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from actuators.sdk import Failed
from tests.contract.bmc import Machine

# What `run` makes of its answers: it ended with 1, and this is what it said.
NO_SESSION = (
    "ipmitool ended with 1: Unable to Get Channel Cipher Suites\nError: Unable to establish IPMI v2 / RMCP+ session"
)
WORDS = {"on": "On", "off": "ForceOff", "soft": "GracefulShutdown"}
SAID = {"on": "Up/On", "off": "Down/Off", "soft": "Soft"}


class RecordedIpmi:
    """Runs `ipmitool` on a machine. `away`: so many questions get no session; `says`: another answer on its power."""

    def __init__(self, machine: Machine, *, away: int = 0, says: str | None = None) -> None:
        self.machine, self.away, self.says = machine, away, says
        self.ran: list[list[str]] = []

    def __call__(self, program: Sequence[str]) -> str:
        self.ran.append(list(program))
        options = dict(zip(program[1:-3:2], program[2:-3:2], strict=True))
        is_let_in = options["-U"] == "root" and Path(options["-f"]).read_text("utf-8").strip() == "s3cret"
        if self.away or not is_let_in:
            self.away = max(0, self.away - 1)
            raise Failed(NO_SESSION)
        word = program[-1]
        if word == "status":
            self.machine.look()
            return self.says or f"Chassis Power is {self.machine.power.lower()}\n"
        self.machine.reset(WORDS[word])
        return f"Chassis Power Control: {SAID[word]}\n"
