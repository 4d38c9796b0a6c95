"""A control plane on loopback that a drill plays upon, and the kubelet of nodes that nobody else plays."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from threading import Event as Flag
from threading import Thread
from time import monotonic, sleep
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import yaml

from faultlens.clock import iso, wall_ms

NAMESPACE: Final = "drill"
MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
BEAT_S: Final = 3.0
PRESSURES: Final = ("MemoryPressure", "DiskPressure", "PIDPressure")
PATIENCE_S: Final = 120.0
BASE_PORT: Final = "26443"
SECOND_PORT: Final = "26449"


def now() -> str:
    """Return the time as the API writes it."""
    return iso(wall_ms())


class Api:
    """The API server, by a kubeconfig with a token."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text("utf-8"))
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self._server = cluster["server"]
        self._token = user["token"]
        authority = cluster.get("certificate-authority")
        data = b64decode(cluster["certificate-authority-data"]).decode() if authority is None else None
        self._tls = ssl.create_default_context(cafile=authority, cadata=data)

    def ask(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
        """Return the answer. HTTPError, URLError as they come."""
        request = Request(  # noqa: S310 - the address is of our own lab
            self._server + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self._token}", "Content-Type": kind, "Accept": "application/json"},
        )
        try:
            with urlopen(request, timeout=20, context=self._tls) as answer:  # noqa: S310
                return json.loads(answer.read())
        except HTTPError as error:
            error.msg = f"{error.msg}: {error.read()[:500].decode('utf-8', 'replace')}"
            raise

    def watch(self, path: str, lasts_s: int = 900) -> Iterator[dict[str, Any]]:
        """Yield each change of the objects in a list, from what is there on, until it breaks or lasts that long."""
        request = Request(  # noqa: S310 - the address is of our own lab
            f"{self._server}{path}?watch=1&timeoutSeconds={lasts_s}", headers={"Authorization": f"Bearer {self._token}"}
        )
        with urlopen(request, timeout=lasts_s, context=self._tls) as answer:  # noqa: S310
            for line in answer:
                yield json.loads(line)

    def make(self, path: str, thing: dict[str, Any]) -> Any:
        """Make an object; one that is there already stays as it is."""
        try:
            return self.ask("POST", path, thing)
        except HTTPError as error:
            if error.code != 409:
                raise
            return None

    def make_namespace(self) -> None:
        """Make the drill's namespace, with the account that its pods run as."""
        self.make("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        self.make(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", {"metadata": {"name": "default"}})

    def pods(self, job: str = "") -> list[dict[str, Any]]:
        """Return the pods of the drill, or of one of its jobs."""
        selector = f"?labelSelector=job-name%3D{job}" if job else ""
        return list(self.ask("GET", f"/api/v1/namespaces/{NAMESPACE}/pods{selector}")["items"])

    def patch_pod(self, pod: str, status: dict[str, Any]) -> None:
        """Change a pod's status, as its kubelet would."""
        self.ask("PATCH", f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}/status", {"status": status}, MERGE)

    def annotate(self, path: str, **annotations: str | None) -> None:
        """Annotate an object; None takes an annotation away."""
        named = {name.replace("_", "/"): value for name, value in annotations.items()}
        self.ask("PATCH", path, {"metadata": {"annotations": named}}, MERGE)


