"""The bridge against a stand-in for an API server: pages, watches that break, versions that are gone, restarts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event as Flag
from threading import Thread
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml
from kubernetes_asyncio.client import ApiClient, Configuration

from faultlens.codec import Event
from faultlens.errors import ConfigurationError, WorldError
from faultlens.kubernetes_access import access
from producers.delivery.kept import Kept
from producers.kubernetes.bridge import KubernetesBridge, versions_in
from producers.kubernetes.telling import Names
from producers.kubernetes.translator import Translator
from producers.kubernetes.watching import RESOURCES, Cluster
from tests.unit.kubernetes_world import START_MS, ended, job, pod, running, status

ROOT = Path(__file__).parents[2]
PODS = "/api/v1/pods"
JOBS = "/apis/batch/v1/jobs"
GONE = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old resource version"}}


def bookmark(version: int) -> dict[str, Any]:
    return {"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": {"name": "", "resourceVersion": str(version)}}}


def change(what: str, thing: dict[str, Any], version: int) -> dict[str, Any]:
    return {"type": what, "object": thing | {"metadata": thing["metadata"] | {"resourceVersion": str(version)}}}


class Server:
    """Answers lists by what is there, and watches by a script: one entry a watch, then nothing new."""

    def __init__(self, lists: dict[str, list[Any]], watches: dict[str, list[list[Any]]], page: int = 1) -> None:
        self.lists = lists
        self.watches = watches
        self.page = page
        self.asked: list[tuple[str, str]] = []
        self.statuses: dict[str, int] = {}
        self.is_quiet = Flag()

    def answer(self, path: str, query: dict[str, str]) -> tuple[int, list[Any]]:
        if path in self.statuses:
            return self.statuses[path], [{"kind": "Status", "message": "pods is forbidden", "code": 403}]
        if path not in self.lists:
            return 404, []
        if "watch" in query:
            self.asked.append((path, query["resourceVersion"]))
            script = self.watches.get(path, [])
            if script:
                return 200, script.pop(0)
            if path == PODS:
                self.is_quiet.set()
            return 200, []
        first = int(query.get("continue", "0"))
        items = self.lists[path][first : first + self.page]
        more = str(first + self.page) if first + self.page < len(self.lists[path]) else ""
        return 200, [{"metadata": {"resourceVersion": "100", "continue": more}, "items": items}]


@pytest.fixture
def serve() -> Iterator[Any]:
    servers: list[ThreadingHTTPServer] = []

    def start(server: Server) -> str:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.0"
            ours: ClassVar[Server] = server

            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                code, lines = self.ours.answer(parts.path, {k: v[0] for k, v in parse_qs(parts.query).items()})
                self.send_response(code)
                self.end_headers()
                self.wfile.write(b"".join(json.dumps(line).encode() + b"\n" for line in lines))

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as the library names it
                return

        http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(http)
        Thread(target=http.serve_forever, args=(0.01,), daemon=True).start()
        return f"http://127.0.0.1:{http.server_port}"

    yield start
    for http in servers:
        http.shutdown()
        http.server_close()


class Sink:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def put(self, event: Event) -> None:
        self.events.append(event)

    def said(self) -> list[str]:
        told = [event.type.split(".")[2] for event in self.events]
        return [what for what in told if what != "alive"]


def bridged(url: str, server: Server, place: Path, sink: Sink) -> dict[str, str]:
    """Run a bridge until the server has no more to say; return the versions it began from."""
    kept = Kept(place / "kept")
    saved = kept.all()
    stop = Flag()

    async def run() -> None:
        cluster = Cluster(ApiClient(Configuration(host=url)))
        bridge = KubernetesBridge(Translator(Names("c1"), saved=saved), kept, sink, now_ms=lambda: START_MS + 200_000)
        running = asyncio.create_task(bridge.run(cluster, versions_in(saved), stop))
        quiet = asyncio.create_task(asyncio.to_thread(server.is_quiet.wait, 10))
        await asyncio.wait([running, quiet], return_when=asyncio.FIRST_COMPLETED)
        server.is_quiet.set()
        stop.set()
        try:
            await asyncio.wait_for(running, 10)
        finally:
            await cluster.close()

    asyncio.run(run())
    kept.close()
    return versions_in(saved)


def test_lists_come_in_pages_and_watches_go_on_from_the_last_bookmark(serve: Any, tmp_path: Path) -> None:
    pods = [pod(f"train-{n}", node=f"gpu-{n}") for n in range(3)]
    begun = [
        change("MODIFIED", one | {"status": one["status"] | status(running())}, 101 + n) for n, one in enumerate(pods)
    ]
    server = Server({JOBS: [job(pods=3)], PODS: pods}, {PODS: [begun, [bookmark(150)]]})
    sink = Sink()
    bridged(serve(server), server, tmp_path, sink)
    assert sink.said() == ["submitted", "allocated", "allocated", "allocated", "started"]
    assert [version for path, version in server.asked if path == PODS][:3] == ["100", "103", "150"]


def test_a_single_look_tells_what_is_there_and_the_next_one_what_is_new(serve: Any, tmp_path: Path) -> None:
    server = Server({JOBS: [job()], PODS: [pod()]}, {})
    url, sink = serve(server), Sink()
    looked(url, tmp_path, sink)
    server.lists[PODS] = [pod(phase="Failed", **status(ended(1, 60)))]
    looked(url, tmp_path, sink)
    looked(url, tmp_path, sink)
    assert sink.said() == ["submitted", "allocated", "started", "rank_exited"]
    assert server.asked == []


def test_what_cannot_be_listed_is_told_by_a_single_look(serve: Any, tmp_path: Path) -> None:
    server = Server({PODS: [{"metadata": []}]}, {})
    with pytest.raises(WorldError, match=f"{PODS} cannot be listed"):
        looked(serve(server), tmp_path, Sink())


def looked(url: str, place: Path, sink: Sink) -> None:
    """Look once, with what earlier looks remembered."""
    kept = Kept(place / "kept")

    async def look() -> None:
        cluster = Cluster(ApiClient(Configuration(host=url)))
        bridge = KubernetesBridge(
            Translator(Names("c1"), saved=kept.all()), kept, sink, now_ms=lambda: START_MS + 70_000
        )
        try:
            await bridge.once(cluster)
        finally:
            await cluster.close()

    asyncio.run(look())
    kept.close()


@pytest.mark.parametrize("content", [b"", b"\x00\xffbinary", b"- a\n- list\n", b"kind: Config\n"])
def test_a_kubeconfig_that_is_none_is_told_as_that(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match="config"):
        asyncio.run(access(str(path)))


def test_without_any_kubeconfig_it_is_said_where_one_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/one:{tmp_path}/two")
    with pytest.raises(WorldError, match=rf"no kubeconfig at {tmp_path}/one or {tmp_path}/two; give --kubeconfig"):
        asyncio.run(access(None))


def test_a_version_that_is_gone_is_listed_again_and_what_was_missed_is_told_once(serve: Any, tmp_path: Path) -> None:
    failed = pod(phase="Failed", **status(ended(1, 60)))
    server = Server({JOBS: [job()], PODS: [pod()]}, {PODS: [[GONE]]})
    listed = server.answer

    def later(path: str, query: dict[str, str]) -> tuple[int, list[Any]]:
        found = listed(path, query)
        if path == PODS and "watch" in query:
            server.lists[PODS] = [failed]
        return found

    server.answer = later  # type: ignore[method-assign]
    sink = Sink()
    bridged(serve(server), server, tmp_path, sink)
    assert sink.said() == ["submitted", "allocated", "started", "rank_exited"]


def test_a_bridge_that_starts_again_goes_on_from_where_it_was(serve: Any, tmp_path: Path) -> None:
    server = Server({JOBS: [job()], PODS: [pod()]}, {})
    sink = Sink()
    url = serve(server)
    bridged(url, server, tmp_path, sink)
    told = len(sink.said())
    failed = pod(phase="Failed", **status(ended(1, 60)))
    server.watches[PODS] = [[change("MODIFIED", failed, 120)]]
    server.is_quiet.clear()
    server.asked.clear()
    assert bridged(url, server, tmp_path, sink) == {"Job": "100", "Pod": "100"}
    assert sink.said()[told:] == ["started", "rank_exited"]
    assert (PODS, "100") in server.asked


def test_the_role_in_the_manifest_covers_what_is_watched_and_nothing_else() -> None:
    documents = yaml.safe_load_all((ROOT / "deploy" / "kubernetes" / "bridge.yaml").read_text("utf-8"))
    role = next(document for document in documents if document["kind"] == "ClusterRole")
    granted = {(group, name) for rule in role["rules"] for group in rule["apiGroups"] for name in rule["resources"]}
    parts = [resource.path.strip("/").split("/") for resource in RESOURCES]
    assert granted == {("" if path[0] == "api" else path[1], path[-1]) for path in parts}
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"list", "watch"}


def test_a_missing_permission_is_told_at_once_with_what_to_do(serve: Any, tmp_path: Path) -> None:
    server = Server({PODS: []}, {})
    server.statuses[PODS] = 403
    with pytest.raises(WorldError, match=r"pods is forbidden; deploy/kubernetes/bridge\.yaml has the role"):
        bridged(serve(server), server, tmp_path, Sink())
