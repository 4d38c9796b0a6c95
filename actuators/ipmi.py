"""A machine's management controller by IPMI 2.0, through `ipmitool`: how its power stands, and switching it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from actuators.programs import run
from actuators.sdk import Failed
from actuators.turning import Reset, System
from faultlens.errors import WorldError

TOOL: Final = "ipmitool"
PORT: Final = 623
# Longer than it takes by itself to give up: two tries of three seconds for each step of a session.
_ANSWER_S: Final = 60.0
_TRIES: Final = ("-R", "2", "-N", "3")
_TRIED: Final = 5
_AGAIN_AFTER_S: Final = 10.0
# IPMI tells of no resets: one cannot be seen to have happened. Off and on can.
_WORDS: Final[dict[Reset, str]] = {"On": "on", "ForceOff": "off", "GracefulShutdown": "soft"}
_ALLOWED: Final = frozenset(_WORDS)
_POWER: Final = {"Chassis Power is on": "On", "Chassis Power is off": "Off"}

Run = Callable[[Sequence[str]], str]


class IpmiBmc(NamedTuple):
    """Where a controller is and how to log in: the password stays in its file, which `ipmitool` reads itself."""

    host: str
    port: int
    user: str
    password_file: Path


def run_tool(program: Sequence[str]) -> str:
    """Run `ipmitool` and return what it printed. Raises Failed."""
    return run(program, timeout_s=_ANSWER_S)


def needs_tool() -> None:
    """Make sure that `ipmitool` is installed. WorldError: it is not."""
    if shutil.which(TOOL) is None:
        raise WorldError(
            f"{TOOL} is not installed, and controllers are named ipmi://: install it, or name them https://"
        )


class Ipmi:
    """One controller. `pause` sleeps so many seconds, and raises Failed when the command has run out of time.

    It asks as an operator, whatever the user may do. What is no answer is never taken for one: `ipmitool` says the same
    of a wrong password and of a controller that is away, so that it is tried a few times and then believed.
    """

    def __init__(self, bmc: IpmiBmc, pause: Callable[[float], None], execute: Run = run_tool) -> None:
        self._bmc = bmc
        self._pause = pause
        self._run = execute

    def system(self) -> System:
        """Return the machine as it is now; of resets and of how far it has come IPMI tells nothing."""
        said = self._answer("status").strip()
        if said not in _POWER:
            raise Failed(f"{TOOL} says {said[:80]!r} of its power")
        return System("", _POWER[said], _ALLOWED, "", "", None)

    def reset(self, kind: Reset) -> None:
        """Ask for one of what `system` allows; asking twice for any of these does no more than asking once."""
        self._answer(_WORDS[kind])

    def _answer(self, word: str) -> str:
        tried = 0
        while True:
            try:
                return self._power(word)
            except Failed as failure:
                tried += 1
                if tried == _TRIED:
                    raise Failed(f"power {word} of {self._bmc.host}: {failure}") from None
            self._pause(_AGAIN_AFTER_S)

    def _power(self, word: str) -> str:
        bmc = self._bmc
        where = ["-I", "lanplus", "-H", bmc.host, "-p", str(bmc.port)]
        login = ["-U", bmc.user, "-f", str(bmc.password_file), "-L", "OPERATOR"]
        return self._run([TOOL, *where, *login, *_TRIES, "chassis", "power", word])
