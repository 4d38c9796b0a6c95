"""Lists and watches Kubernetes' objects: each kind is listed once, then followed from where it was left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, Literal, NamedTuple

import aiohttp
import msgspec
import structlog
from kubernetes_asyncio.client import ApiClient
from kubernetes_asyncio.client.exceptions import ApiException
from msgspec import Raw, Struct

from faultlens.errors import WorldError
from faultlens.kubernetes_access import access, no_way
from faultlens.kubernetes_marks import DEVICE_TAINT_RULES
from producers.kubernetes.reading import read_object

PAGE: Final = 500
# The server ends a watch after this, and it is begun again from the last bookmark.
WATCH_S: Final = 300
ANSWER_S: Final = 60.0
FIRST_WAIT_S: Final = 0.5
LONGEST_WAIT_S: Final = 30.0
# An object is at most 1.5 MB in etcd.
LINE_BYTES: Final = 8 << 20
GONE: Final = 410
_log: Final = structlog.get_logger("faultlens.bridge")


class Resource(NamedTuple):
    """A kind of objects, where its API has it, and which of them are asked for."""

    kind: str
    path: str
    fields: str = ""


# What pods rest on comes before pods, so that they are understood when they are listed.
RESOURCES: Final = (
    Resource("Node", "/api/v1/nodes"),
    Resource("ResourceSlice", "/apis/resource.k8s.io/v1/resourceslices"),
    Resource("DeviceTaintRule", DEVICE_TAINT_RULES),
    Resource("ResourceClaim", "/apis/resource.k8s.io/v1/resourceclaims"),
    Resource("TrainJob", "/apis/trainer.kubeflow.org/v1alpha1/trainjobs"),
    Resource("RayJob", "/apis/ray.io/v1/rayjobs"),
    Resource("RayService", "/apis/ray.io/v1/rayservices"),
    Resource("RayCluster", "/apis/ray.io/v1/rayclusters"),
    Resource("LeaderWorkerSet", "/apis/leaderworkerset.x-k8s.io/v1/leaderworkersets"),
    Resource("JobSet", "/apis/jobset.x-k8s.io/v1alpha2/jobsets"),
    Resource("PyTorchJob", "/apis/kubeflow.org/v1/pytorchjobs"),
    Resource("MPIJob", "/apis/kubeflow.org/v1/mpijobs"),
    Resource("Job", "/apis/batch/v1/jobs"),
    Resource("Deployment", "/apis/apps/v1/deployments"),
    Resource("StatefulSet", "/apis/apps/v1/statefulsets"),
    Resource("Pod", "/api/v1/pods"),
    Resource("Event", "/api/v1/events", "type=Warning"),
)


class Change(NamedTuple):
    """What a watch brought: an object as it is now, or was last; or all uids of a list; or only how far it has come.

    `heard`: the server answers; `lost`: it does not.
    """

    resource: Resource
    what: Literal["seen", "deleted", "listed", "marked", "heard", "lost"]
    thing: Any
    version: str | None


class _Metadata(Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class _List(Struct):
    metadata: _Metadata
    items: list[Raw] | None = None


class _Named(Struct):
    class _Meta(Struct, rename="camel"):
        uid: str = ""
        name: str = ""
        resource_version: str = ""

    metadata: _Meta = msgspec.field(default_factory=_Meta)


class _Line(Struct):
    type: str
    object: Raw


class _Status(Struct):
    code: int = 0
    message: str = ""


_read_list: Final = msgspec.json.Decoder(_List).decode
_read_line: Final = msgspec.json.Decoder(_Line).decode
_read_named: Final = msgspec.json.Decoder(_Named).decode
_read_status: Final = msgspec.json.Decoder(_Status).decode


class _GoneError(Exception):
    """The place that a watch was to go on from is too old: everything has to be listed again."""


class Cluster:
    """The API server. `unreadable`: objects that were passed over, since they are not what their kind promises."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self.unreadable = 0

    @classmethod
    async def connect(cls, kubeconfig: str | None) -> Cluster:
        """Return the cluster by a kubeconfig, or as the pod's own service account. WorldError: there is neither."""
        try:
            return cls(ApiClient(await access(kubeconfig)))
        except OSError as error:
            raise no_way(error) from None

    async def close(self) -> None:
        """Leave it."""
        await self._client.close()

    async def get(self, path: str, query: dict[str, str], timeout_s: float) -> aiohttp.ClientResponse:
        """Return the answer to a question, whatever its status; its body is yet to be read."""
        answer: aiohttp.ClientResponse = await self._client.call_api(
            path,
            "GET",
            query_params=list(query.items()),
            header_params={"Accept": "application/json"},
            auth_settings=["BearerToken"],
            _preload_content=False,
            _return_http_data_only=True,
            _request_timeout=aiohttp.ClientTimeout(total=timeout_s, sock_connect=10),
        )
        return answer

    async def has(self, resource: Resource) -> bool:
        """Return whether the cluster has the kind, and lets us list it. WorldError: it does not answer."""
        try:
            answer = await self.get(resource.path, {"limit": "1"}, ANSWER_S)
            body = await answer.read()
        except ApiException as error:
            answer_status, body = error.status or 0, str(error.body).encode()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise WorldError(f"Kubernetes does not answer: {error}") from None
        else:
            answer_status = answer.status
        if answer_status == 403:
            raise WorldError(f"may not list {resource.path}: {_said(body)}; deploy/kubernetes/bridge.yaml has the role")
        if answer_status not in (200, 404):
            raise WorldError(f"{resource.path} answers {answer_status}: {_said(body)}")
        return answer_status == 200

    async def follow(self, resource: Resource, version: str | None, put: Callable[[Change], Any]) -> None:
        """List and watch a kind for ever, from `version` on where one is given; every change is awaited into `put`."""
        wait_s = FIRST_WAIT_S
        while True:
            try:
                if version is None:
                    version = await self._listed(resource, put)
                before = version
                async for change in self._watched(resource, version):
                    version = change.version or version
                    await put(change)
                    wait_s = wait_s if change.what == "heard" else FIRST_WAIT_S
                if version == before:
                    await asyncio.sleep(FIRST_WAIT_S)  # a server that ends watches at once is not asked all the time
            except _GoneError:
                _log.info("too far behind: listing again", kind=resource.kind)
                version = None
            except (aiohttp.ClientError, ApiException, TimeoutError, OSError, msgspec.DecodeError) as error:
                _log.warning("Kubernetes could not be watched", kind=resource.kind, error=str(error)[:300])
                await put(Change(resource, "lost", None, None))
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, LONGEST_WAIT_S)

    async def seen(self, resource: Resource, put: Callable[[Change], Any]) -> None:
        """List a kind once; every object is awaited into `put`. WorldError: it cannot be listed."""
        try:
            await self._listed(resource, put)
        except (aiohttp.ClientError, ApiException, TimeoutError, OSError, msgspec.DecodeError, _GoneError) as error:
            raise WorldError(f"{resource.path} cannot be listed: {str(error)[:300]}") from None

    async def _listed(self, resource: Resource, put: Callable[[Change], Any]) -> str:
        """List everything in pages, and return the version to watch from."""
        there: set[str] = set()
        query = {"limit": str(PAGE)} | ({"fieldSelector": resource.fields} if resource.fields else {})
        while True:
            answer = await self.get(resource.path, query, ANSWER_S)
            body = await answer.read()
            _refuse(answer.status, body)
            page = _read_list(body)
            for raw in page.items or []:
                meta = _read_named(raw).metadata
                there.add(meta.name if resource.kind == "Node" else meta.uid)
                thing = self._read(resource, raw)
                if thing is not None:
                    await put(Change(resource, "seen", thing, None))
            if not page.metadata.continue_:
                await put(Change(resource, "listed", there, page.metadata.resource_version))
                return page.metadata.resource_version
            query["continue"] = page.metadata.continue_

    async def _watched(self, resource: Resource, version: str) -> AsyncIterator[Change]:
        """Yield what changes from a version on, until the server ends the watch."""
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(WATCH_S),
        } | ({"fieldSelector": resource.fields} if resource.fields else {})
        answer = await self.get(resource.path, query, WATCH_S + ANSWER_S)
        async with answer:
            if answer.status != 200:
                _refuse(answer.status, await answer.read())
            yield Change(resource, "heard", None, None)
            async for raw in _lines(answer.content):
                line = _read_line(raw)
                if line.type == "ERROR":
                    status = _read_status(line.object)
                    _refuse(status.code or 500, line.object)
                meta = _read_named(line.object).metadata
                if line.type == "BOOKMARK":
                    yield Change(resource, "marked", None, meta.resource_version)
                    continue
                thing = self._read(resource, line.object)
                what: Literal["seen", "deleted", "marked"] = "deleted" if line.type == "DELETED" else "seen"
                yield Change(resource, what if thing is not None else "marked", thing, meta.resource_version)

    def _read(self, resource: Resource, raw: Raw) -> Any:
        try:
            thing = read_object(resource.kind, raw)
        except msgspec.DecodeError as error:
            self.unreadable += 1
            _log.warning("an object cannot be read", kind=resource.kind, error=str(error))
            return None
        # Items of a list do not say what they are.
        return msgspec.structs.replace(thing, kind=resource.kind) if hasattr(thing, "kind") else thing


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Yield the lines of a stream; one may be as long as an object is large."""
    rest = b""
    async for chunk in content.iter_any():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            if line:
                yield line
        if len(rest) > LINE_BYTES:
            raise aiohttp.ClientPayloadError(f"a line of more than {LINE_BYTES} bytes")


def _refuse(status: int, body: bytes | Raw) -> None:
    """Raise what is wrong with an answer, if something is."""
    if status == GONE:
        raise _GoneError
    if status != 200:
        raise aiohttp.ClientError(f"{status}: {_said(body)}")


def _said(body: bytes | Raw) -> str:
    try:
        return _read_status(body).message or str(bytes(body)[:200])
    except msgspec.DecodeError:
        return str(bytes(body)[:200])
