"""Thirty jobs on a real Slurm, each ended in its own way, told by the bridge and judged live.

    make drill-slurm-jobs        # as root; needs a lab that brings Slurm up (LAB_SLURM) and Java for Kafka

In the middle the bridge is killed. What was told is kept beside the truth (tests/data/drills), and replayed by
tests/acceptance/test_drills.py.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from time import sleep
from typing import Final

from faultlens.clock import SECOND_MS
from faultlens.codec import Event
from faultlens.events import JobEnded
from tests.drills.pipeline import Pipeline, judged, pipeline, report, say
from tests.drills.slurmlab import Lab
from tests.drills.truth import Failure, Truth

RECORDED: Final = Path(__file__).parents[1] / "data" / "drills"
HOOK: Final = Path(__file__).parents[2] / "examples" / "bridge" / "faultlens-slurm-wake"
LONG: Final = "sleep 600"
EATER: Final = "python3 -c 'x = bytearray(400 << 20); import time; time.sleep(60)'"


class Player:
    """Submits jobs and keeps what is true of them."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.failures: list[Failure] = []
        self.ends: dict[str, str] = {}
        self.jobs: dict[str, str] = {}

    def job(self, name: str, script: str, *options: str, node: str = "node[1-2]", gpus: int = 1) -> str:
        """Submit a job to one of these nodes."""
        where = [] if "-N2" in options else ["-N1", f"--exclude={self._others(node)}"]
        wanted = ["--gres", f"gpu:h100:{gpus}", "--job-name", name, *where]
        self.jobs[name] = self.lab.submit(script, *wanted, *options)
        return self.jobs[name]

    def _others(self, node: str) -> str:
        everywhere = set(self.lab.run("scontrol", "show", "hostnames", "node[1-8],rack02-gpu[09-11]").split())
        mine = set(self.lab.run("scontrol", "show", "hostnames", node).split())
        return ",".join(sorted(everywhere - mine))

    def fails(
        self, job: str, classes: str, codes: str = "", *, attempt: int = 1, node: str | None = None, what: str = ""
    ) -> None:
        """Note that an attempt failed: whose fault it may be called, by which codes, and where."""
        self.failures.append(
            Failure(job, tuple(classes.split()), tuple(codes.split()), attempt, None, node, None, what)
        )

    def ends_as(self, job: str, outcome: str, attempt: int = 1) -> None:
        self.ends[f"{job}/{attempt}"] = outcome

    def truth(self) -> Truth:
        """Return what is true of all jobs."""
        return Truth(tuple(self.failures), self.ends)


def users_own(player: Player) -> None:
    """Submit what succeeds, and what fails by the user's own doing."""
    for number in range(4):
        player.ends_as(player.job(f"good{number}", "srun true"), "succeeded")
    for name, script, codes in (
        ("exit1", "exit 1", ""),
        ("exit3", "srun bash -c 'exit 3'", ""),
        ("segfault", "srun bash -c 'kill -SEGV $$'", "app.crash"),
        ("missing", "srun /no/such/program", ""),
        ("killed", "srun bash -c 'kill -KILL $$'", ""),
        ("aborted", "srun bash -c 'kill -ABRT $$'", "app.crash"),
        ("status143", "exit 143", ""),
    ):
        player.fails(player.job(name, script), "user", codes, what=name)
    player.fails(player.job("eater", f"srun {EATER}", "--mem=60M"), "user", "app.oom.host", what="out of memory")
    player.fails(player.job("slow", LONG, "--time=1"), "user", "app.time_limit", what="its time limit")
    array = player.job("array", "exit $((SLURM_ARRAY_TASK_ID == 1 ? 2 : 0))", "--array=0-2")
    player.fails(f"{array}_1", "user", what="a task of an array")
    for task in (0, 2):
        player.ends_as(f"{array}_{task}", "succeeded")
    again = player.job("again", '[ -n "$SLURM_RESTART_COUNT" ] || exit 99')
    player.fails(again, "user", what="an exit code that is requeued")
    player.ends_as(again, "succeeded", 2)
    pair = player.job("pair", "srun bash -c 'exit $((SLURM_PROCID * 5))'", "-N2", "--nodelist=node1,node2")
    player.fails(pair, "user", what="one of two ranks")


