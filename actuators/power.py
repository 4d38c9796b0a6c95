"""Power of machines by their management controllers (Redfish, IPMI): restarts, and power taken away and given back."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Final
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, model_validator

from actuators.ipmi import PORT, Ipmi, IpmiBmc, Run, run_tool
from actuators.ledger import Ledger
from actuators.programs import one_node
from actuators.redfish import Bmc, Redfish
from actuators.sdk import Actuator, Beat, Refused
from actuators.turning import Controller, Turn
from faultlens.errors import ConfigurationError
from faultlens.events import Action, RemediationCommand
from faultlens.yaml_lines import load_model

# So long a host has to go by itself before it is restarted by force: systemd gives a service 90 s to stop.
_GRACE_S: Final = 300.0
_IPMI: Final = "ipmi"
_SCHEMES: Final = "(?:https?|ipmi)"


class _Login(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str | None = Field(default=None, pattern=rf"^{_SCHEMES}://[^/@\s]+$")
    user: str | None = Field(default=None, min_length=1)
    password_file: Path | None = None
    system: str | None = None


class PowerFile(BaseModel):
    """How controllers are reached: `url` has `{node}` in it, and what is said of a single node is laid over that."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str | None = Field(default=None, pattern=rf"^{_SCHEMES}://[^/@\s]*\{{node\}}[^/@\s]*$")
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

    def bmc(self, node: str) -> Bmc | IpmiBmc:
        """Return the controller of a node. Refused: none is known. ConfigurationError: its password cannot be read."""
        own = self.nodes.get(node, _Login())
        url = own.url or (None if self.url is None else self.url.replace("{node}", node))
        if url is None:
            raise Refused(f"unsupported: no controller is known for {node}")
        user, path = own.user or self.user, own.password_file or self.password_file
        password = _password_in(path)
        if not url.startswith(f"{_IPMI}:"):
            return Bmc(url, user, password, own.system or self.system)
        where = urlsplit(url)
        return IpmiBmc(where.hostname or "", where.port or PORT, user, path)

    @property
    def names_ipmi(self) -> bool:
        """Whether a controller is reached by IPMI."""
        urls = [self.url, *(login.url for login in self.nodes.values())]
        return any(url is not None and url.startswith(f"{_IPMI}:") for url in urls)

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


def _password_in(path: Path) -> str:
    try:
        password = path.read_text("utf-8").partition("\n")[0].strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"password_file: {path} cannot be read: {error}") from None
    if not password:
        raise ConfigurationError(f"password_file: {path} is empty: its first line is the password")
    return password


def load_power(path: Path) -> PowerFile:
    """Return the file of controllers. ConfigurationError names file and line of what is wrong."""
    return load_model(path, PowerFile)


class Power(Actuator):
    """Restarts machines and cycles their power, and sees that they went and came.

    A restart is asked for gracefully, and made by force when the machine did not go. What is asked for is in the ledger
    before that: one that is killed goes on from there, and restarts no machine twice.
    """

    name: ClassVar[str] = "power"
    actions: frozenset[Action] = frozenset({"reboot", "power_cycle"})

    def __init__(
        self,
        controllers: PowerFile,
        ledger: Ledger,
        *,
        sleep: Callable[[float], None],
        execute: Run = run_tool,
        grace_s: float = _GRACE_S,
    ) -> None:
        self._controllers = controllers
        self._ledger = ledger
        self._tls = controllers.tls()
        self._sleep = sleep
        self._run = execute
        self._grace_s = grace_s

    def do(self, command: RemediationCommand, beat: Beat) -> str:
        """Carry the command out: the machine went, and its power is on again, when this returns."""

        def pause(seconds: float) -> None:
            self._sleep(seconds)
            beat()

        controller = self._controller(one_node(command.node), pause)
        turn = Turn(controller, self._ledger.memory_of(command.command_id), pause, grace_s=self._grace_s)
        return turn.cycled() if command.action == "power_cycle" else turn.restarted()

    def _controller(self, node: str, pause: Callable[[float], None]) -> Controller:
        bmc = self._controllers.bmc(node)
        return Ipmi(bmc, pause, self._run) if isinstance(bmc, IpmiBmc) else Redfish(bmc, self._tls, pause)
