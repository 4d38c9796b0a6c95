"""Two GPUs fall off the bus on a real Slurm: one node is drained, rebooted, verified and returned, the other is let be.

    make drill-slurm-remediation        # as root; needs a lab that brings Slurm up (LAB_SLURM) and Java for Kafka

Bridge, workers and actuators run live; what carries commands out on Slurm is killed in the middle and started anew. The
second node was drained by a person before, and the cap holds the first one up until that is back. What was told is kept
(tests/data/drills), and replayed by tests/acceptance/test_drills.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from time import monotonic, sleep
from typing import Final

from faultlens import topics
from faultlens.cli_outlet import outlet
from faultlens.clock import moment_of, wall_ms
from faultlens.codec import Decoder
from faultlens.events import Incident
from tests.drills.pipeline import INPUTS, Pipeline, judged, pipeline, report, say
from tests.drills.repairs import REPAIRED, repairs_wrong
from tests.drills.slurm import RECORDED, Player
from tests.drills.slurmlab import Lab
from tests.drills.truth import Truth
from tests.kafka.living import faultlens

ROLES: Final = ("node", "job", "context", "remediation")
LOST: Final = "NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
PATIENCE_S: Final = 420.0


class Hands:
    """The actuators as processes of their own: Slurm's, and the bad node's that validates it."""

    def __init__(self, line: Pipeline, lab: Lab, folder: Path) -> None:
        self._line, self._lab, self._folder = line, lab, folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, kind: str, *options: str) -> None:
        """Start one, also anew."""
        ledger = ["--ledger", str(self._folder / f"{kind}.db"), "--brokers", self._line.kafka.bootstrap]
        command = [sys.executable, "-m", "faultlens.cli", "act", kind, "--cluster", "lab", *ledger, *options]
        with (self._folder / f"{kind}.log").open("ab") as log:
            environment = self._lab.environment | {"TERM": "dumb"}
            self._running[kind] = subprocess.Popen(command, stdout=log, stderr=log, env=environment)

    def kill(self, kind: str) -> None:
        """End one without farewell."""
        self._running[kind].kill()
        self._running[kind].wait(30)

    def close(self) -> None:
        """End all of them."""
        for process in self._running.values():
            process.terminate()
        for process in self._running.values():
            process.wait(60)

    def said(self) -> str:
        """Return the ends of their logs."""
        return "\n".join(path.read_text("utf-8", "replace")[-1_500:] for path in sorted(self._folder.glob("*.log")))


def until(line: Pipeline, what: str, holds: Callable[[], bool]) -> None:
    """Wait until something holds, while the pipeline runs."""
    deadline = monotonic() + PATIENCE_S
    while not holds():
        line.check()
        if monotonic() > deadline:
            raise TimeoutError(f"{what}: not after {PATIENCE_S:.0f} s")
        sleep(1)
    say(what)


def breaks(line: Pipeline, node: str, folder: Path) -> None:
    """Let the kernel of a node say that a GPU is gone, and send what becomes of that."""
    log, told = folder / f"{node}.log.txt", folder / f"{node}.jsonl"
    log.write_text(f"{moment_of(wall_ms()).isoformat()} {node} kernel: {LOST}\n", "utf-8")
    faultlens(
        "import", "kernel-log", str(log), "--node", node, "--family", "H100", "--cluster", "lab", "--out", str(told)
    )
    with outlet(None, line.kafka.bootstrap, folder / f"{node}.spool", lasting=False) as out:
        for event in map(Decoder().decode, told.read_bytes().splitlines()):
            out.put(event)


def waits(line: Pipeline) -> set[str]:
    """Return the first two words of all that incidents have waited for."""
    told = [event.data for event in line.events(topics.INCIDENTS) if isinstance(event.data, Incident)]
    return {" ".join((incident.waits_for or "").split()[:2]) for incident in told}


def shown(lab: Lab, node: str) -> str:
    """Return how Slurm shows a node."""
    return lab.run("scontrol", "show", "node", node)


def play(line: Pipeline, player: Player, hands: Hands, folder: Path) -> None:
    """Break two nodes; the first goes through its repair, the second is a person's."""
    lab = player.lab
    job = player.job("training", '[ -n "$SLURM_RESTART_COUNT" ] || sleep 600', node="node[2,4]")
    lab.until(job, "RUNNING")
    bad = lab.run("squeue", "--noheader", "--format=%N", f"--job={job}")
    other = {"node2": "node4", "node4": "node2"}[bad]
    hands.start("node", "--node", bad, "--validate", "true")
    lab.run("scontrol", "update", f"NodeName={other}", "State=DRAIN", "Reason=fan is swapped")
    sleep(15)
    breaks(line, other, folder)
    breaks(line, bad, folder)
    # One of eleven nodes may be out, and the person's is.
    until(line, f"{other} is the person's, and {bad} waits for it", lambda: {"kept by", "cap of"} <= waits(line))
    lab.run("scontrol", "update", f"NodeName={other}", "State=RESUME")
    until(line, f"{bad} is drained by a command", lambda: "Reason=faultlens:" in shown(lab, bad))
    hands.kill("slurm")
    say("Slurm's actuator is killed")
    sleep(5)
    hands.start("slurm")
    until(line, f"{bad} is rebooted", (lab.state / "log" / "reboot.log").exists)
    sleep(20)
    lab.run("scontrol", "update", f"NodeName={other}", "State=DRAIN", "Reason=fan is swapped again")
    until(line, f"{bad} is back", lambda: _is_back(line, lab, bad))
    lab.run("scontrol", "update", f"NodeName={other}", "State=RESUME")
    lab.until(job, "COMPLETED")
    player.ends_as(job, "cancelled")
    player.ends_as(job, "succeeded", 2)


