"""Records what a real KubeRay operator makes of RayJobs: one that succeeds, one that fails twice, one that is invalid.

    make record-ray        # needs a lab that brings a control plane up (LAB_KUBERNETES), and Go for the operator

The lab plays the kubelets and this the dashboard of Ray, by which the operator learns how a job does. Kept is each
object as it was seen with each of its changes (tests/data/kubernetes), for tests/unit/test_kubernetes_ray.py.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Final

from faultlens.clock import SECOND_MS, wall_ms
from tests.drills.kubelab import NAMESPACE, Api, Lab, until
from tests.drills.recording import Recorder, compiled, defined, meanwhile

MODULE: Final = "github.com/ray-project/kuberay/ray-operator@v1.5.0"
PORT: Final = "27443"
PATHS: Final = {
    "RayJob": f"/apis/ray.io/v1/namespaces/{NAMESPACE}/rayjobs",
    "RayCluster": f"/apis/ray.io/v1/namespaces/{NAMESPACE}/rayclusters",
    "Job": f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs",
    "Pod": f"/api/v1/namespaces/{NAMESPACE}/pods",
}

OPERATOR: Final = (
    "-metrics-addr",
    "127.0.0.1:0",
    "-health-probe-bind-address",
    "127.0.0.1:0",
    "-enable-leader-election=false",
)


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
    thrice = {"backoffLimit": 2}
    spec = {"entrypoint": "python train.py", "rayClusterSpec": cluster, "submitterConfig": thrice, **more}
    return {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": name}, "spec": spec}


def ended(api: Api, said: dict[str, Any], name: str, code: int, *, but: str = "") -> str:
    """Let Ray's job end, and what submitted it for the first time; return the name of the cluster that it ran on."""
    path = f"{PATHS['RayJob']}/{name}"

    def on_another() -> str:
        status = api.ask("GET", path).get("status", {})
        cluster = str(status.get("rayClusterName", ""))
        return cluster if status.get("jobStatus") == "RUNNING" and cluster != but else ""

    cluster = str(until(f"{name} to run", on_another))
    at_ms = wall_ms()
    ends = {"status": "FAILED" if code else "SUCCEEDED", "message": f"exit code {code}", "end_time": at_ms}
    said.update({**ends, "start_time": at_ms - 20 * SECOND_MS})
    _submitted(api, code)
    return cluster


def _submitted(api: Api, code: int) -> None:
    """Let what submits a job end; where it fails, Kubernetes tries it twice more."""
    for pod in api.pods():
        owner, told = pod["metadata"]["ownerReferences"][0], pod["metadata"].get("annotations", {})
        if owner["kind"] == "Job" and pod["status"]["phase"] == "Running" and "lab/exit" not in told:
            api.annotate(f"{PATHS['Pod']}/{pod['metadata']['name']}", lab_exit=str(code))


def status_of(api: Api, name: str) -> dict[str, Any]:
    """Return the status of a RayJob, while what submits it fails again and again."""
    _submitted(api, 1)
    status: dict[str, Any] = api.ask("GET", f"{PATHS['RayJob']}/{name}").get("status", {})
    return status


def over(api: Api, name: str, *states: str) -> None:
    """Wait until the operator has done with a job, in one of these states."""
    until(f"{name} to be over", lambda: status_of(api, name).get("jobDeploymentStatus") in states)


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
    until("another cluster", lambda: status_of(api, "again").get("rayClusterName") != first)
    said.update(running)
    ended(api, said, "again", 1, but=first)
    over(api, "again", "Failed")
    api.ask("POST", PATHS["RayJob"], job("wrong", shutdownAfterJobFinishes=False, ttlSecondsAfterFinished=60))
    over(api, "wrong", "ValidationFailed", "Failed")


def main(tool: Path, state: Path) -> int:
    """Record; return 0 when all jobs came to their ends."""
    lab = Lab(tool, state / "lab", PORT)
    program = state / "bin" / "ray-operator"
    source = compiled(MODULE, ".", program)
    said: dict[str, Any] = {}
    with lab.running() as api, dashboard(said) as address:
        api.make_namespace()
        defined(api, source / "config" / "crd" / "bases")
        away = {"KUBECONFIG": str(lab.kubeconfig), "HTTP_PROXY": address, "NO_PROXY": "127.0.0.1"}
        operator = meanwhile([program, *OPERATOR], state / "operator.log", **away)
        with operator, closing(Recorder(api, PATHS)) as recorder:
            play(api, said)
    recorder.write("ray")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()))
