"""What the Slurm actuator tells scontrol, and what it leaves alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from msgspec.structs import replace

from actuators import Failed
from actuators.ledger import Ledger
from actuators.slurm import Slurm
from tests.contract.acting import DRAIN, Bench, Clock


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    opened = Ledger(":memory:")
    yield opened
    opened.close()


class Controller:
    """Answers scontrol and squeue for one node as Slurm does."""

    def __init__(self, *, state: str = "IDLE", reason: str = "", jobs: Sequence[str] = ()) -> None:
        self.state, self.reason, self.boot = state, reason, 1
        self.jobs = list(jobs)
        self.calls: list[list[str]] = []
        self.fixed: set[str] = set()

    def __call__(self, program: Sequence[str]) -> str:
        words = list(program)
        self.calls.append(words)
        if words[:3] == ["scontrol", "show", "node"]:
            reason = f"   Reason={self.reason} [root@2026-11-23T04:00:00]\n" if self.reason else ""
            return f"NodeName={words[3]}\n   State={self.state} Weight=1\n   BootTime=boot{self.boot} X=1\n{reason}"
        if words[0] == "squeue":
            return "".join(f"{job}\n" for job in self.jobs)
        if words[:2] == ["scontrol", "requeue"] or words[0] == "scancel":
            if words[-1] in self.fixed and words[0] != "scancel":
                raise Failed("scontrol ended with 1: Requested operation is presently disabled")
            self.jobs = [job for job in self.jobs if job != words[-1]]
        if words[:2] == ["scontrol", "reboot"]:
            self.boot, self.state, self.reason = self.boot + 1, "DOWN", words[4].removeprefix("reason=")
        for word in words:
            if word.startswith("State="):
                self.state = {"DRAIN": "IDLE+DRAIN", "RESUME": "IDLE"}[word.removeprefix("State=")]
                self.reason = "" if word == "State=RESUME" else self.reason
            if word.startswith("Reason="):
                self.reason = word.removeprefix("Reason=")
        return ""

    @property
    def changes(self) -> list[list[str]]:
        return [call for call in self.calls if call[1] != "show" and call[0] != "squeue"]


def slurm(controller: Controller, ledger: Ledger) -> Bench:
    clock = Clock()
    return Bench(Slurm(execute=controller, sleep=clock.sleep), ledger, clock)


def test_slurm_drains_a_node_and_requeues_what_runs_there(ledger: Ledger) -> None:
    controller = Controller(state="MIXED", jobs=["17", "18"])
    controller.fixed = {"18"}
    assert slurm(controller, ledger).worker.take(DRAIN) == "succeeded"
    assert controller.state == "IDLE+DRAIN"
    assert controller.reason.startswith(f"faultlens:{DRAIN.command_id}")
    assert ["scancel", "18"] in controller.calls, "one that may not be requeued is ended"


def test_slurm_leaves_what_somebody_else_drained_as_it_is(ledger: Ledger) -> None:
    controller = Controller(state="IDLE+DRAIN", reason="vendor visit")
    bench = slurm(controller, ledger)
    assert bench.worker.take(replace(DRAIN, action="block_new_work")) == "succeeded"
    back = replace(DRAIN, action="return_to_service", command_id="back")
    assert bench.worker.take(back) == "refused"
    assert (controller.changes, controller.reason) == ([], "vendor visit")


def test_slurm_returns_what_we_drained_and_says_so_of_what_is_back_already(ledger: Ledger) -> None:
    controller = Controller(state="IDLE+DRAIN", reason="faultlens:abc xid:79")
    bench = slurm(controller, ledger)
    for number in range(2):
        assert bench.worker.take(replace(DRAIN, action="return_to_service", command_id=f"back-{number}")) == "succeeded"
    assert controller.changes == [["scontrol", "update", "NodeName=node-1", "State=RESUME"]]


def test_slurm_reboots_a_node_and_keeps_it_out_until_it_is_verified(ledger: Ledger) -> None:
    controller = Controller(state="IDLE+DRAIN", reason="faultlens:abc xid:79")
    assert slurm(controller, ledger).worker.take(replace(DRAIN, action="reboot")) == "succeeded"
    assert (controller.boot, controller.state) == (2, "DOWN")


def test_slurm_requeues_a_job_away_from_the_nodes_it_hangs_on(ledger: Ledger) -> None:
    controller = Controller(jobs=["17"])
    stop = replace(DRAIN, action="terminate_job", node=None, job_id="17", exclude_nodes=("node-1", "node-2"))
    assert slurm(controller, ledger).worker.take(stop) == "succeeded"
    assert controller.changes == [
        ["scontrol", "requeue", "17"],
        ["scontrol", "update", "JobId=17", "ExcNodeList=node-1,node-2"],
    ]


@pytest.mark.parametrize("node", ["ALL", "all", "node-[1-999]", "a,b", "", "-x", "a b", "a;reboot"])
def test_slurm_never_takes_a_pattern_for_a_node(ledger: Ledger, node: str) -> None:
    controller = Controller()
    assert slurm(controller, ledger).worker.take(replace(DRAIN, node=node)) == "refused"
    assert controller.calls == []
