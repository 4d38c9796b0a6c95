"""Records what a real KubeRay operator makes of RayJobs: one that succeeds, one that fails twice, one that is invalid.

    make record-ray        # needs a lab that brings a control plane up (LAB_KUBERNETES), and Go for the operator

The lab plays the kubelets and this the dashboard of Ray, by which the operator learns how a job does. Kept is each
object as it was seen with each of its changes (tests/data/kubernetes), for tests/unit/test_kubernetes_ray.py.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event as Flag
from threading import Thread
from typing import Any, Final
from urllib.error import URLError

import yaml
import zstandard

from faultlens.clock import SECOND_MS, wall_ms
from tests.drills.kubelab import NAMESPACE, Api, Lab, until
from tests.drills.pipeline import say

MODULE: Final = "github.com/ray-project/kuberay/ray-operator@v1.5.0"
KEPT: Final = Path(__file__).parents[1] / "data" / "kubernetes" / "ray.jsonl.zst"
PORT: Final = "27443"
PATHS: Final = {
    "RayJob": f"/apis/ray.io/v1/namespaces/{NAMESPACE}/rayjobs",
    "RayCluster": f"/apis/ray.io/v1/namespaces/{NAMESPACE}/rayclusters",
    "Job": f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs",
    "Pod": f"/api/v1/namespaces/{NAMESPACE}/pods",
}


class Recorder:
    """Looks at all objects of a few kinds again and again, and keeps what changed."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._last: dict[str, tuple[str, dict[str, Any]]] = {}
        self._stop = Flag()
        self._thread = Thread(target=self._look, daemon=True)
        self.kept: list[dict[str, Any]] = []
        self._thread.start()

    def _look(self) -> None:
        while not self._stop.wait(0.2):
            for kind, path in PATHS.items():
                with suppress(URLError, OSError):
                    self._noted(kind, self._api.ask("GET", path)["items"])

    def _noted(self, kind: str, things: list[dict[str, Any]]) -> None:
        there = {thing["metadata"]["uid"] for thing in things}
        for thing in things:
            meta = thing["metadata"]
            meta.pop("managedFields", None)
            known = self._last.get(meta["uid"])
            if known is None or known[1]["metadata"]["resourceVersion"] != meta["resourceVersion"]:
                self._last[meta["uid"]] = kind, thing
                self.kept.append({"ms": wall_ms(), "kind": kind, "object": thing})
        for uid in [uid for uid, (of, _) in self._last.items() if of == kind and uid not in there]:
            self.kept.append({"ms": wall_ms(), "kind": kind, "gone": True, "object": self._last.pop(uid)[1]})

    def close(self) -> None:
        """Look no more."""
        self._stop.set()
        self._thread.join(30)