class Kubelet:
    """Plays the kubelet of nodes of its own: it beats for them, and lets go of pods that are to be deleted."""

    def __init__(self, api: Api, nodes: tuple[str, ...]) -> None:
        self._api = api
        self._nodes = nodes
        self._stop = Flag()
        self._thread = Thread(target=self._beat, daemon=True)

    def start(self) -> None:
        """Make the nodes and begin to beat."""
        for name in self._nodes:
            labels = {"kubernetes.io/hostname": name, "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
            self._api.make("/api/v1/nodes", {"metadata": {"name": name, "labels": labels}})
            amounts = {"cpu": "96", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": "8"}
            self._api.ask(
                "PATCH",
                f"/api/v1/nodes/{name}/status",
                {"status": {"capacity": amounts, "allocatable": amounts, "nodeInfo": {"bootID": f"boot-{name}"}}},
                STRATEGIC,
            )
        self._thread.start()

    def _beat(self) -> None:
        while not self._stop.wait(BEAT_S):
            # The API server is taken down in the drill; kubelets go on trying.
            with suppress(URLError, OSError):
                self._once()

    def _once(self) -> None:
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "message": "kubelet is posting ready status",
        }
        for name in self._nodes:
            known = self._api.ask("GET", f"/api/v1/nodes/{name}")["status"].get("conditions", [])
            since = next(
                (c["lastTransitionTime"] for c in known if c["type"] == "Ready" and c["status"] == "True"), now()
            )
            times = {"lastHeartbeatTime": now(), "lastTransitionTime": since}
            well = [{"type": type_, "status": "False", "reason": "KubeletSaysSo"} for type_ in PRESSURES]
            beat = {"conditions": [condition | times for condition in (ready, *well)]}
            self._api.ask("PATCH", f"/api/v1/nodes/{name}/status", {"status": beat}, STRATEGIC)
        for pod in self._api.pods():
            meta = pod["metadata"]
            if meta.get("deletionTimestamp") and pod["spec"].get("nodeName") in self._nodes:
                path = f"/api/v1/namespaces/{NAMESPACE}/pods/{meta['name']}"
                self._api.ask("DELETE", path, {"gracePeriodSeconds": 0})

    def stop(self) -> None:
        """Beat no more."""
        self._stop.set()
        self._thread.join(30)


def until(what: str, holds: Callable[[], Any], patience_s: float = PATIENCE_S) -> Any:
    """Return what holds once it does; a drill that waits too long has failed."""
    deadline = monotonic() + patience_s
    while True:
        with suppress(URLError, OSError):
            found = holds()
            if found:
                return found
        if monotonic() > deadline:
            raise TimeoutError(f"gave up after {patience_s:.0f} s: {what}")
        sleep(0.5)


class Lab:
    """The tool that brings the control plane up, and its state directory."""

    def __init__(self, tool: Path, state: Path, port: str = BASE_PORT) -> None:
        self._tool = tool
        self._environment = os.environ | {"LAB": str(state), "BASE_PORT": port}
        self.kubeconfig = state / "etc" / "kubeconfig"

    def up(self) -> None:
        """Start what does not run."""
        subprocess.run([self._tool / "up.sh"], env=self._environment, check=True, timeout=3_600)

    @contextmanager
    def running(self) -> Iterator[Api]:
        """Bring it up; stop everything and forget it in the end."""
        self.up()
        try:
            yield Api(self.kubeconfig)
        finally:
            subprocess.run([self._tool / "down.sh", "--wipe"], env=self._environment, check=False, timeout=120)

    def restart_api_server(self) -> Iterator[None]:
        """Take the API server down; go on when it is asked for again."""
        self._script("stop apiserver")
        yield
        self.up()

    @contextmanager
    def second_api_server(self, folder: Path, **flags: str) -> Iterator[Path]:
        """Yield a kubeconfig of another API server over the same data, with other flags."""
        kubeconfig = folder / "second"
        kubeconfig.write_text(self.kubeconfig.read_text("utf-8").replace(f":{BASE_PORT}", f":{SECOND_PORT}"), "utf-8")
        with self._like("apiserver", folder, {"secure_port": SECOND_PORT, **flags}):
            until("a second API server", lambda: Api(kubeconfig).ask("GET", "/api/v1/nodes"))
            yield kubeconfig

    @contextmanager
    def other_controllers(self, folder: Path, **flags: str) -> Iterator[None]:
        """Run the controllers with other flags meanwhile."""
        with self._like("controller-manager", folder, flags, instead=True):
            yield
        self.up()

    @contextmanager
    def _like(self, name: str, folder: Path, flags: dict[str, str], *, instead: bool = False) -> Iterator[None]:
        """Run one of the lab's programs once more, with other flags, beside or instead of it."""
        pid = int((self.kubeconfig.parents[1] / "run" / f"{name}.started").read_text("utf-8").split()[0])
        program = str(Path(f"/proc/{pid}/exe").resolve())
        words = Path(f"/proc/{pid}/cmdline").read_text("utf-8").split("\0")[1:-1]
        changed = {f"--{flag.replace('_', '-')}": value for flag, value in flags.items()}
        command = [program, *(changed.get(before, word) for before, word in pairwise(["", *words]))]
        if instead:
            self._script(f"stop {name}")
        with (folder / f"{name}.out").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            process.wait(60)

    def _script(self, text: str) -> None:
        command = f". {self._tool / 'lib.sh'}; {text}"
        subprocess.run(["bash", "-c", command], env=self._environment, check=True, timeout=60)  # noqa: S607
