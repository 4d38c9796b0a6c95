"""Asks a Kubernetes API server, and asks again while it is away; nothing is kept between two questions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol

import aiohttp
from kubernetes_asyncio.client import ApiClient
from kubernetes_asyncio.client.exceptions import ApiException

from actuators.sdk import Failed
from faultlens.kubernetes_access import access
from faultlens.kubernetes_marks import MANAGER

ANSWER_S: Final = 30.0
MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
_SAID_CHARS: Final = 300
_CONFLICT: Final = 409


class Answer(NamedTuple):
    """What the server answers: its status and the object."""

    status: int
    body: dict[str, Any]

    @property
    def is_good(self) -> bool:
        """Return whether it did what it was asked for."""
        return 200 <= self.status < 300

    @property
    def said(self) -> str:
        """Return what the server says of it, briefly."""
        return str(self.body.get("message", ""))[:_SAID_CHARS] or f"status {self.status}"


class UnreachableError(Exception):
    """The server does not answer now."""


class Api(Protocol):
    """What can be asked; UnreachableError where there is no answer."""

    def __call__(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, kind: str = "application/json"
    ) -> Answer:
        """Return the answer, whatever its status."""
        ...


class KubernetesApi:
    """An API server by a kubeconfig, or as the pod's own service account; each question is a connection of its own."""

    def __init__(self, kubeconfig: str | None) -> None:
        self._kubeconfig = kubeconfig

    def __call__(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, kind: str = "application/json"
    ) -> Answer:
        """Return the answer. Raises UnreachableError, WorldError."""
        try:
            return asyncio.run(self._asked(method, path, body, kind))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnreachableError(str(error) or type(error).__name__) from None

    async def _asked(self, method: str, path: str, body: Mapping[str, Any] | None, kind: str) -> Answer:
        client = ApiClient(await access(self._kubeconfig))
        try:
            answer = await client.call_api(
                path,
                method,
                query_params=[("fieldManager", MANAGER)] if method in ("PATCH", "POST") else [],
                header_params={"Accept": "application/json", "Content-Type": kind},
                body=body,
                auth_settings=["BearerToken"],
                _preload_content=False,
                _return_http_data_only=True,
                _request_timeout=aiohttp.ClientTimeout(total=ANSWER_S, sock_connect=10),
            )
            return Answer(answer.status, _object(await answer.read()))
        except ApiException as error:
            return Answer(error.status or 0, _object(error.body))
        finally:
            await client.close()


def _object(raw: bytes | str | None) -> dict[str, Any]:
    try:
        read = json.loads(raw or b"{}")
    except ValueError:
        return {}
    return read if isinstance(read, dict) else {}


class Patient:
    """Asks until there is an answer: a server that restarts, or is too busy, is asked again after a pause.

    `pause` sleeps, and raises Failed when the command has run out of time.
    """

    def __init__(self, api: Api, pause: Callable[[], None]) -> None:
        self._api = api
        self.pause = pause

    def ask(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, kind: str = "application/json"
    ) -> Answer:
        """Return the answer, which is none of a server in trouble. Raises Failed when it may not be asked."""
        while True:
            try:
                answer = self._api(method, path, body, kind=kind)
            except UnreachableError:
                self.pause()
                continue
            if answer.status in (401, 403):
                raise Failed(f"may not {method} {path}: {answer.said}; deploy/kubernetes/act.yaml has the role")
            if answer.status < 500:
                return answer
            self.pause()

    def change(self, path: str, patch: Callable[[dict[str, Any]], dict[str, Any] | None]) -> dict[str, Any] | None:
        """Read an object, change it by what `patch` makes of it (None: nothing), and return it as it was before.

        A change by somebody else in between is seen, and everything is looked at again. None: there is no such object.
        """
        while True:
            found = self.ask("GET", path)
            if found.status == 404:
                return None
            wanted = patch(found.body)
            if wanted is None:
                return found.body
            metadata = {**wanted.get("metadata", {}), "resourceVersion": found.body["metadata"]["resourceVersion"]}
            done = self.ask("PATCH", path, {**wanted, "metadata": metadata}, kind=MERGE)
            if done.is_good:
                return found.body
            if done.status != _CONFLICT:
                raise Failed(f"{path} cannot be changed: {done.said}")
