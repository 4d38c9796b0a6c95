"""Repairs by a job on the node: one job, that node alone, and a restart that is seen."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

pytest.importorskip("kubernetes_asyncio", reason="the Kubernetes client is not installed (extra `kubernetes`)")

from actuators.kubernetes import Beyond, Kubernetes
from actuators.kubernetes_api import Answer
from actuators.kubernetes_jobs import JobsFile, load_jobs
from actuators.ledger import Ledger
from faultlens.clock import MINUTE_MS, moment_of
from faultlens.errors import ConfigurationError
from faultlens.events import DeviceRef, RemediationCommand
from faultlens.kubernetes_marks import INCIDENT
from tests.contract.acting import DRAIN, T0, Bench, Clock
from tests.contract.kubernetes_fake import FakeKubernetes, failure

UUID = "GPU-12345678-aaaa-bbbb-cccc-000000000001"
RESET = replace(DRAIN, action="reset_device", command_id="r1", device=DeviceRef(index=3, uuid=UUID))
REBOOT = replace(DRAIN, action="reboot", command_id="b1")
JOBS = "/apis/batch/v1/namespaces/repairs/jobs"
POD: dict[str, Any] = {"hostPID": True, "containers": [{"name": "main", "image": "x", "env": [{"name": "A"}]}]}
FILE = JobsFile(namespace="repairs", reset_device=POD, reboot=POD)


class Repairs(FakeKubernetes):
    """Has jobs, too. `does`: what a job does to the node and itself when it is looked at; `looks`: how often it was."""

    def __init__(self, does: Callable[[Repairs, dict[str, Any]], None] = lambda *_: None) -> None:
        super().__init__(rules=False)
        self.node["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
        self.jobs: dict[str, dict[str, Any]] = {}
        self.looks = 0
        self._does = does

    def __call__(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, kind: str = "application/json"
    ) -> Answer:
        name = path.removeprefix(f"{JOBS}/")
        if path == JOBS:
            body = copy.deepcopy(dict(body or {}))
            if body["metadata"]["name"] in self.jobs:
                return failure(409, "already exists")
            self.jobs[body["metadata"]["name"]] = body
            self._changed(method, path)
            return Answer(201, body)
        self.looks += 1
        for job in self.jobs.values():
            self._does(self, job)
        if path.startswith(JOBS):
            return Answer(200, self.jobs[name]) if name in self.jobs else failure(404, name)
        return super().__call__(method, path, body, kind=kind)


def ends(type_: str, **more: str) -> Callable[[Repairs, dict[str, Any]], None]:
    def does(server: Repairs, job: dict[str, Any]) -> None:
        job["status"] = {"conditions": [{"type": type_, "status": "True", **more}]} if server.looks > 5 else {}

    return does


def restarts(server: Repairs, job: dict[str, Any]) -> None:
    """Take the node down, which makes the job one that failed, and bring it back in another boot."""
    if server.looks > 5:
        job["status"] = {"conditions": [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}]}
        server.node["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    if server.looks > 200:
        server.node["status"]["nodeInfo"]["bootID"] = "boot-2"
    if server.looks > 210:
        server.node["status"]["conditions"] = [{"type": "Ready", "status": "True"}]


def bench(server: Repairs, ledger: Ledger) -> Bench:
    clock = Clock()
    acting = Kubernetes(server, now_ms=clock, sleep=clock.sleep, beyond=Beyond(ledger.memory_of, jobs=FILE))
    return Bench(acting, ledger, clock)


def test_a_gpu_is_reset_by_one_job_that_runs_on_its_node_alone_and_knows_which_gpu(ledger: Ledger) -> None:
    server = Repairs(ends("Complete"))
    line = bench(server, ledger)
    command = replace(RESET, finish_by=moment_of(T0 + 15 * MINUTE_MS))
    assert line.worker.take(command) == "succeeded"
    assert line.results[-1].reason == f"GPU {UUID} was reset"
    (job,) = server.jobs.values()
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    assert (job["metadata"]["name"], spec["backoffLimit"], spec["activeDeadlineSeconds"]) == ("faultlens-r1", 0, 900)
    assert (pod["nodeName"], pod["restartPolicy"], pod["hostPID"]) == ("node-1", "Never", True)
    assert pod["containers"][0]["env"] == [
        {"name": "A"},
        {"name": "GPU", "value": UUID},
        {"name": "NODE", "value": "node-1"},
    ]
    assert POD["containers"][0]["env"] == [{"name": "A"}]


def test_a_reset_whose_job_fails_has_failed_with_its_reason_and_one_without_a_gpu_makes_no_job(ledger: Ledger) -> None:
    server = Repairs(ends("Failed", reason="BackoffLimitExceeded", message="it has reached its limit"))
    line = bench(server, ledger)
    assert line.worker.take(RESET) == "failed"
    assert line.results[-1].reason == "its job failed: BackoffLimitExceeded: it has reached its limit"
    assert line.worker.take(replace(RESET, command_id="r2", device=None)) == "failed"
    assert list(server.jobs) == ["faultlens-r1"]


def test_a_node_that_a_person_put_back_with_our_mark_taken_off_is_left_to_them(ledger: Ledger) -> None:
    server = Repairs()
    line = bench(server, ledger)
    assert line.worker.take(replace(DRAIN, action="block_new_work", command_id="block")) == "succeeded"
    server.cordoned_by(None)
    server.node["spec"]["taints"] = []
    assert line.worker.take(DRAIN) == "refused"
    assert line.results[-1].reason == "somebody has put the node back since it was taken out"
    assert "unschedulable" not in server.node["spec"]


@pytest.mark.parametrize("command", [RESET, REBOOT], ids=["reset", "reboot"])
def test_a_node_that_a_person_put_back_is_neither_reset_nor_restarted_for_the_same_incident(
    command: RemediationCommand, ledger: Ledger
) -> None:
    server = Repairs(ends("Complete"))
    line = bench(server, ledger)
    assert line.worker.take(replace(DRAIN, action="block_new_work", command_id="block")) == "succeeded"
    server.cordoned_by(None)
    assert line.worker.take(command) == "refused"
    assert line.results[-1].reason == "somebody has put the node back since it was taken out"
    assert server.jobs == {}


def test_a_reset_that_was_begun_is_followed_to_its_end_though_a_person_put_the_node_back(ledger: Ledger) -> None:
    server = Repairs(ends("Complete"))
    ledger.note(RESET.command_id, b"begun")
    server.node["metadata"]["annotations"] = {INCIDENT: RESET.reason.incident_id}
    assert bench(server, ledger).worker.take(RESET) == "succeeded"


def test_a_restart_is_over_when_the_node_is_ready_in_another_boot_whatever_became_of_its_job(ledger: Ledger) -> None:
    server = Repairs(restarts)
    line = bench(server, ledger)
    assert line.worker.take(REBOOT) == "succeeded"
    assert line.results[-1].reason == "restarted, in boot boot-2"
    assert server.looks > 210


@pytest.mark.parametrize("outcome", ["Complete", "Failed"])
def test_a_job_that_ends_while_its_node_stays_in_its_boot_has_not_restarted_it(outcome: str, ledger: Ledger) -> None:
    server = Repairs(ends(outcome, reason="So", message="it is"))
    line = bench(server, ledger)
    assert line.worker.take(REBOOT) == "failed"
    said = ": So: it is" if outcome == "Failed" else ""
    assert line.results[-1].reason == f"its job ended, and the node did not restart{said}"
    assert 180_000 <= line.clock.now_ms - T0 < 220_000


@pytest.mark.parametrize("restarted", [False, True], ids=["on-its-way", "back-already"])
def test_one_killed_after_it_made_its_job_makes_no_other(*, restarted: bool, ledger: Ledger) -> None:
    server = Repairs(restarts)
    line = bench(server, ledger)
    server.dies_after = 0
    with pytest.raises(KeyboardInterrupt):
        line.worker.take(REBOOT)
    server.dies_after = None
    if restarted:
        server.node["status"]["nodeInfo"]["bootID"] = "boot-2"
        server.jobs.clear()
    assert [line.worker.take(command) for command in line.worker.unfinished()] == ["succeeded"]
    assert list(server.jobs) == ([] if restarted else ["faultlens-b1"])


def test_a_node_whose_boot_is_not_known_is_not_restarted(ledger: Ledger) -> None:
    server = Repairs(restarts)
    server.node["status"]["nodeInfo"] = {}
    line = bench(server, ledger)
    assert line.worker.take(replace(REBOOT, boot_id=None)) == "refused"
    assert server.jobs == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("namespace: repairs\n", "say reset_device or reboot"),
        ("namespace: a/b\nreboot: {containers: [{name: a}]}\n", ":1"),
        ("namespace: repairs\nreboot: {containers: []}\n", "a pod has containers"),
        ("namespace: repairs\nreboot: {nodeName: n, containers: [{name: a}]}\n", "said by the command"),
        ("namespace: repairs\nrebot: {containers: [{name: a}]}\n", "rebot"),
    ],
)
def test_a_file_that_is_no_jobs_is_refused_with_what_is_wrong(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "jobs.yaml").write_text(text, "utf-8")
    with pytest.raises(ConfigurationError, match=said):
        load_jobs(tmp_path / "jobs.yaml")


def test_the_jobs_of_the_manifest_can_be_used_in_the_namespace_of_its_role(tmp_path: Path) -> None:
    path = Path(__file__).parents[2] / "deploy" / "kubernetes" / "repairing.yaml"
    things = {thing["kind"]: thing for thing in yaml.safe_load_all(path.read_text("utf-8"))}
    (tmp_path / "jobs.yaml").write_text(things["ConfigMap"]["data"]["jobs.yaml"], "utf-8")
    jobs = load_jobs(tmp_path / "jobs.yaml")
    assert jobs.actions == {"reset_device", "reboot"}
    assert jobs.namespace == things["Role"]["metadata"]["namespace"] == things["Namespace"]["metadata"]["name"]
    assert things["Role"]["rules"] == [{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "create"]}]
