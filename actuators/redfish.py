"""A machine's management controller by Redfish: how its power stands, and restarts that are followed to their end."""

from __future__ import annotations

import base64
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from email.message import Message
from typing import Any, Final, NamedTuple
from urllib.parse import urljoin, urlsplit

from actuators.sdk import Failed
from actuators.turning import Denied, System
from faultlens.hooks import open_hook

ANSWER_S: Final = 30.0
_ANSWER_BYTES: Final = 1024 * 1024
_SAID_CHARS: Final = 300
_BUSY: Final = frozenset({408, 429, 500, 502, 503, 504})
# With these, as without an answer, what was asked for may have been done or not.
_UNCLEAR: Final = frozenset({0, 500, 502, 504})
_CHANGED: Final = 412
_ROUNDS: Final = 5
_GOES_ON: Final = frozenset(
    {"New", "Starting", "Running", "Suspended", "Pending", "Stopping", "Service", "Cancelling", "Interrupted"}
)
_RESET: Final = "#ComputerSystem.Reset"
_MEMBERS_MAX: Final = 64
# A forced reset whose answer was lost shows within a minute.
_LOOK_EVERY_S: Final = 5.0
_LOOKS: Final = 12


class Bmc(NamedTuple):
    """Where a controller is and how to log in; `system`: the id of its system, where it has more than one."""

    url: str
    user: str
    password: str
    system: str | None = None


class Answer(NamedTuple):
    """What the controller answers: its status, the object, and where it says that the rest is to be found."""

    status: int
    body: dict[str, Any]
    location: str | None = None
    etag: str | None = None
    retry_after_s: float | None = None