def taken_away(player: Player) -> None:
    """Cancel, requeue and preempt jobs."""
    lab = player.lab
    waiting = player.job("waiting", LONG, "--hold")
    running = player.job("running", LONG)
    moved = player.job("moved", '[ -n "$SLURM_RESTART_COUNT" ] || sleep 600')
    spot = player.job("spot", LONG, "--partition=spot", "--no-requeue", node="node6", gpus=8)
    for job in (running, moved, spot):
        lab.until(job, "RUNNING")
    lab.run("scancel", waiting)
    lab.run("scancel", running)
    lab.run("scontrol", "requeue", moved)
    urgent = player.job("urgent", "srun sleep 3", "--partition=urgent", node="node6", gpus=8)
    for job in (waiting, running):
        player.ends_as(job, "cancelled")
    player.ends_as(moved, "cancelled")
    player.ends_as(moved, "succeeded", 2)
    player.ends_as(spot, "preempted")
    player.ends_as(urgent, "succeeded")
    lab.until(urgent, "COMPLETED")


def of_nodes(player: Player) -> None:
    """Let nodes fail under their jobs."""
    lab = player.lab
    refused = player.job("refused", "srun true", node="node5")
    dark = player.job("dark", LONG, "--no-requeue", node="node3")
    restarted = player.job("restarted", LONG, "--no-requeue", node="node4")
    reported = player.job("reported", LONG, "--no-requeue", node="node7")
    deaf = player.job("deaf", LONG, "--no-requeue", node="node8")
    wide = player.job("wide", "srun sleep 600", "-N2", "--nodelist=rack02-gpu[09-10]", "--no-requeue")
    messy = player.job("messy", "srun sleep 5", node="rack02-gpu11")
    for job in (dark, restarted, reported, deaf, wide):
        lab.until(job, "RUNNING")
    sleep(8)
    for node in ("node3", "node4", "rack02-gpu10"):
        lab.lose(node)
    lab.boot("node4")
    lab.daemon_dies("node8")
    lab.run("scontrol", "update", "NodeName=node7", "State=DOWN", "Reason=Xid 79: GPU 2 has fallen off the bus")
    player.fails(dark, "hardware", "host.lost", node="node3", what="its node lost power")
    player.fails(restarted, "hardware", "host.lost", node="node4", what="its node restarted")
    player.fails(reported, "hardware", "gpu", node="node7", what="an administrator took the node down for a GPU")
    player.fails(wide, "hardware", "host.lost", node="rack02-gpu10", what="one of its two nodes lost power")
    player.ends_as(messy, "succeeded")
    for job in (dark, restarted, reported, deaf, wide):
        lab.until(job, "NODE_FAIL", "FAILED", "CANCELLED", "COMPLETED")
    lab.daemon_returns("node8")
    player.fails(deaf, "platform", node=None, what="only its node's slurmd was gone")
    player.fails(refused, "hardware platform", what="its node's own check refused it")
    lab.untell("prolog-fail.node5")
    lab.run("scontrol", "update", "NodeName=node5", "State=RESUME")
    lab.run("scontrol", "release", refused, check=False)
    lab.until(refused, "COMPLETED")
    player.ends_as(refused, "succeeded", 2)


def play(line: Pipeline, player: Player, bridge: list[str]) -> None:
    """Run all jobs; the bridge is killed in the middle."""
    player.lab.tell("prolog-fail.node5")
    player.lab.tell("epilog-fail.rack02-gpu11")
    users_own(player)
    say(f"{len(player.jobs)} jobs of the user's own")
    taken_away(player)
    say(f"{len(player.jobs)} jobs; the bridge is killed")
    line.stop_bridge(kill=True)
    sleep(5)
    line.start_bridge(*bridge, environment=dict(player.lab.environment))
    of_nodes(player)
    say(f"{len(player.jobs)} jobs")
    for job in player.jobs.values():
        player.lab.until(
            job, "COMPLETED", "FAILED", "TIMEOUT", "NODE_FAIL", "CANCELLED", "OUT_OF_MEMORY", "PREEMPTED", ""
        )


def lateness_s(events: Sequence[Event]) -> float:
    """Return how long after it half of the ends had been told."""
    ends = [event for event in events if isinstance(event.data, JobEnded)]
    return median((event.recorded_ms or event.time_ms) - event.time_ms for event in ends) / SECOND_MS


def main(tool: Path, state: Path) -> int:
    """Run the drill; return 0 when every verdict is right."""
    lab = Lab(tool, state)
    with lab.running():
        wake = state / "wake"
        wake.touch()
        wake.chmod(0o666)
        lab.after_each_job(HOOK, FAULTLENS_WAKE=str(wake))
        with pipeline() as line:
            bridge = ["slurm", "--cluster", "lab", "--state", str(state / "bridge"), "--wake", str(wake)]
            line.start_bridge(*bridge, environment=dict(lab.environment))
            player = Player(lab)
            play(line, player, bridge)
            sleep(15)
            truth = player.truth()
            say(f"half of the ends were heard of within {lateness_s(line.inputs()):.1f} s")
            return report(line, truth, judged(line, truth), RECORDED, "slurm")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()))