@contextmanager
def dashboard(said: dict[str, Any]) -> Iterator[str]:
    """Yield the address of a proxy that answers for every Ray cluster: each job does as is `said`."""

    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = json.dumps({**said, "job_id": "01000000", "type": "SUBMISSION"}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Say nothing of each question."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def built(state: Path) -> tuple[Path, Path]:
    """Return the operator's program and the folder of its source; compiled where that was not done before."""
    go = shutil.which("go") or "go"
    found = subprocess.run([go, "mod", "download", "-json", MODULE], capture_output=True, check=True, timeout=300)
    program = state / "bin" / "ray-operator"
    if not program.exists():
        environment = os.environ | {"GOBIN": str(program.parent), "CGO_ENABLED": "0"}
        subprocess.run([go, "install", MODULE], env=environment, check=True, timeout=3_600)
    return program, Path(json.loads(found.stdout)["Dir"])


def defined(api: Api, source: Path) -> None:
    """Define the operator's kinds of objects."""
    for path in sorted((source / "config" / "crd" / "bases").glob("*.yaml")):
        api.make("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", yaml.safe_load(path.read_text("utf-8")))
    until("Ray's kinds to be known", lambda: api.ask("GET", PATHS["RayJob"]) is not None)


def job(name: str, **more: Any) -> dict[str, Any]:
    """Return a RayJob with a head and two workers of eight GPUs."""

    def template(gpus: str) -> dict[str, Any]:
        limits = {"cpu": "1", "memory": "2Gi", **({"nvidia.com/gpu": gpus} if gpus else {})}
        return {
            "spec": {"containers": [{"name": "ray", "image": "registry.lab/ray:2", "resources": {"limits": limits}}]}
        }

    workers = {"groupName": "gpu", "replicas": 2, "minReplicas": 2, "maxReplicas": 2, "rayStartParams": {}}
    cluster = {
        "rayVersion": "2.46.0",
        "headGroupSpec": {"rayStartParams": {}, "template": template("")},
        "workerGroupSpecs": [workers | {"template": template("8")}],
    }
    once = {"backoffLimit": 0}
    spec = {"entrypoint": "python train.py", "rayClusterSpec": cluster, "submitterConfig": once, **more}
    return {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": name}, "spec": spec}


def ended(api: Api, said: dict[str, Any], name: str, code: int, *, but: str = "") -> str:
    """Let Ray's job end, and then what submitted it; return the name of the cluster that it ran on."""
    path = f"{PATHS['RayJob']}/{name}"

    def on_another() -> str:
        status = api.ask("GET", path).get("status", {})
        cluster = str(status.get("rayClusterName", ""))
        return cluster if status.get("jobStatus") == "RUNNING" and cluster != but else ""

    cluster = str(until(f"{name} to run", on_another))
    at_ms = wall_ms()
    ends = {"status": "FAILED" if code else "SUCCEEDED", "message": f"exit code {code}", "end_time": at_ms}
    said.update({**ends, "start_time": at_ms - 20 * SECOND_MS})
    for pod in api.pods():
        owner = pod["metadata"]["ownerReferences"][0]
        if owner["kind"] == "Job" and pod["status"]["phase"] == "Running":
            api.annotate(f"{PATHS['Pod']}/{pod['metadata']['name']}", lab_exit=str(code))
    return cluster


def over(api: Api, name: str, *states: str) -> None:
    """Wait until the operator has done with a job, in one of these states."""
    path = f"{PATHS['RayJob']}/{name}"
    until(f"{name} to be over", lambda: api.ask("GET", path).get("status", {}).get("jobDeploymentStatus") in states)


def play(api: Api, said: dict[str, Any]) -> None:
    """Submit the jobs and let each come to its end."""
    running = {"status": "RUNNING", "message": "Job is currently running.", "end_time": 0}
    said.update(running)
    api.ask("POST", PATHS["RayJob"], job("tune"))
    ended(api, said, "tune", 0)
    over(api, "tune", "Complete")
    said.update(running)
    api.ask("POST", PATHS["RayJob"], job("again", backoffLimit=1))
    first = ended(api, said, "again", 1)
    until(
        "another cluster", lambda: api.ask("GET", f"{PATHS['RayJob']}/again")["status"].get("rayClusterName") != first
    )
    said.update(running)
    ended(api, said, "again", 1, but=first)
    over(api, "again", "Failed")
    api.ask("POST", PATHS["RayJob"], job("wrong", shutdownAfterJobFinishes=False, ttlSecondsAfterFinished=60))
    over(api, "wrong", "ValidationFailed", "Failed")


def main(tool: Path, state: Path) -> int:
    """Record; return 0 when all jobs came to their ends."""
    lab = Lab(tool, state / "lab", PORT)
    program, source = built(state)
    lab.up()
    said: dict[str, Any] = {}
    try:
        api = Api(lab.kubeconfig)
        api.make("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        api.make(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", {"metadata": {"name": "default"}})
        defined(api, source)
        with dashboard(said) as address, (state / "operator.log").open("wb") as log:
            away = {"KUBECONFIG": str(lab.kubeconfig), "HTTP_PROXY": address, "NO_PROXY": "127.0.0.1"}
            ports = [
                "-metrics-addr",
                "127.0.0.1:0",
                "-health-probe-bind-address",
                "127.0.0.1:0",
                "-enable-leader-election=false",
            ]
            operator = subprocess.Popen([program, *ports], env=os.environ | away, stdout=log, stderr=log)
            recorder = Recorder(api)
            try:
                play(api, said)
            finally:
                recorder.close()
                operator.terminate()
                operator.wait(60)
        KEPT.parent.mkdir(parents=True, exist_ok=True)
        lines = b"".join(json.dumps(entry, separators=(",", ":")).encode() + b"\n" for entry in recorder.kept)
        KEPT.write_bytes(zstandard.ZstdCompressor(19).compress(lines))
        say(f"{len(recorder.kept)} objects and changes of them, {KEPT.stat().st_size} bytes")
        return 0
    finally:
        lab.down()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()))
