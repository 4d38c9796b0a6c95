"""Records what the real controllers of JobSet, LeaderWorkerSet and Kubeflow Trainer make of jobs that go wrong.

    make record-controllers        # needs a lab that brings a control plane up (LAB_KUBERNETES), and Go for them

The lab plays the kubelets. Kept is each object as it was seen with each of its changes (tests/data/kubernetes), for
tests/unit/test_kubernetes_controllers.py.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from tests.drills.kubelab import NAMESPACE, Api, Lab, until
from tests.drills.pipeline import say
from tests.drills.recording import Recorder, compiled, defined, meanwhile

PORT: Final = "27543"
PATHS: Final = {
    "TrainJob": f"/apis/trainer.kubeflow.org/v1alpha1/namespaces/{NAMESPACE}/trainjobs",
    "JobSet": f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{NAMESPACE}/jobsets",
    "LeaderWorkerSet": f"/apis/leaderworkerset.x-k8s.io/v1/namespaces/{NAMESPACE}/leaderworkersets",
    "Job": f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs",
    "StatefulSet": f"/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets",
    "Pod": f"/api/v1/namespaces/{NAMESPACE}/pods",
}
RUNTIMES: Final = "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes"
CONTAINER: Final = {
    "name": "main",
    "image": "registry.lab/train:1",
    "resources": {"limits": {"cpu": "1", "memory": "2Gi", "nvidia.com/gpu": "8"}},
}


class Controller(NamedTuple):
    """A controller: its module and main package there, and where its kinds and its hooks are described.

    `api`: of its configuration. `hook_port`: where it is asked about objects before they are made; `pods`: the label of
    the pods of which it is asked too.
    """

    name: str
    module: str
    main: str
    kinds: str
    api: str
    hook_port: int
    hooks: str = ""
    pods: str = ""
    more: Mapping[str, Any] = {}


_OWN_CERTIFICATE: Final = {"internalCertManagement": {"enable": False}, "metrics": {"bindAddress": "0"}}
CONTROLLERS: Final = (
    Controller(
        "jobset", "sigs.k8s.io/jobset@v0.10.1", ".", "config/components/crd/bases", "config.jobset.x-k8s.io/v1alpha1",
        27551, "config/components/webhook/manifests.yaml", "jobset.sigs.k8s.io/jobset-name", _OWN_CERTIFICATE,
    ),
    Controller(
        "lws", "sigs.k8s.io/lws@v0.7.0", "./cmd", "config/crd/bases", "config.lws.x-k8s.io/v1alpha1",
        27552, "config/webhook/manifests.yaml", "leaderworkerset.sigs.k8s.io/name", _OWN_CERTIFICATE,
    ),
    Controller(
        "trainer", "github.com/kubeflow/trainer/v2@v2.1.0", "./cmd/trainer-controller-manager", "manifests/base/crds",
        "config.trainer.kubeflow.org/v1alpha1", 27553,
        more={"certManagement": {"enable": False}, "metrics": {"bindAddress": "0", "secureServing": False}},
    ),
)  # fmt: skip


def certificate(folder: Path) -> bytes:
    """Return a certificate for loopback, which is left with its key where a controller looks for it by default."""
    place = folder / "k8s-webhook-server" / "serving-certs"
    place.mkdir(parents=True, exist_ok=True)
    wanted = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1"
    left = ["-keyout", str(place / "tls.key"), "-out", str(place / "tls.crt")]
    openssl = shutil.which("openssl") or "openssl"
    subprocess.run([openssl, *wanted.split(), *left], check=True, capture_output=True, timeout=60)
    return (place / "tls.crt").read_bytes()


def hooked(api: Api, controller: Controller, manifests: Path, authority: bytes) -> None:
    """Have the server ask a controller about objects before they are made, as an installation does."""
    for document in yaml.safe_load_all(manifests.read_text("utf-8")):
        for hook in document["webhooks"]:
            path = hook["clientConfig"]["service"]["path"]
            url = f"https://127.0.0.1:{controller.hook_port}{path}"
            hook["clientConfig"] = {"url": url, "caBundle": b64encode(authority).decode()}
            if any("pods" in rule["resources"] for rule in hook["rules"]):
                hook["objectSelector"] = {"matchExpressions": [{"key": controller.pods, "operator": "Exists"}]}
        document["metadata"]["name"] = f"{controller.name}-{document['kind'].lower()}"
        kind = f"{document['kind'].lower()}s"
        api.make(f"/apis/admissionregistration.k8s.io/v1/{kind}", document)


@contextmanager
def running(api: Api, kubeconfig: Path, controller: Controller, state: Path) -> Iterator[Path]:
    """Run a controller; yield the folder of its source."""
    program = state / "bin" / controller.name
    source = compiled(controller.module, controller.main, program)
    defined(api, source / controller.kinds)
    folder = state / controller.name
    authority = certificate(folder)
    hooks = {"port": controller.hook_port, "host": "127.0.0.1"}
    if controller.hooks:
        hooks["certDir"] = str(folder / "k8s-webhook-server" / "serving-certs")
        hooked(api, controller, source / controller.hooks, authority)
    says = {"leaderElection": {"leaderElect": False}, "health": {"healthProbeBindAddress": "0"}, "webhook": hooks}
    settings = folder / "settings.yaml"
    settings.write_text(
        yaml.safe_dump({"apiVersion": controller.api, "kind": "Configuration", **says, **controller.more})
    )
    with meanwhile(
        [program, "--config", str(settings)], folder / "log", KUBECONFIG=str(kubeconfig), TMPDIR=str(folder)
    ):
        yield source


def pods(api: Api, label: str, value: str) -> list[dict[str, Any]]:
    """Return the pods with this label that run, by their names."""
    there = [pod for pod in api.pods() if pod["metadata"]["labels"].get(label) == value]
    ready = [pod for pod in there if pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]]
    return sorted(ready, key=lambda pod: str(pod["metadata"]["name"]))


def run(api: Api, label: str, value: str, count: int, but: frozenset[str] = frozenset()) -> list[dict[str, Any]]:
    """Wait until so many pods run that are none of those before."""

    def all_of_them() -> list[dict[str, Any]]:
        new = [pod for pod in pods(api, label, value) if pod["metadata"]["uid"] not in but]
        return new if len(new) == count else []

    return list(until(f"{count} pods of {value} to run", all_of_them))


def end(api: Api, pod: dict[str, Any], code: int, reason: str | None = None) -> None:
    """Let a pod's container end."""
    api.annotate(f"{PATHS['Pod']}/{pod['metadata']['name']}", lab_exit=str(code), lab_reason=reason)


