"""Two GPUs fall off the bus on a real Slurm: one node is drained, rebooted, verified and returned, the other is let be.

    make drill-slurm-remediation        # as root; needs a lab that brings Slurm up (LAB_SLURM) and Java for Kafka

Bridge, workers and actuators run live; what carries commands out on Slurm is killed during the drain, and again during
the reboot, of which there is to be one, and started anew. The second node was drained by a person before, and the cap
holds the first one up until that is back. What was told is kept (tests/data/drills), and replayed by
tests/acceptance/test_drills.py.
"""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from time import sleep
from typing import Final

from faultlens import topics
from faultlens.cli_outlet import outlet
from faultlens.clock import moment_of, wall_ms
from faultlens.codec import Decoder
from tests.drills.hands import ROLES, Hands, differences, has_returned, until, waits
from tests.drills.pipeline import INPUTS, Pipeline, pipeline, report, say
from tests.drills.slurm import RECORDED, Player
from tests.drills.slurmlab import Lab
from tests.drills.truth import Truth
from tests.kafka.living import faultlens

LOST: Final = "NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


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
    sleep(5)
    hands.start("slurm")
    until(line, f"{bad} is rebooted", (lab.state / "log" / "reboot.log").exists)
    hands.kill("slurm")
    hands.start("slurm")
    sleep(20)
    lab.run("scontrol", "update", f"NodeName={other}", "State=DRAIN", "Reason=fan is swapped again")
    until(line, f"{bad} is back", lambda: _is_back(line, lab, bad))
    if (asked := (lab.state / "log" / "reboot.log").read_text("utf-8").count("reboot asked")) != 1:
        raise RuntimeError(f"{asked} reboots were asked for")
    lab.run("scontrol", "update", f"NodeName={other}", "State=RESUME")
    lab.until(job, "COMPLETED")
    player.ends_as(job, "cancelled")
    player.ends_as(job, "succeeded", 2)


def _is_back(line: Pipeline, lab: Lab, node: str) -> bool:
    return has_returned(line) and "DRAIN" not in shown(lab, node) and "DOWN" not in shown(lab, node)


def main(tool: Path, state: Path) -> int:
    """Run the drill; return 0 when the node is back and nothing was done to the other one."""
    lab = Lab(tool, state)
    with lab.running(), tempfile.TemporaryDirectory(prefix="faultlens-hands-") as folder, ExitStack() as stack:
        line = stack.enter_context(pipeline(ROLES, (*INPUTS, topics.REMEDIATION_RESULTS)))
        bridge = ["slurm", "--cluster", "lab", "--every-s", "5", "--state", str(state / "bridge")]
        line.start_bridge(*bridge, environment=dict(lab.environment))
        hands = Hands(line, Path(folder), lab.environment)
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


if __name__ == "__main__":
    os.environ.setdefault("FAULTLENS_POLICY", str(Path(__file__).with_name("policy.yaml")))
    sys.exit(main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()))
