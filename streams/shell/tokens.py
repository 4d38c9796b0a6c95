"""Tokens of an OpenID provider for Faust's client; librdkafka asks for its own."""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64encode
from typing import Final
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import msgspec
from aiokafka.abc import AbstractTokenProvider
from msgspec import Struct

from faultlens.clock import monotonic_s
from faultlens.kafka import Identity

_ANSWER_SECONDS: Final = 20.0
# A token is asked for anew when this part of its life is over.
_USED_SHARE: Final = 0.8


class _Answer(Struct):
    access_token: str
    expires_in: float = 300.0


class ClientTokens(AbstractTokenProvider):  # type: ignore[misc]
    """Asks for tokens by the client-credentials grant, and keeps each while it is good."""

    def __init__(self, identity: Identity, tls: ssl.SSLContext | None) -> None:
        self._identity = identity
        self._tls = tls
        self._token = ""
        self._good_until_s = 0.0

    async def token(self) -> str:
        """Return a token that is good now; OSError or msgspec.DecodeError where the provider gives none."""
        if monotonic_s() >= self._good_until_s:
            asked_s = monotonic_s()
            answer = await asyncio.get_running_loop().run_in_executor(None, self._ask)
            self._token, self._good_until_s = answer.access_token, asked_s + _USED_SHARE * answer.expires_in
        return self._token

    def _ask(self) -> _Answer:
        identity = self._identity
        form = {"grant_type": "client_credentials"} | ({"scope": identity.scope} if identity.scope else {})
        client = b64encode(f"{identity.name}:{identity.secret.get_secret_value()}".encode()).decode("ascii")
        request = Request(  # noqa: S310 - the address is a setting
            identity.token_url or "", urlencode(form).encode(), {"Authorization": f"Basic {client}"}
        )
        with urlopen(request, timeout=_ANSWER_SECONDS, context=self._tls) as answer:  # noqa: S310
            return msgspec.json.decode(answer.read(), type=_Answer)
