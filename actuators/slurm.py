"""Slurm: drains, reboots and resumes nodes by scontrol, requeues jobs elsewhere, leaves others' drains alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from actuators.ledger import Ledger
from actuators.others_words import one_line
from actuators.programs import one_node, run
from actuators.sdk import PUT_BACK, Actuator, Beat, Failed, Refused
from faultlens.events import Action, RemediationCommand

# What a drain of ours begins with: the bridge reads the command from it, and only such a drain is taken back.
MARK: Final = "faultlens:"
_LOOK_EVERY_S: Final = 5.0
_REASON: Final = re.compile(r"^\s*Reason=(.*?)(?:\s*\[[^\]]*\])?\s*$", re.MULTILINE)
_FIELD: Final = re.compile(r"\b(State|BootTime)=(\S+)")
_JOB: Final = re.compile(r"^[0-9]+(_[0-9]+)?(\+[0-9]+)?$")
_RUNS: Final = frozenset({"RUNNING", "SUSPENDED", "STOPPED", "CONFIGURING"})
_REQUEUED: Final = "requeued"
_OUT: Final = ("DRAIN", "DOWN", "FAIL")

Run = Callable[[Sequence[str]], str]


@dataclass(frozen=True)
class NodeView:
    """How Slurm shows a node: its states, the reason that somebody gave, and when it booted."""

    states: frozenset[str]
    reason: str
    boot_time: str

    @property
    def is_out(self) -> bool:
        """Return whether it takes no new jobs."""
        return any(state.startswith(_OUT) for state in self.states)

    @property
    def is_rebooting(self) -> bool:
        """Return whether a reboot was asked for that is not over."""
        return any(state.startswith("REBOOT") for state in self.states)

    @property
    def is_ours(self) -> bool:
        """Return whether we took it out."""
        return self.reason.startswith(MARK)


class Slurm(Actuator):
    """Acts through `scontrol` and `squeue`. `running`: what becomes of jobs on a node that is to be drained.

    Slurm forgets a drain with its end. In the ledger stands for which incident we took a node out: where it is in
    service all the same, a person has put it back, and for that incident nothing more is done to it.
    """

    name: ClassVar[str] = "slurm"
    actions: frozenset[Action] = frozenset({"block_new_work", "drain", "reboot", "return_to_service", "terminate_job"})

    def __init__(
        self,
        ledger: Ledger,
        *,
        running: Literal["requeue", "wait"] = "requeue",
        execute: Run = run,
        sleep: Callable[[float], None],
        look_every_s: float = _LOOK_EVERY_S,
    ) -> None:
        self._ledger = ledger
        self._running = running
        self._run = execute
        self._sleep = sleep
        self._look_every_s = look_every_s

    def do(self, command: RemediationCommand, beat: Beat) -> str:
        """Carry the command out; each step looks first whether it is done already."""
        if command.action == "terminate_job":
            return self._requeue_elsewhere(command)
        node = one_node(command.node)
        steps: dict[str, Callable[[], str]] = {
            "block_new_work": lambda: self._blocked(node, command),
            "drain": lambda: self._drained(node, command, beat),
            "reboot": lambda: self._rebooted(node, command, beat),
            "return_to_service": lambda: self._returned(node, beat),
        }
        return steps[command.action]()

    # --- nodes -----------------------------------------------------------------------------------------

    def _look(self, node: str) -> NodeView:
        shown = self._run(["scontrol", "show", "node", node])
        fields = dict(_FIELD.findall(shown))
        reason = _REASON.search(shown)
        states = frozenset(re.split(r"[+*~#!%$@^-]+", fields.get("State", "")))
        return NodeView(states, reason[1] if reason else "", fields.get("BootTime", ""))

    def _blocked(self, node: str, command: RemediationCommand) -> str:
        view = self._look(node)
        self._refuse_put_back(node, command, view)
        if view.is_out and not view.is_ours and view.reason:
            return f"already out: {view.reason}"
        if not view.is_out or not view.is_ours:
            why = one_line(",".join(command.reason.fault_codes), limit=80) or command.action
            self._run(
                ["scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={MARK}{command.command_id} {why}"]
            )
        self._ledger.take(node, command.reason.incident_id)
        return "drained in Slurm: no new jobs"

    def _refuse_put_back(self, node: str, command: RemediationCommand, view: NodeView) -> None:
        if not view.is_out and self._ledger.taken_for(node) == command.reason.incident_id:
            raise Refused(PUT_BACK)

    def _drained(self, node: str, command: RemediationCommand, beat: Beat) -> str:
        self._blocked(node, command)
        moved: set[str] = set()
        while jobs := self._jobs(node):
            if self._running == "requeue":
                for job in sorted(jobs - moved):
                    self._requeued(job)
                moved |= jobs
            self._sleep(self._look_every_s)
            beat()
            if not self._look(node).is_out:
                raise Failed(f"{PUT_BACK}; {len(moved)} jobs were requeued")
        return f"empty, {len(moved)} jobs requeued" if moved else "empty"

    def _jobs(self, node: str) -> set[str]:
        shown = self._run(["squeue", "--noheader", "--format=%A", "--nodelist", node, "--states=R,CG,S,CF"])
        return {line.strip() for line in shown.splitlines() if line.strip()}

    def _rebooted(self, node: str, command: RemediationCommand, beat: Beat) -> str:
        before, why = self._look(node), f"{MARK}{command.command_id} reboot"
        # Slurm notes the reason with the request: one that was killed since finds it there, and asks for no other.
        is_asked = before.reason.startswith(why)
        if not is_asked:
            self._refuse_put_back(node, command, before)
            # Down afterwards: it comes back to work only when it has been verified.
            self._run(["scontrol", "reboot", "ASAP", "nextstate=DOWN", f"reason={why}", node])
        while True:
            view = self._look(node)
            if (is_asked or view.boot_time != before.boot_time) and not view.is_rebooting:
                return f"booted at {view.boot_time}"
            self._sleep(self._look_every_s)
            beat()

    def _returned(self, node: str, beat: Beat) -> str:
        view = self._look(node)
        if not view.is_out:
            self._ledger.give_back(node)
            return "in service already"
        if not view.is_ours:
            raise Refused(f"kept out by somebody else: {view.reason or 'no reason given'}")
        # Before it is put back: who is killed in between may not take that for a person's doing.
        self._ledger.give_back(node)
        self._run(["scontrol", "update", f"NodeName={node}", "State=RESUME"])
        while self._look(node).is_out:
            self._sleep(self._look_every_s)
            beat()
        return "resumed"

    # --- jobs ------------------------------------------------------------------------------------------

    def _requeue_elsewhere(self, command: RemediationCommand) -> str:
        job = command.job_id or ""
        if not _JOB.match(job):
            raise Refused(f"{job!r} is no job of Slurm")
        memory = self._ledger.memory_of(command.command_id)
        away_from = [one_node(node) for node in command.exclude_nodes or ()]
        done = (memory.recall() or b"").decode() or self._requeued(job)
        memory.keep(done.encode())
        if away_from and done == _REQUEUED:
            self._run(["scontrol", "update", f"JobId={job}", f"ExcNodeList={','.join(away_from)}"])
        return done

    def _requeued(self, job: str) -> str:
        """Have a job run again, or end it where it may not; one that does not run any more is let be."""
        try:
            self._run(["scontrol", "requeue", job])
        except Failed:
            # It may have been requeued before a kill: what waits already, or is about to, is not to be ended.
            if self._state_of(job) not in _RUNS:
                return _REQUEUED
            self._run(["scancel", job])
            return "ended: it may not be requeued"
        return _REQUEUED

    def _state_of(self, job: str) -> str:
        """Return the state of a job; empty: Slurm knows none of that number any more."""
        try:
            return self._run(["squeue", "--noheader", "--format=%T", "--jobs", job]).strip().partition("\n")[0]
        except Failed:
            return ""
