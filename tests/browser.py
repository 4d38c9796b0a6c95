"""A real browser, driven over a pipe in its own protocol: pages are looked at and forms sent as people do."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

CHROMIUM: Final = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no browser here (Debian: chromium)")
_FLAGS: Final = (
    "--headless=new --no-sandbox --disable-gpu --hide-scrollbars --no-first-run --disable-background-networking "
    "--disable-component-update --disable-extensions"
)


class Browser:
    """One tab."""

    def __init__(self, process: subprocess.Popen[bytes], to: int, back: int) -> None:
        self._process, self._to, self._back = process, to, back
        self._number, self._read = 0, b""
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.send("Page.enable")
        self.send("Log.enable")
        self.complaints: list[str] = []

    def open(self, url: str) -> None:
        """Go to a page and wait until it is there."""
        self.send("Page.navigate", url=url)
        self._until("Page.loadEventFired")

    def submit(self, form: str, **values: str) -> None:
        """Fill a form by the names of its fields, send it as its button does, and wait for the page that follows."""
        fill = "".join(f"f.elements[{name!r}].value={json.dumps(value)};" for name, value in values.items())
        self.evaluate(f"const f=document.querySelector({form!r});{fill}f.requestSubmit();true")
        self._until("Page.loadEventFired")

    def evaluate(self, script: str) -> Any:
        """Return what an expression is worth in the page."""
        result = self.send("Runtime.evaluate", expression=f"(()=>{{{script}}})()" if ";" in script else script)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def resize(self, width: int, height: int = 1200) -> None:
        """Be a screen of that size."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def send(self, method: str, **params: Any) -> Any:
        """Carry out a command of the protocol on the tab."""
        return self._call(method, session=self._session, **params)

    def _call(self, method: str, *, session: str | None = None, **params: Any) -> Any:
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        os.write(self._to, json.dumps(message | ({"sessionId": session} if session else {})).encode() + b"\0")
        while (answer := self._next()).get("id") != self._number:
            pass
        assert "error" not in answer, answer
        return answer["result"]

    def _until(self, event: str) -> None:
        while self._next().get("method") != event:
            pass

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._read:
            part = os.read(self._back, 1 << 16)
            assert part, "the browser has ended"
            self._read += part
        raw, _, self._read = self._read.partition(b"\0")
        message: dict[str, Any] = json.loads(raw)
        if message.get("method") == "Log.entryAdded":
            self.complaints.append(message["params"]["entry"]["text"])
        return message


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """Start a browser with a new profile."""
    reads, to = os.pipe()
    back, writes = os.pipe()
    command = f"exec {CHROMIUM} {_FLAGS} --user-data-dir={profile} --remote-debugging-pipe 3<&{reads} 4>&{writes}"
    process = subprocess.Popen(
        ["/bin/bash", "-c", command],
        pass_fds=(reads, writes),
        stderr=subprocess.DEVNULL,
    )
    os.close(reads)
    os.close(writes)
    try:
        yield Browser(process, to, back)
    finally:
        process.kill()
        process.wait()
        os.close(to)
        os.close(back)
