"""Restarts a machine by its management controller, and sees it go and come; a kill restarts none twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, NamedTuple, Protocol

import msgspec
from msgspec import Struct

from actuators.sdk import Failed, Memory

Reset = Literal[
    "On", "ForceOn", "ForceOff", "GracefulShutdown", "GracefulRestart", "ForceRestart", "PowerCycle"
]  # as Redfish names them
_LOOK_EVERY_S: Final = 5.0
_OFF_S: Final = 10.0
# After a kill it is not known whether the controller was asked. Forced resets show within seconds; what has not shown
# after so long did not happen, and is asked for again.
_SHOWS_WITHIN_S: Final = 60.0
_RUNNING: Final = "OSRunning"
_UNSEEN: Final = (
    "interrupted when a restart was about to be asked for, and the controller tells neither of resets nor how to switch"
    " off: whether the machine restarted has to be looked at"
)


class System(NamedTuple):
    """A computer system: where its reset is, how its power stands, and which kinds of reset it allows.

    What the controller does not tell is None (`allowed`) or empty (`last_reset`; `boot`: how far it has come).
    """

    target: str
    power: str
    allowed: frozenset[str] | None
    last_reset: str
    boot: str
    etag: str | None


class Controller(Protocol):
    """A machine's management controller. Whatever it is asked for may raise Denied or Failed."""

    def system(self) -> System:
        """Return the machine's system as it is now."""
        ...

    def reset(self, kind: Reset) -> None:
        """Ask for a reset."""
        ...


class Denied(Failed):
    """The controller answered, and would not or could not do what it was asked for."""


class Asked(Struct, frozen=True, omit_defaults=True):
    """What a controller was about to be asked for last, and how its machine was before the command."""

    kind: Reset
    last_reset: str = ""
    boot: str = ""


