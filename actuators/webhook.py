"""A signed HTTP call: any action that something else carries out, and tickets."""

from __future__ import annotations

import hmac
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from hashlib import sha256
from http.client import HTTPException
from typing import Any, ClassVar, Final

import msgspec

from actuators.others_words import bounded, one_line
from actuators.sdk import Actuator, Beat, Failed, Refused
from faultlens.errors import UsageError
from faultlens.events import Action, RemediationCommand
from faultlens.hooks import open_hook

TIMEOUT_S: Final = 30.0
SIGNATURE: Final = "X-Faultlens-Signature"
_BODY_BYTES: Final = 1024 * 1024
_ANSWER_BYTES: Final = 64 * 1024
_REASON_CHARS: Final = 300
_ATTEMPTS: Final = 5
_FIRST_PAUSE_S: Final = 1.0
_encode: Final = msgspec.json.Encoder(order="sorted").encode

Bundle = Callable[[RemediationCommand], Mapping[str, Any]]


def signature(secret: bytes, at_s: int, body: bytes) -> str:
    """Return what proves that the body is ours and of that time: `t=…,v1=HMAC-SHA256(secret, "t.body")`."""
    return f"t={at_s},v1={hmac.new(secret, str(at_s).encode() + b'.' + body, sha256).hexdigest()}"


class Webhook(Actuator):
    """Posts each command as JSON to one address.

    The answer is 2xx with `{"state": "succeeded" | "failed" | "refused", "reason": …}`, or 2xx without a state, which
    counts as done. The command id is the idempotency key: the same call may come twice.
    """

    name: ClassVar[str] = "webhook"

    def __init__(
        self,
        url: str,
        secret: bytes,
        *,
        actions: frozenset[Action],
        sleep: Callable[[float], None],
        now_s: Callable[[], int],
        bundle: Bundle = lambda _command: {},
    ) -> None:
        """UsageError: the address is no http(s) one. `bundle`: what is sent beside the command."""
        if not url.startswith(("https://", "http://")):
            raise UsageError(f"{url!r}: give an address that begins with https://")
        self.actions = actions
        self._url = url
        self._secret = secret
        self._sleep = sleep
        self._now_s = now_s
        self._bundle = bundle

    def do(self, command: RemediationCommand, beat: Beat) -> str:
        """Post the command, again where the other side could not be reached."""
        body = _encode({"command": command, **bounded(self._bundle(command))})
        if len(body) > _BODY_BYTES:
            body = _encode({"command": command, "evidence": {"known": False, "why": f"it has {len(body)} bytes"}})
        pause_s = _FIRST_PAUSE_S
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return self._posted(command, body)
            except _UnreachableError as error:
                if attempt == _ATTEMPTS:
                    raise Failed(f"{error} ({attempt} times)") from None
            self._sleep(pause_s)
            beat()
            pause_s *= 2
        raise AssertionError("the last attempt returns or raises")

    def _posted(self, command: RemediationCommand, body: bytes) -> str:
        headers = {
            "Content-Type": "application/json",
            "Idempotency-Key": command.command_id,
            SIGNATURE: signature(self._secret, self._now_s(), body),
        }
        request = urllib.request.Request(self._url, body, headers)  # noqa: S310 - http(s), checked above
        try:
            with open_hook(request, timeout=TIMEOUT_S) as answer:
                raw = answer.read(_ANSWER_BYTES)
                if answer.length and len(raw) < _ANSWER_BYTES:
                    raise _UnreachableError("cannot be reached: it broke off in its answer")
                return _read(raw)
        except urllib.error.HTTPError as error:
            if error.code >= 500 or error.code == 429:
                raise _UnreachableError(f"answered {error.code}") from None
            raise Failed(f"answered {error.code}") from None
        except (OSError, HTTPException) as error:
            raise _UnreachableError(f"cannot be reached: {error}") from None


class _UnreachableError(Exception):
    """The other side may answer when it is asked again."""


def _read(raw: bytes) -> str:
    try:
        said = json.loads(raw) if raw.strip() else {}
    except (ValueError, RecursionError):
        said = {}
    if not isinstance(said, dict):
        return "accepted"
    reason = one_line(said.get("reason") or "", limit=_REASON_CHARS)
    if said.get("state") == "failed":
        raise Failed(reason or "it says that it failed")
    if said.get("state") == "refused":
        raise Refused(reason or "it refuses")
    return reason or "accepted"