def _is_back(line: Pipeline, lab: Lab, node: str) -> bool:
    told = [e for e in line.events(topics.REMEDIATION_RESULTS) if getattr(e.data, "action", "") == REPAIRED[-1]]
    ended = any(getattr(event.data, "state", "") == "succeeded" for event in told)
    return ended and "DRAIN" not in shown(lab, node) and "DOWN" not in shown(lab, node)


def differences(line: Pipeline, truth: Truth) -> Sequence[str]:
    """Return what was not as it should be, of verdicts and of repairs."""
    said = [e for name in (topics.REMEDIATION_COMMANDS, topics.INCIDENTS) for e in line.events(name)]
    results = line.events(topics.REMEDIATION_RESULTS)
    return [*judged(line, truth), *repairs_wrong(said, results)]


def main(tool: Path, state: Path) -> int:
    """Run the drill; return 0 when the node is back and nothing was done to the other one."""
    lab = Lab(tool, state)
    lab.up()
    try:
        with tempfile.TemporaryDirectory(prefix="faultlens-hands-") as folder, ExitStack() as stack:
            line = stack.enter_context(pipeline(ROLES, (*INPUTS, topics.REMEDIATION_RESULTS)))
            bridge = ["slurm", "--cluster", "lab", "--every-s", "5", "--state", str(state / "bridge")]
            line.start_bridge(*bridge, environment=dict(lab.environment))
            hands = Hands(line, lab, Path(folder))
            stack.callback(hands.close)
            hands.start("slurm")
            player = Player(lab)
            try:
                play(line, player, hands, Path(folder))
            except TimeoutError:
                say(hands.said())
                raise
            sleep(15)
            truth = Truth((), player.ends)
            return report(line, truth, differences(line, truth), RECORDED, "slurm-remediation")
    finally:
        lab.down()


if __name__ == "__main__":
    os.environ.setdefault("FAULTLENS_POLICY", str(Path(__file__).with_name("policy.yaml")))
    sys.exit(main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()))
