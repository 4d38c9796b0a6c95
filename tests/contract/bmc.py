"""A management controller on loopback that answers as DMTF's mockups do, and gets into trouble when it is told to."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

SYSTEM = "/redfish/v1/Systems/437XR1138R2"
MONITOR = "/redfish/v1/TaskService/TaskMonitors/545"
INFO = f"{SYSTEM}/ResetActionInfo"
RESET = f"{SYSTEM}/Actions/ComputerSystem.Reset"
KINDS = ("On", "ForceOff", "GracefulShutdown", "GracefulRestart", "ForceRestart", "Nmi", "ForceOn", "PushPowerButton")
Answered = tuple[int, dict[str, Any] | None, dict[str, str]]
LOGIN = "Basic " + base64.b64encode(b"root:s3cret").decode()


@dataclass
class Machine:
    """What a machine does when it is looked at: each look is a step of time.

    `goes`: looks until what is asked gracefully happens; None: never. `slow`: looks until what is forced does. `comes`:
    looks until its system runs again. `downs`: how often it went down. `busy`: so many answers are 503. `tasks`: looks
    that a reset's task takes; None: it is done at once. `ends`: how a task ends. `changes`: resets that come with an
    outdated ETag. `lost`: resets that are done, and whose answers are lost. `denies`: kinds of reset that are not.
    """

    power: str = "On"
    kinds: tuple[str, ...] | None = KINDS
    tells_resets: bool = True
    tells_boot: bool = True
    by_action_info: bool = False
    systems: tuple[str, ...] = (SYSTEM,)
    goes: int | None = 1
    comes: int = 2
    busy: int = 0
    tasks: int | None = None
    ends: str = "Completed"
    changes: int = 0
    denies: tuple[str, ...] = ()
    lost: int = 0
    slow: int = 0
    resets: int = 0
    downs: int = 0
    asked: list[str] = field(default_factory=list)
    calls: int = 0
    _due: list[tuple[int, str]] = field(default_factory=list)
    _booting: int = 0
    _monitored: int = 0

    def look(self) -> None:
        self._booting = max(0, self._booting - 1)
        now = next((kind for looks, kind in self._due if looks <= 0), None)
        if now is not None:
            self._happens(now)
        # A system that has gone down has forgotten what else it was to do.
        self._due = [(looks - 1, kind) for looks, kind in self._due] if now is None else []

    def reset(self, kind: str) -> None:
        self.asked.append(kind)
        if not kind.startswith("Graceful"):
            self._due.append((self.slow, kind))
        elif self.goes is not None:
            self._due.append((self.goes, kind))

    def _happens(self, kind: str) -> None:
        self.downs += self.power == "On" and kind not in ("On", "ForceOn")
        self.power = "Off" if kind in ("ForceOff", "GracefulShutdown") else "On"
        self.resets += 1
        self._booting = self.comes

    @property
    def runs(self) -> bool:
        """Whether its system runs."""
        return self.power == "On" and not self._booting

    def answered(self, method: str, path: str, body: dict[str, Any], etag: str | None) -> Answered:
        if self.busy:
            self.busy -= 1
            return 503, _error("The service is busy."), {"Retry-After": "7"}
        if path == RESET and method == "POST":
            return self._asked(str(body.get("ResetType")), etag)
        if path in self.systems:
            self.look()
            return 200, self._shown(), {"ETag": f'W/"{self.resets}"'}
        if path == MONITOR:
            return self._monitor()
        known: dict[str, dict[str, Any]] = {
            "/redfish/v1/Systems": {"Members": [{"@odata.id": name} for name in self.systems]},
            INFO: {"Parameters": [{"Name": "ResetType", "AllowableValues": list(self.kinds or ())}]},
        }
        return (200, known[path], {}) if path in known else (404, _error("There is no such resource."), {})

    def _shown(self) -> dict[str, Any]:
        action: dict[str, Any] = {"target": RESET}
        if self.by_action_info:
            action["@Redfish.ActionInfo"] = INFO
        elif self.kinds is not None:
            action["ResetType@Redfish.AllowableValues"] = list(self.kinds)
        shown = {"PowerState": self.power, "Actions": {"#ComputerSystem.Reset": action}}
        if self.tells_resets:
            shown["LastResetTime"] = f"1970-01-01T00:00:{self.resets:02d}Z"
        if self.tells_boot:
            shown["BootProgress"] = {"LastState": "OSRunning" if self.runs else "SystemHardwareInitializationComplete"}
        return shown

    def _asked(self, kind: str, etag: str | None) -> Answered:
        if self.changes:
            self.changes -= 1
            return 412, _error("The ETag is outdated."), {}
        assert etag == f'W/"{self.resets}"'
        if self.lost:
            self.lost -= 1
            self.reset(kind)
            return 504, _error("The gateway had no answer in time."), {}
        if kind in self.denies or (self.kinds is not None and kind not in self.kinds):
            return 400, _error(f"The value {kind} is not allowed."), {}
        if self.tasks is None:
            self.reset(kind)
            return 204, None, {}
        self._monitored = self.tasks
        if self.ends == "Completed":
            self.reset(kind)
        return 202, {"TaskState": "New"}, {"Location": MONITOR, "Retry-After": "3"}

    def _monitor(self) -> Answered:
        if self._monitored:
            self._monitored -= 1
            return 202, {"TaskState": "Running"}, {"Retry-After": "3"}
        good = self.ends == "Completed"
        message = {"Message": "The operation completed." if good else "The fans do not turn."}
        return 200, {"TaskState": self.ends, "TaskStatus": "OK" if good else "Critical", "Messages": [message]}, {}


def _error(message: str) -> dict[str, Any]:
    return {"error": {"code": "Base.1.18.GeneralError", "message": "See details.", "@Message.ExtendedInfo": [
        {"MessageId": "Base.1.18.GeneralError", "Message": message}]}}  # fmt: skip


@contextmanager
def controller(machine: Machine, *, certificate: Path | None = None) -> Iterator[str]:
    """Serve the machine's controller on loopback; yield its address."""

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            machine.calls += 1
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
            wrong: Answered = (401, _error("The login is wrong."), {})
            let_in = self.headers.get("Authorization") == LOGIN
            status, answer, headers = (
                machine.answered(self.command, self.path, body, self.headers.get("If-Match")) if let_in else wrong
            )
            raw = b"" if answer is None else json.dumps(answer).encode()
            self.send_response(status)
            for name, value in {"Content-Length": str(len(raw)), "OData-Version": "4.0", **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(raw)

        do_GET = do_POST = _serve  # noqa: N815 - how the server names them

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"{'http' if certificate is None else 'https'}://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