class Turn:
    """One machine's restart. `pause` sleeps so many seconds, and raises Failed when the command is out of time.

    Before anything is asked for it is written down. One that takes this up after a kill looks whether what was asked
    for has happened, and goes on from there.
    """

    def __init__(
        self, controller: Controller, memory: Memory, pause: Callable[[float], None], *, grace_s: float
    ) -> None:
        self._controller = controller
        self._memory = memory
        self._pause = pause
        self._grace_s = grace_s
        self._before = controller.system()
        self._asked = _asked_before(memory)
        if self._asked is not None:
            self._before = self._before._replace(last_reset=self._asked.last_reset, boot=self._asked.boot)

    def restarted(self) -> str:
        """Restart the machine: as gently as it goes."""
        return self._gone_on() or self._begun(cold=False)

    def cycled(self) -> str:
        """Take power away and give it back: in one step where that is done and seen, else off, then on."""
        return self._gone_on() or self._begun(cold=True)

    # --- from the beginning, or from where it was left ---------------------------------------------------

    def _begun(self, *, cold: bool) -> str:
        if self._before.power == "Off":
            return self._switched_on("it was off and is on")
        if self._before.last_reset and not cold:
            return self._restarted(is_asked=False)
        if self._before.last_reset and self._before.allowed is not None and self._allows("PowerCycle"):
            return self._at_once("PowerCycle", "power was cycled")
        if self._allows("ForceOff"):
            return self._off_and_on(gently=not cold, is_asked=False)
        known = self._first("PowerCycle" if cold else "ForceRestart", "ForceOff")
        return self._at_once(known, "restarted by force, unseen")

    def _gone_on(self) -> str | None:
        """Go on from what was asked for before a kill; None: nothing was."""
        if self._asked is None:
            return None
        kind = self._asked.kind
        if kind in ("On", "ForceOn"):
            return self._switched_on("it was off and is on")
        if kind in ("GracefulShutdown", "ForceOff"):
            return self._off_and_on(gently=kind == "GracefulShutdown", is_asked=True)
        if kind == "GracefulRestart":
            return self._restarted(is_asked=True)
        if not self._before.last_reset:
            raise Failed(_UNSEEN)
        if self._sees(self._is_gone, _SHOWS_WITHIN_S):
            return self._up("restarted by force")
        return self._at_once(kind, "restarted by force")

    # --- ways to turn ------------------------------------------------------------------------------------

    def _restarted(self, *, is_asked: bool) -> str:
        """Restart a machine whose controller tells of resets: by force only when it does not go by itself."""
        gently = is_asked or self._asks_gently("GracefulRestart")
        if gently and self._sees(self._is_gone, self._grace_s):
            if self._controller.system().power == "Off":
                return self._switched_on("it went off and is on")
            return self._up("restarted gracefully")
        done = "restarted by force" + (", since it did not go by itself" if gently else "")
        return self._at_once(self._first("ForceRestart"), done)

    def _off_and_on(self, *, gently: bool, is_asked: bool) -> str:
        """Switch the machine off and on: both are seen by how its power stands."""
        is_asked_gently = gently and (is_asked or self._asks_gently("GracefulShutdown"))
        if is_asked_gently and self._sees(self._is_off, self._grace_s):
            return self._switched_on("shut down and switched on")
        forced_already = is_asked and not gently
        if not (forced_already and self._sees(self._is_off, _SHOWS_WITHIN_S)):
            self._ask(self._first("ForceOff"))
            self._sees(self._is_off)
        self._pause(_OFF_S)
        slow = ", since it did not shut down" if is_asked_gently else ""
        return self._switched_on(f"power was taken away and given back{slow}")

    def _at_once(self, kind: Reset, done: str) -> str:
        self._ask(kind)
        if self._before.last_reset:
            self._sees(self._is_gone)
        else:
            self._pause(_OFF_S)
        return self._up(done)

    def _switched_on(self, done: str) -> str:
        if self._is_off():
            self._ask(self._first("On", "ForceOn"))
        return self._up(done)

    # --- asking and seeing -------------------------------------------------------------------------------

    def _ask(self, kind: Reset) -> None:
        self._memory.keep(msgspec.json.encode(Asked(kind, self._before.last_reset, self._before.boot)))
        self._controller.reset(kind)

    def _asks_gently(self, kind: Reset) -> bool:
        """Return whether the controller has accepted a reset that its host may still not follow."""
        if not self._allows(kind):
            return False
        try:
            self._ask(kind)
        except Denied:
            return False
        return True

    def _sees(self, happened: Callable[[], bool], within_s: float | None = None) -> bool:
        """Wait until something has happened; whether it did within its time, which may be all that there is."""
        waited_s = 0.0
        while not happened():
            if within_s is not None and waited_s >= within_s:
                return False
            self._pause(_LOOK_EVERY_S)
            waited_s += _LOOK_EVERY_S
        return True

    def _is_gone(self) -> bool:
        now = self._controller.system()
        return now.last_reset != self._before.last_reset or now.power == "Off"

    def _is_off(self) -> bool:
        return self._controller.system().power == "Off"

    def _up(self, done: str) -> str:
        """Wait until power is on, and the system runs where the controller knew that before."""
        self._sees(self._is_up)
        return done

    def _is_up(self) -> bool:
        now = self._controller.system()
        return now.power == "On" and (self._before.boot != _RUNNING or now.boot == _RUNNING)

    def _allows(self, kind: str) -> bool:
        """Return whether a kind of reset may be asked for; a controller that lists none is asked."""
        return self._before.allowed is None or kind in self._before.allowed

    def _first(self, *kinds: Reset) -> Reset:
        known = sorted(self._before.allowed or ())
        found = next((kind for kind in kinds if self._allows(kind)), None)
        if found is None:
            raise Failed(f"the controller knows no {' or '.join(kinds)}, but {', '.join(known)}")
        return found


def _asked_before(memory: Memory) -> Asked | None:
    note = memory.recall()
    return None if note is None else msgspec.json.decode(note, type=Asked)
