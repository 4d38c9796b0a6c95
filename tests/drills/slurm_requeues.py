"""Jobs that a real Slurm runs again, told by the bridge and the launcher beside it, and judged live.

    make drill-slurm-requeues        # as root; needs a lab that brings Slurm up (LAB_SLURM) and Java for Kafka

A person requeues them, their node loses power, or their launcher asks for it. What was told is kept beside the truth
(tests/data/drills), and replayed by tests/acceptance/test_drills.py.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from time import monotonic, sleep
from typing import Final

from tests.drills.pipeline import Pipeline, judged, pipeline, report, say
from tests.drills.slurm import RECORDED, Player
from tests.drills.slurmlab import PATIENCE_S, Lab

# Says which checkpoint it was handed; without one it saves one and trains on until its node is gone.
TRAINING: Final = """
import json, os, sys, time
from faultlens.progress import Progress
handed = [os.environ.get(f"FAULTLENS_CHECKPOINT_{name}") for name in ("STEP", "PATH")]
with open(f"{sys.argv[1]}.{os.environ['FAULTLENS_ATTEMPT']}", "w") as file:
    json.dump(handed, file)
if handed[0] is None:
    progress = Progress.from_environment()
    progress.step(10)
    with progress.saving(20, path="/checkpoints/20"):
        pass
    time.sleep(600)
