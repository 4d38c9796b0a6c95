"""What the Slurm actuator tells scontrol, and what it leaves alone."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from actuators import Failed
from actuators.ledger import Ledger
from actuators.slurm import Slurm
from faultlens.events import Action, CommandReason, RemediationCommand
from tests.contract.acting import DRAIN, Bench, Clock


class Controller:
    """Answers scontrol and squeue for one node as Slurm does. `slow`: looks that a reboot takes."""

    def __init__(self, *, state: str = "IDLE", reason: str = "", jobs: Sequence[str] = ()) -> None:
        self.state, self.reason, self.boot = state, reason, 1
        self.jobs = list(jobs)
        self.calls: list[list[str]] = []
        self.fixed: set[str] = set()
        self.states: dict[str, str] = {}
        self.slow = 0
        self.ended: list[str] = []

    def __call__(self, program: Sequence[str]) -> str:
        words = list(program)
        self.calls.append(words)
        if words[:3] == ["scontrol", "show", "node"]:
            self._goes_on()
            reason = f"   Reason={self.reason} [root@2026-11-23T04:00:00]\n" if self.reason else ""
            return f"NodeName={words[3]}\n   State={self.state} Weight=1\n   BootTime=boot{self.boot} X=1\n{reason}"
        if "--jobs" in words:
            return self.states.get(words[-1], "RUNNING" if words[-1] in self.jobs else "PENDING") + "\n"
        if words[0] == "squeue":
            return "".join(f"{job}\n" for job in self.jobs)
        if words[:2] == ["scontrol", "requeue"] or words[0] == "scancel":
            if words[0] != "scancel" and (
                words[-1] in self.fixed or words[-1] not in self.jobs or words[-1] in self.states
            ):
                raise Failed("scontrol ended with 1: Requested operation is presently disabled")
            self.jobs = [job for job in self.jobs if job != words[-1]]
            self.ended += [words[-1]] * (words[0] == "scancel")
        if words[:2] == ["scontrol", "reboot"]:
            self.state, self.reason = "IDLE+DRAIN+REBOOT_ISSUED", words[4].removeprefix("reason=")
        for word in words:
            if word.startswith("State="):
                self.state = {"DRAIN": "IDLE+DRAIN", "RESUME": "IDLE"}[word.removeprefix("State=")]
                self.reason = "" if word == "State=RESUME" else self.reason
            if word.startswith("Reason="):
                self.reason = word.removeprefix("Reason=")
        return ""

    def _goes_on(self) -> None:
        if "REBOOT" in self.state:
            self.slow -= 1
            if self.slow < 0:
                self.boot, self.state, self.reason = self.boot + 1, "DOWN", f"{self.reason} : reboot complete"

    @property
    def changes(self) -> list[list[str]]:
        return [call for call in self.calls if call[1] != "show" and call[0] != "squeue"]


def slurm(controller: Controller, ledger: Ledger) -> Bench:
    clock = Clock()
    return Bench(Slurm(ledger, execute=controller, sleep=clock.sleep), ledger, clock)


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


@pytest.mark.parametrize("looks", [0, 3], ids=["rebooted-meanwhile", "on-its-way"])
def test_slurm_is_asked_for_one_reboot_though_whoever_asked_was_killed(ledger: Ledger, looks: int) -> None:
    controller = Controller(state="IDLE+DRAIN", reason="faultlens:abc xid:79")
    controller.slow = 1

    def killed(seconds: float) -> None:
        raise KeyboardInterrupt

    reboot = replace(DRAIN, action="reboot")
    with pytest.raises(KeyboardInterrupt):
        Bench(Slurm(ledger, execute=controller, sleep=killed), ledger, Clock()).worker.take(reboot)
    controller.slow = looks
    worker = slurm(controller, ledger).worker
    assert [worker.take(command) for command in worker.unfinished()] == ["succeeded"]
    assert (controller.boot, [call[1] for call in controller.changes]) == (2, ["reboot"])


def test_slurm_drains_a_node_no_further_when_a_person_has_put_it_back_meanwhile(ledger: Ledger) -> None:
    """Else it would requeue what is scheduled there anew, until its deadline."""
    controller = Controller(state="MIXED", jobs=["17"])

    def resumed(seconds: float) -> None:
        controller.state, controller.reason, controller.jobs = "MIXED", "", ["19"]

    bench = Bench(Slurm(ledger, execute=controller, sleep=resumed), ledger, Clock())
    assert bench.worker.take(DRAIN) == "failed"
    assert bench.results[-1].reason == "somebody has put the node back since it was taken out; 1 jobs were requeued"
    assert controller.jobs == ["19"]


BLOCK = replace(DRAIN, action="block_new_work", command_id="block")
BACK = replace(DRAIN, action="return_to_service", command_id="back")


@pytest.mark.parametrize("action", ["block_new_work", "drain", "reboot"])
def test_slurm_leaves_a_node_to_the_person_who_put_it_back_before_we_heard_of_it(
    action: Action, ledger: Ledger
) -> None:
    """What was issued before it was heard of comes after it; Slurm keeps nothing of a drain that is over."""
    controller = Controller(state="MIXED", jobs=["17"])
    bench = slurm(controller, ledger)
    assert bench.worker.take(BLOCK) == "succeeded"
    controller.state, controller.reason = "MIXED", ""
    controller.calls.clear()
    assert bench.worker.take(replace(DRAIN, action=action, command_id="next")) == "refused"
    assert bench.results[-1].reason == "somebody has put the node back since it was taken out"
    assert (controller.changes, controller.jobs) == ([], ["17"])
    other = replace(BLOCK, command_id="other", reason=CommandReason(("xid:48",), "incident-2"))
    assert bench.worker.take(other) == "succeeded", "what comes after that is another matter"
    assert controller.state == "IDLE+DRAIN"


def test_slurm_takes_a_node_out_again_that_we_put_back_ourselves(ledger: Ledger) -> None:
    controller = Controller()
    bench = slurm(controller, ledger)
    assert [bench.worker.take(command) for command in (BLOCK, BACK, DRAIN)] == ["succeeded"] * 3
    assert controller.state == "IDLE+DRAIN"


def test_slurm_drains_no_node_that_a_person_put_back_while_nobody_of_us_was_there(ledger: Ledger) -> None:
    controller = Controller(state="MIXED", jobs=["17"])

    def killed(seconds: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Bench(Slurm(ledger, execute=controller, sleep=killed), ledger, Clock()).worker.take(DRAIN)
    controller.state, controller.reason, controller.jobs = "MIXED", "", ["19"]
    controller.calls.clear()
    worker = slurm(controller, ledger).worker
    assert [worker.take(command) for command in worker.unfinished()] == ["refused"]
    assert (controller.changes, controller.jobs) == ([], ["19"])


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


def mortal(controller: Controller, dies_at: int, *, after: bool) -> Any:
    """Return what asks the controller until the process is killed before or after one of its questions."""
    asked = iter(range(10_000))

    def run(program: Sequence[str]) -> str:
        dies = next(asked) == dies_at
        if dies and not after:
            raise KeyboardInterrupt
        answer = controller(program)
        if dies:
            raise KeyboardInterrupt
        return answer

    return run


STOP = replace(DRAIN, action="terminate_job", node=None, job_id="17", exclude_nodes=("node-1",), command_id="stop")
REBOOT = replace(DRAIN, action="reboot", command_id="reboot")


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("command", [BLOCK, DRAIN, BACK, REBOOT, STOP], ids=lambda command: command.action)
def test_slurm_is_asked_once_for_what_is_felt_wherever_whoever_asks_is_killed(
    command: RemediationCommand, after: bool, tmp_path: Path
) -> None:
    for dies_at in range(12):
        with closing(Ledger(tmp_path / f"{dies_at}.db")) as ledger:
            controller = Controller(state="MIXED", jobs=["17"])
            if command.action in ("return_to_service", "reboot"):
                controller.state, controller.reason = "IDLE+DRAIN", "faultlens:abc xid:79"
            run, clock = mortal(controller, dies_at, after=after), Clock()
            with suppress(KeyboardInterrupt):
                Bench(Slurm(ledger, execute=run, sleep=clock.sleep), ledger, clock).worker.take(command)
            worker = slurm(controller, ledger).worker
            ended = [worker.take(begun) for begun in worker.unfinished()]
            assert ended in (["succeeded"], []), dies_at
            assert sum(call[1] == "reboot" for call in controller.calls) <= 1
            assert controller.ended == [], "a job that was requeued is not ended"
            assert controller.state == {"reboot": "DOWN", "return_to_service": "IDLE", "terminate_job": "MIXED"}.get(
                command.action, "IDLE+DRAIN"
            )


def test_slurm_ends_no_job_that_was_requeued_before_a_kill_and_is_still_completing(ledger: Ledger) -> None:
    controller = Controller(state="MIXED", jobs=["17"])
    controller.states = {"17": "COMPLETING"}

    def over(seconds: float) -> None:
        controller.jobs = []

    assert Bench(Slurm(ledger, execute=controller, sleep=over), ledger).worker.take(DRAIN) == "succeeded"
    assert controller.ended == []