def uids(found: list[dict[str, Any]]) -> frozenset[str]:
    return frozenset(str(pod["metadata"]["uid"]) for pod in found)


def jobset(name: str, **more: Any) -> dict[str, Any]:
    """Return a JobSet of two jobs with a pod each."""
    pod = {"spec": {"restartPolicy": "Never", "containers": [CONTAINER]}}
    job = {"spec": {"backoffLimit": 0, "parallelism": 1, "completions": 1, "template": pod}}
    spec = {"replicatedJobs": [{"name": "workers", "replicas": 2, "template": job}], **more}
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": name}, "spec": spec}


def of_jobset(api: Api) -> None:
    """A JobSet that restarts all after one failed and then succeeds, and one that does not."""
    label = "jobset.sigs.k8s.io/jobset-name"
    api.ask("POST", PATHS["JobSet"], jobset("gang", failurePolicy={"maxRestarts": 1}))
    api.ask("POST", PATHS["JobSet"], jobset("once"))
    first, once = run(api, label, "gang", 2), run(api, label, "once", 2)
    end(api, first[1], 1)
    end(api, once[0], 137, "OOMKilled")
    for pod in run(api, label, "gang", 2, uids(first)):
        end(api, pod, 0)
    for name, word in (("gang", "Completed"), ("once", "Failed")):
        _over(api, "JobSet", name, word)


def of_leader_worker_set(api: Api) -> None:
    """Two groups of a leader with a worker, of which one fails, so that its group is made anew."""
    spec = {
        "replicas": 2,
        "leaderWorkerTemplate": {
            "size": 2,
            "restartPolicy": "RecreateGroupOnPodRestart",
            "workerTemplate": {"spec": {"containers": [CONTAINER]}},
        },
    }
    thing = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": {"name": "serve"}}
    api.ask("POST", PATHS["LeaderWorkerSet"], thing | {"spec": spec})
    label = "leaderworkerset.sigs.k8s.io/name"
    first = run(api, label, "serve", 4)
    group = [pod for pod in first if pod["metadata"]["labels"]["leaderworkerset.sigs.k8s.io/group-index"] == "0"]
    end(api, group[1], 139)
    run(api, label, "serve", 2, uids(first))
    until("all four pods to run", lambda: len(pods(api, label, "serve")) == 4)


def of_trainer(api: Api, source: Path) -> None:
    """A TrainJob of two nodes whose pod is replaced after a failure, and one that a person deletes."""
    runtime = yaml.safe_load((source / "manifests/base/runtimes/torch_distributed.yaml").read_text("utf-8"))
    api.make(RUNTIMES, runtime)
    limits = CONTAINER["resources"]
    for name in ("train", "stopped"):
        trainer = {"image": "registry.lab/train:1", "numNodes": 2, "resourcesPerNode": limits}
        spec = {"runtimeRef": {"name": "torch-distributed"}, "trainer": trainer}
        thing = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": name}}
        api.ask("POST", PATHS["TrainJob"], thing | {"spec": spec})
    label = "jobset.sigs.k8s.io/jobset-name"
    first = run(api, label, "train", 2)
    run(api, label, "stopped", 2)
    end(api, first[0], 1)
    again = run(api, label, "train", 1, uids(first))
    api.ask("DELETE", f"{PATHS['TrainJob']}/stopped", {"propagationPolicy": "Background"})
    for pod in (first[1], again[0]):
        end(api, pod, 0)
    _over(api, "TrainJob", "train", "Complete")
    gone = "the pods of what was deleted to go"
    until(gone, lambda: all(pod["metadata"]["labels"].get(label) != "stopped" for pod in api.pods()))


def _over(api: Api, kind: str, name: str, word: str) -> None:
    """Wait until an object's conditions have this word."""

    def said() -> bool:
        conditions = api.ask("GET", f"{PATHS[kind]}/{name}").get("status", {}).get("conditions", [])
        return any(condition["type"] == word and condition["status"] == "True" for condition in conditions)

    until(f"{name} to be {word}", said)


def main(tool: Path, state: Path) -> int:
    """Record; return 0 when all jobs came to their ends."""
    lab = Lab(tool, state / "lab", PORT)
    with lab.running() as api, ExitStack() as stack:
        api.make_namespace()
        sources = {c.name: stack.enter_context(running(api, lab.kubeconfig, c, state)) for c in CONTROLLERS}
        with closing(Recorder(api, PATHS)) as recorder:
            of_jobset(api)
            say("JobSets are over")
            of_leader_worker_set(api)
            say("a group was made anew")
            of_trainer(api, sources["trainer"])
    recorder.write("controllers")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()))