class Redfish:
    """One controller. `pause` sleeps so many seconds, and raises Failed when the command has run out of time.

    Redirects are not followed and nothing is asked anywhere else: what a controller says of where to go on is a path.
    """

    def __init__(self, bmc: Bmc, tls: ssl.SSLContext | None, pause: Callable[[float], None]) -> None:
        self._bmc = bmc
        self._tls = tls
        self._pause = pause
        self._path = ""
        login = base64.b64encode(f"{bmc.user}:{bmc.password}".encode()).decode("ascii")
        self._headers = {"Accept": "application/json", "OData-Version": "4.0", "Authorization": f"Basic {login}"}

    def system(self) -> System:
        """Return the machine's system as it is now. Raises Failed: there is none, or it is not clear which."""
        self._path = self._path or self._path_of_system()
        found = self._ask("GET", self._path)
        action = _object(_object(found.body.get("Actions")).get(_RESET))
        target = action.get("target")
        if not isinstance(target, str):
            raise Failed("the controller does not say how its system is reset")
        allowed = action.get("ResetType@Redfish.AllowableValues") or self._allowed(action)
        kinds = frozenset(str(kind) for kind in allowed) if allowed else None
        power, last_reset = (str(found.body.get(name) or "") for name in ("PowerState", "LastResetTime"))
        boot = str(_object(found.body.get("BootProgress")).get("LastState") or "")
        return System(_path(target), power, kinds, last_reset, boot, found.etag)

    def reset(self, kind: str) -> None:
        """Ask for a reset and wait for the task that carries it out, if it is one. Raises Denied, Failed."""
        done = self._asked_for(kind)
        if done.status == 202:
            self._followed(done)
        elif done.status >= 300:
            raise Denied(f"{kind}: {_said(done)}")

    def _asked_for(self, kind: str) -> Answer:
        """Return the answer to one reset. One whose answer was lost is not asked for again while it may still happen.

        What a host may take minutes for counts as asked; what is forced, once it has not shown in its time.
        """
        before, changed = self.system(), 0
        while True:
            system = self.system()
            match = {"If-Match": system.etag} if system.etag else {}
            answer = self._let_in(self._once("POST", system.target, {"ResetType": kind}, match))
            if answer.status in _UNCLEAR:
                if kind.startswith("Graceful") or self._shows(before):
                    return Answer(204, {})
            elif answer.status in _BUSY:
                self._pause(answer.retry_after_s or 2.0)
            elif answer.status == _CHANGED and changed < _ROUNDS:
                # Somebody changed the system since it was read: it is looked at again.
                changed += 1
                self._pause(1.0)
            else:
                return answer

    def _shows(self, before: System) -> bool:
        for _ in range(_LOOKS):
            self._pause(_LOOK_EVERY_S)
            system = self.system()
            if (system.power, system.last_reset) != (before.power, before.last_reset):
                return True
        return False

    # --- reading ---------------------------------------------------------------------------------------

    def _path_of_system(self) -> str:
        systems = self._ask("GET", "/redfish/v1/Systems").body.get("Members")
        members = systems[:_MEMBERS_MAX] if isinstance(systems, list) else []
        paths = [_path(str(_object(member).get("@odata.id", ""))) for member in members]
        if self._bmc.system is not None:
            paths = [path for path in paths if path.rstrip("/").rpartition("/")[2] == self._bmc.system]
        if len(paths) != 1:
            wanted = "one system" if self._bmc.system is None else f"a system {self._bmc.system!r}"
            raise Failed(f"the controller has {len(paths)} that fit, and {wanted} is needed: say which in `system`")
        return paths[0]

    def _allowed(self, action: Mapping[str, Any]) -> list[Any]:
        """Return the kinds of reset where these are told apart from the system (`@Redfish.ActionInfo`)."""
        where = action.get("@Redfish.ActionInfo")
        if not isinstance(where, str):
            return []
        parameters = self._ask("GET", _path(where)).body.get("Parameters")
        known = [_object(p) for p in parameters] if isinstance(parameters, list) else []
        return next((list(p.get("AllowableValues") or ()) for p in known if p.get("Name") == "ResetType"), [])

    def _followed(self, asked: Answer) -> None:
        """Wait for a task by its monitor: 202 while it goes on, then the answer itself."""
        where = asked.location or str(asked.body.get("@odata.id") or "")
        if not where:
            return  # it was accepted, and nothing says where to ask; the machine's state tells
        answer = asked
        while True:
            self._pause(answer.retry_after_s or 2.0)
            answer = self._answer("GET", _path(where))
            if answer.status == 404:
                return  # a monitor may be gone once it has told the end
            if answer.status not in (200, 202, 204):
                raise Denied(f"its task ended: {_said(answer)}")
            state = str(answer.body.get("TaskState") or "")
            if answer.status == 202 or state in _GOES_ON:
                continue
            if state in ("", "Completed") and str(answer.body.get("TaskStatus") or "OK") in ("OK", "Warning"):
                return
            raise Denied(f"its task ended as {state}: {_said(answer)}")

    # --- asking ----------------------------------------------------------------------------------------

    def _ask(self, method: str, path: str) -> Answer:
        answer = self._answer(method, path)
        if answer.status >= 300:
            raise Failed(f"{path}: {_said(answer)}")
        return answer

    def _answer(self, method: str, path: str) -> Answer:
        """Return the answer; a controller that is away or busy is asked again until the command is out of time."""
        while True:
            answer = self._let_in(self._once(method, path))
            if answer.status and answer.status not in _BUSY:
                return answer
            self._pause(answer.retry_after_s or 2.0)

    def _let_in(self, answer: Answer) -> Answer:
        if answer.status in (401, 403):
            raise Failed(f"the controller does not let {self._bmc.user} in: {_said(answer)}")
        return answer

    def _once(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, more: Mapping[str, str] | None = None
    ) -> Answer:
        raw = None if body is None else json.dumps(body).encode()
        headers = {**self._headers, **(more or {}), **({} if raw is None else {"Content-Type": "application/json"})}
        url = urljoin(self._bmc.url, path)
        request = urllib.request.Request(url, raw, headers, method=method)  # noqa: S310 - http(s), as the file says
        try:
            with open_hook(request, timeout=ANSWER_S, tls=self._tls) as answer:
                return _answer_of(answer.status, answer.headers, answer.read(_ANSWER_BYTES))
        except urllib.error.HTTPError as error:
            with error:
                return _answer_of(error.code, error.headers, error.read(_ANSWER_BYTES))
        except (OSError, urllib.error.URLError) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, ssl.SSLCertVerificationError):
                raise Failed(f"the controller's certificate is not trusted: {reason.verify_message}") from None
            return Answer(0, {})


def _answer_of(status: int, headers: Message, raw: bytes) -> Answer:
    try:
        body = json.loads(raw) if raw.strip() else {}
    except ValueError:
        body = {}
    wait = headers.get("Retry-After") or ""
    return Answer(
        status, _object(body), headers.get("Location"), headers.get("ETag"), float(wait) if wait.isdigit() else None
    )


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _path(where: str) -> str:
    """Return the path of an address on this controller: whatever else it names is not gone to with our password."""
    path = urlsplit(where).path
    if not path.startswith("/"):
        raise Failed(f"the controller names {where[:80]!r}, which is no path of it")
    return path


def _said(answer: Answer) -> str:
    """Return what an answer says went wrong, in its own words, the most special first."""
    error = _object(answer.body.get("error"))
    told = error.get("@Message.ExtendedInfo") or answer.body.get("Messages") or ()
    words = (
        [str(_object(message).get("Message") or "") for message in told if message] if isinstance(told, list) else []
    )
    said = next((word for word in words if word), str(error.get("message") or ""))
    return f"status {answer.status}" + (f": {said[:_SAID_CHARS]}" if said else "")
