"""Asks a Kubernetes API server over one connection, and asks again while it is away, busy, or just started."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from threading import Thread
from typing import Any, Final, NamedTuple, Protocol

import aiohttp
from kubernetes_asyncio.client import ApiClient
from kubernetes_asyncio.client.exceptions import ApiException

from actuators.programs import one_node
from actuators.sdk import Failed
from faultlens.kubernetes_access import access
from faultlens.kubernetes_marks import MANAGER

ANSWER_S: Final = 30.0
MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
_SAID_CHARS: Final = 300
_CONFLICT: Final = 409
_TOO_MANY: Final = 429
_UNAUTHORIZED: Final = 401
_FORBIDDEN: Final = frozenset({_UNAUTHORIZED, 403})
# A server that has just started forbids everything until it has read its roles (0.5 s in an empty 1.36).
_FORBIDDEN_TIMES: Final = 15


class Answer(NamedTuple):
    """What the server answers: its status (0: no answer) and the object."""

    status: int
    body: dict[str, Any]

    @property
    def is_good(self) -> bool:
        """Return whether it did what it was asked for."""
        return 200 <= self.status < 300

    @property
    def is_missing(self) -> bool:
        """Return whether there is no such object, or no such kind."""
        return self.status == 404

    @property
    def is_forbidden(self) -> bool:
        """Return whether we may not do it; what is made in a namespace that is being deleted nobody may."""
        return self.status in _FORBIDDEN and "NamespaceTerminating" not in self._causes

    @property
    def is_trouble(self) -> bool:
        """Return whether it says nothing of the object: the server is away, in trouble, or too busy for us."""
        if self.status == _TOO_MANY:
            return "DisruptionBudget" not in self._causes
        return self.status == 0 or self.status >= 500

    @property
    def _causes(self) -> set[str]:
        details = self.body.get("details") or {}
        return {str(cause.get("reason")) for cause in details.get("causes") or ()}

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
    """An API server by a kubeconfig, or as the pod's own service account. Safe to ask from several threads."""

    def __init__(self, kubeconfig: str | None) -> None:
        self._kubeconfig = kubeconfig
        self._client: ApiClient | None = None
        self._entry = asyncio.Lock()
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="kubernetes", daemon=True)
        self._thread.start()

    def __call__(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, kind: str = "application/json"
    ) -> Answer:
        """Return the answer. Raises UnreachableError, WorldError."""
        asking = asyncio.run_coroutine_threadsafe(self._asked(method, path, body, kind), self._loop)
        try:
            return asking.result()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnreachableError(str(error) or type(error).__name__) from None

    def close(self) -> None:
        """Ask no more."""
        asyncio.run_coroutine_threadsafe(self._dropped(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _asked(self, method: str, path: str, body: Mapping[str, Any] | None, kind: str) -> Answer:
        client = await self._connected()
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
            if error.status == _UNAUTHORIZED:
                # What we are known by may have been renewed: it is read again before the next question.
                await self._dropped()
            return Answer(error.status or 0, _object(error.body))

    async def _connected(self) -> ApiClient:
        async with self._entry:
            if self._client is None:
                self._client = ApiClient(await access(self._kubeconfig))
            return self._client

    async def _dropped(self) -> None:
        async with self._entry:
            client, self._client = self._client, None
        if client is not None:
            await client.close()


def _object(raw: bytes | str | None) -> dict[str, Any]:
    try:
        read = json.loads(raw or b"{}")
    except ValueError:
        return {}
    return read if isinstance(read, dict) else {}


def boot_id_of(api: Api, node: str) -> str | None:
    """Return the boot id that the node's kubelet told last; None: it is not known now."""
    try:
        found = api("GET", f"/api/v1/nodes/{one_node(node)}")
    except UnreachableError:
        return None
    # What the server says where there is no such node has a `status` of its own.
    told = found.body.get("status", {}).get("nodeInfo", {}).get("bootID") if found.is_good else None
    return str(told) if told else None


class Patient:
    """Asks until there is an answer: a server that restarts, or is too busy, is asked again after a pause.

    `pause` sleeps, and raises Failed when the command has run out of time.
    """

    def __init__(self, api: Api, pause: Callable[[], None]) -> None:
        self._api = api
        self.pause = pause

    def once(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Answer:
        """Return the answer to one question, whatever it is."""
        return self._once(method, path, body, "application/json")

    def _once(self, method: str, path: str, body: Mapping[str, Any] | None, kind: str) -> Answer:
        try:
            return self._api(method, path, body, kind=kind)
        except UnreachableError as error:
            return Answer(0, {"message": f"no answer: {error}"})

    def ask(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, kind: str = "application/json"
    ) -> Answer:
        """Return the answer, which is none of a server in trouble. Raises Failed when it may not be asked."""
        forbidden = 0
        while True:
            answer = self._once(method, path, body, kind)
            forbidden += answer.is_forbidden
            if forbidden > _FORBIDDEN_TIMES:
                raise Failed(f"may not {method} {path}: {answer.said}; deploy/kubernetes/act.yaml has the role")
            if not (answer.is_trouble or answer.is_forbidden):
                return answer
            self._wait(answer.said)

    def _wait(self, why: str) -> None:
        try:
            self.pause()
        except Failed as over:
            raise Failed(f"{over}: {why}") from None

    def change(self, path: str, patch: Callable[[dict[str, Any]], dict[str, Any] | None]) -> dict[str, Any] | None:
        """Read an object, change it by what `patch` makes of it (None: nothing), and return it as it was before.

        A change by somebody else in between is seen, and everything is looked at again. None: there is no such object.
        """
        while True:
            found = self.ask("GET", path)
            if found.is_missing:
                return None
            if not found.is_good:
                raise Failed(f"{path} cannot be read: {found.said}")
            wanted = patch(found.body)
            if wanted is None:
                return found.body
            metadata = {**wanted.get("metadata", {}), "resourceVersion": found.body["metadata"]["resourceVersion"]}
            done = self.ask("PATCH", path, {**wanted, "metadata": metadata}, kind=MERGE)
            if done.is_good:
                return found.body
            if done.status != _CONFLICT:
                raise Failed(f"{path} cannot be changed: {done.said}")
            self._wait(done.said)