"""
SAVED: Final = ["20", "/checkpoints/20"]


class Launched:
    """How jobs start the launcher: with Kafka, and in a home that takes nothing."""

    def __init__(self, line: Pipeline, state: Path) -> None:
        self.job_state = state / "jobs" / "state"
        self._training = state / "jobs" / "training.py"
        self._training.write_text(TRAINING, "utf-8")
        told = f"FAULTLENS_BROKERS={line.kafka.bootstrap} FAULTLENS_CLUSTER=lab FAULTLENS_JOB_STATE={self.job_state}"
        root = Path(__file__).parents[2]
        self._launch = f"env {told} HOME=/proc/none PYTHONPATH={root} srun {sys.executable} -m faultlens.cli launch"

    def command(self, options: str, command: str) -> str:
        """Return a script that launches a command."""
        return f"{self._launch} {options} -- {command}"

    def training(self, options: str, name: str) -> str:
        """Return a script that launches the training, which leaves what it was handed beside `name`."""
        return self.command(options, f"{sys.executable} {self._training} {self._training.with_name(name)}")

    def handed(self, name: str, attempt: int) -> list[str | None]:
        """Return the checkpoint that an attempt of a training was handed."""
        return list(json.loads(self._training.with_name(f"{name}.{attempt}").read_text("utf-8")))


def by_a_person(player: Player) -> None:
    """Requeue running jobs: one twice, of which the third attempt fails, and one that is held before it goes on."""
    lab = player.lab
    twice = player.job("twice", '[ "${SLURM_RESTART_COUNT:-0}" = 2 ] && exit 3; sleep 600')
    held = player.job("held", '[ -n "$SLURM_RESTART_COUNT" ] || sleep 600')
    lab.until(held, "RUNNING")
    lab.run("scontrol", "requeuehold", held)
    for attempt in (1, 2):
        _runs(lab, twice, restarts=attempt - 1)
        sleep(3)
        lab.run("scontrol", "requeue", twice)
        player.ends_as(twice, "cancelled", attempt)
    player.fails(twice, "user", attempt=3, what="its own error after two requeues")
    lab.run("scontrol", "release", held)
    player.ends_as(held, "cancelled")
    player.ends_as(held, "succeeded", 2)


def by_its_node(player: Player, launched: Launched) -> None:
    """Take the power off nodes whose jobs Slurm runs again elsewhere, one of them launched with a checkpoint."""
    lab = player.lab
    plain = player.job("plain", '[ -n "$SLURM_RESTART_COUNT" ] || sleep 600', "--requeue", node="node[3-4]", gpus=8)
    script = launched.training("--no-job-events", "saved")
    saved = player.job("saved", script, "--requeue", node="node[5-6]", gpus=8)
    places = {job: _runs(lab, job, restarts=0) for job in (plain, saved)}
    _there(launched.job_state / f"{saved}.checkpoint.json")
    sleep(5)
    for job, node in places.items():
        lab.lose(node)
        player.fails(job, "hardware", "host.lost", node=node, what="its node lost power, and Slurm requeued it")
        player.ends_as(job, "succeeded", 2)


def by_its_launcher(player: Player, launched: Launched) -> None:
    """Have jobs put back after a failure: by their launcher, and by a script that has one run its program.

    Slurm calls either cancelled; the failure that the launcher told before stands.
    """
    program = "sh -c 'test -n \"$SLURM_RESTART_COUNT\" || exit 5'"
    again = player.job("again", launched.command("--retries 1 --retry-on failure", program), node="node[7-8]")
    script = f'{launched.command("", program)} || {{ scontrol requeue "$SLURM_JOB_ID"; sleep 60; }}'
    itself = player.job("itself", script, node="node[7-8]")
    for job in (again, itself):
        player.fails(job, "user", what="its own error, after which it was requeued")
        player.ends_as(job, "succeeded", 2)


# Fails after a while as a broken device has it fail; where it is run again it goes on.
BROKEN: Final = (
    'sh -c \'test -n "$SLURM_RESTART_COUNT" && exec sleep 20; sleep 8; '
    "echo RuntimeError: CUDA error: uncorrectable ECC error encountered >&2; exit 1'"
)


def to_another_node(player: Player, launched: Launched) -> list[str]:
    """Have a launcher put its job back away from its node, which Slurm only takes in three words, of which the first
    ends the launcher too; return what is not so."""
    moved = player.job("moved", launched.command("--retries 1", BROKEN), node="node[7-8]")
    before = _runs(player.lab, moved, restarts=0)
    after = _runs(player.lab, moved, restarts=1)
    player.fails(moved, "hardware", "gpu.memory", what="its device is broken, and it was requeued elsewhere")
    player.ends_as(moved, "succeeded", 2)
    return [] if before != after else [f"{moved} was to leave {before}, and ran there again"]


def _runs(lab: Lab, job: str, *, restarts: int) -> str:
    """Wait until a job runs after so many restarts; return its node."""
    deadline = monotonic() + PATIENCE_S
    while True:
        said = dict(part.partition("=")[::2] for part in lab.run("scontrol", "show", "job", job).split())
        if (said["JobState"], said["Restarts"]) == ("RUNNING", str(restarts)):
            return said["NodeList"]
        if monotonic() > deadline:
            raise TimeoutError(f"job {job} is {said['JobState']} after {said['Restarts']} restarts: {said['Reason']}")
        sleep(1)


def _there(path: Path) -> None:
    deadline = monotonic() + PATIENCE_S
    while not path.exists():
        if monotonic() > deadline:
            raise TimeoutError(f"{path} is not there")
        sleep(0.5)


def play(line: Pipeline, player: Player, state: Path) -> list[str]:
    """Run all jobs, and return what was not handed over as it should be."""
    launched = Launched(line, state)
    by_its_launcher(player, launched)
    stayed = to_another_node(player, launched)
    by_its_node(player, launched)
    by_a_person(player)
    say(f"{len(player.jobs)} jobs")
    for job in player.jobs.values():
        player.lab.until(job, "COMPLETED", "FAILED", "")
    handed = [launched.handed("saved", attempt) for attempt in (1, 2)]
    return stayed if handed == [[None, None], SAVED] else [*stayed, f"the attempts were handed {handed}"]


def main(tool: Path, state: Path) -> int:
    """Run the drill; return 0 when every attempt is counted and judged right."""
    lab = Lab(tool, state, user="root")  # whose the interpreter may be
    with lab.running(), pipeline() as line:
        bridge = ["slurm", "--cluster", "lab", "--state", str(state / "bridge"), "--every-s", "10"]
        line.start_bridge(*bridge, environment=dict(lab.environment))
        player = Player(lab)
        differences = play(line, player, state)
        sleep(30)
        truth = player.truth()
        return report(line, truth, [*differences, *judged(line, truth)], RECORDED, "slurm-requeues")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()))
