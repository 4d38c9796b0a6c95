"""Power of machines by their management controllers (Redfish): restarts, and power taken away and given back."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Final

from pydantic import BaseModel, ConfigDict, Field, model_validator

from actuators.programs import one_node
from actuators.redfish import Bmc, Denied, Redfish, System
from actuators.sdk import Actuator, Beat, Failed, Refused
from faultlens.errors import ConfigurationError
from faultlens.events import Action, RemediationCommand
from faultlens.yaml_lines import load_model

_LOOK_EVERY_S: Final = 5.0
# So long a host has to go by itself before it is restarted by force: systemd gives a service 90 s to stop.
_GRACE_S: Final = 300.0
_OFF_S: Final = 10.0
_RUNNING: Final = "OSRunning"


class _Login(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str | None = Field(default=None, pattern=r"^https?://[^/@\s]+$")
    user: str | None = Field(default=None, min_length=1)
    password_file: Path | None = None
    system: str | None = None


class PowerFile(BaseModel):
    """How controllers are reached: `url` has `{node}` in it, and what is said of a single node is laid over that."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str | None = Field(default=None, pattern=r"^https?://[^/@\s]*\{node\}[^/@\s]*$")
    user: str = Field(min_length=1)
    password_file: Path
    system: str | None = None
    ca: Path | None = None
    verify: bool = True
    nodes: dict[str, _Login] = Field(default={}, max_length=100_000)

    @model_validator(mode="after")
    def _in_clear_only_when_told(self) -> PowerFile:
        urls = [self.url, *(login.url for login in self.nodes.values())]
        if self.verify and any(url is not None and url.startswith("http:") for url in urls):
            raise ValueError("a password would go out in clear: give https:// addresses, or say verify: false")
        return self

    def bmc(self, node: str) -> Bmc:
        """Return the controller of a node. Refused: none is known. ConfigurationError: its password cannot be read."""
        own = self.nodes.get(node, _Login())
        url = own.url or (None if self.url is None else self.url.replace("{node}", node))
        if url is None:
            raise Refused(f"unsupported: no controller is known for {node}")
        path = own.password_file or self.password_file
        try:
            password = path.read_text("utf-8").partition("\n")[0].strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"password_file: {path} cannot be read: {error}") from None
        if not password:
            raise ConfigurationError(f"password_file: {path} is empty: its first line is the password")
        return Bmc(url, own.user or self.user, password, own.system or self.system)

    def tls(self) -> ssl.SSLContext:
        """Return whom to trust. ConfigurationError: `ca` cannot be read."""
        try:
            trust = ssl.create_default_context(cafile=None if self.ca is None else str(self.ca))
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(f"ca: {self.ca} cannot be read: {error}") from None
        if not self.verify:
            trust.check_hostname = False
            trust.verify_mode = ssl.CERT_NONE
        return trust


def load_power(path: Path) -> PowerFile:
    """Return the file of controllers. ConfigurationError names file and line of what is wrong."""
    return load_model(path, PowerFile)


class Power(Actuator):
    """Restarts machines and cycles their power, and sees that they went and came.

    A restart is asked for gracefully where the controller tells of resets, so that one that did not happen is seen, and
    made by force when the machine did not go. What was begun before a kill is done again: the machine is out anyway.
    """

    name: ClassVar[str] = "power"
    actions: frozenset[Action] = frozenset({"reboot", "power_cycle"})

    def __init__(self, controllers: PowerFile, *, sleep: Callable[[float], None], grace_s: float = _GRACE_S) -> None:
        self._controllers = controllers
        self._tls = controllers.tls()
        self._sleep = sleep
        self._grace_s = grace_s

    def do(self, command: RemediationCommand, beat: Beat) -> str:
        """Carry the command out: the machine went, and its power is on again, when this returns."""
        node = one_node(command.node)

        def pause(seconds: float) -> None:
            self._sleep(seconds)
            beat()

        controller = Redfish(self._controllers.bmc(node), self._tls, pause)
        turn = _Turn(controller, controller.system(), pause, self._grace_s)
        return turn.cycled() if command.action == "power_cycle" else turn.restarted()


class _Turn:
    """One machine's restart, from how it was before."""

    def __init__(self, controller: Redfish, before: System, pause: Callable[[float], None], grace_s: float) -> None:
        self._controller = controller
        self._before = before
        self._pause = pause
        self._grace_s = grace_s

    def restarted(self) -> str:
        """Restart the machine: as gently as it goes."""
        if self._before.power == "Off":
            return self._switched_on("it was off and is on")
        if self._allows("GracefulRestart") and self._before.last_reset and self._went_by_itself():
            return self._up("restarted gracefully")
        gently = self._allows("GracefulRestart") and self._before.last_reset
        self._controller.reset(self._first("ForceRestart"))
        self._went()
        return self._up("restarted by force" + (", since it did not go by itself" if gently else ""))

    def cycled(self) -> str:
        """Take power away and give it back: in one step where the controller says that it can, else off, then on."""
        if self._before.power == "Off":
            return self._switched_on("it was off and is on")
        if self._before.allowed is not None and self._allows("PowerCycle"):
            self._controller.reset("PowerCycle")
            self._went()
            return self._up("power was cycled")
        self._controller.reset(self._first("ForceOff"))
        while self._controller.system().power != "Off":
            self._pause(_LOOK_EVERY_S)
        self._pause(_OFF_S)
        return self._switched_on("power was taken away and given back")

    def _switched_on(self, done: str) -> str:
        self._controller.reset(self._first("On", "ForceOn"))
        return self._up(done)

    def _went_by_itself(self) -> bool:
        """Ask for a graceful restart; whether the machine went within its time."""
        try:
            self._controller.reset("GracefulRestart")
        except Denied:
            return False
        waited_s = 0.0
        while not self._is_gone():
            if waited_s >= self._grace_s:
                return False
            self._pause(_LOOK_EVERY_S)
            waited_s += _LOOK_EVERY_S
        return True

    def _went(self) -> None:
        """Wait until a reset that was forced has happened; where the controller does not tell of it, a moment."""
        if not self._before.last_reset:
            self._pause(_OFF_S)
            return
        while not self._is_gone():
            self._pause(_LOOK_EVERY_S)

    def _is_gone(self) -> bool:
        now = self._controller.system()
        return now.last_reset != self._before.last_reset or now.power == "Off"

    def _up(self, done: str) -> str:
        """Wait until power is on, and the system runs where the controller knew that before."""
        while True:
            now = self._controller.system()
            if now.power == "On" and (self._before.boot != _RUNNING or now.boot == _RUNNING):
                return done
            self._pause(_LOOK_EVERY_S)

    def _allows(self, kind: str) -> bool:
        """Return whether a kind of reset may be asked for; a controller that lists none is asked."""
        return self._before.allowed is None or kind in self._before.allowed

    def _first(self, *kinds: str) -> str:
        known = sorted(self._before.allowed or ())
        found = next((kind for kind in kinds if self._allows(kind)), None)
        if found is None:
            raise Failed(f"the controller knows no {' or '.join(kinds)}, but {', '.join(known)}")
        return found
