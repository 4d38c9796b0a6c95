"""Jobs that a real torchrun runs on processors, under the launcher and around it, each ended in its own way.

    make record-torchrun TORCHRUN=/path/to/torchrun        # of an environment with PyTorch

The launcher alone tells, into files. What it told is kept beside the truth (tests/data/drills), and replayed by
tests/acceptance/test_drills.py.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Final

from msgspec.structs import replace

from faultlens.codec import Decoder, Event
from faultlens.events import JobCheckpoint, JobProgress, JobResized
from faultlens.local import Places, replay
from faultlens.local_roles import load_roles
from faultlens.recordings import Recording
from faultlens.topics import TYPES
from tests.drills.pipeline import record, say
from tests.drills.slurm import RECORDED
from tests.drills.truth import Failure, Truth, wrong

ROOT: Final = Path(__file__).parents[2]
LAUNCH: Final = (sys.executable, "-m", "faultlens.cli", "launch")
PATIENCE_S: Final = 120.0
# Trains a line on all ranks until rank 0 finds the file `enough`, from the last checkpoint on. Fails as it is asked to,
# once: the last rank in its fourth step.
TRAINING: Final = """
import os, pathlib, signal, sys, time
import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel
from faultlens.progress import Progress

folder, fails = pathlib.Path(sys.argv[1]), sys.argv[2]

def fail():
    (folder / "failed").touch()
    if fails == "raises":
        raise ValueError("num_heads must divide hidden_size")
    os.kill(os.getpid(), signal.SIGKILL)

@record
def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    progress = Progress.from_environment(every_s=0)
    nodes = [None] * world
    dist.all_gather_object(nodes, os.environ["SLURMD_NODENAME"])
    progress.workers(nodes)
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    saved, step = folder / "saved", 0
    if saved.exists():
        began = time.monotonic()
        step, weights = torch.load(saved)
        model.load_state_dict(weights)
        progress.checkpoint(step, time.monotonic() - began, restored=True)
    enough = torch.zeros(1)
    while not enough:
        loss = model(torch.randn(8, 4)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.25)
        step += 1
        progress.step(step)
        if rank == 0 and step % 3 == 0:
            with progress.saving(step, path=saved):
                torch.save((step, model.state_dict()), folder / "saving")
                os.replace(folder / "saving", saved)
        dist.barrier()
        if step == 4 and rank == world - 1 and fails in ("raises", "killed") and not (folder / "failed").exists():
            fail()
        enough[0] = rank == 0 and (folder / "enough").exists()
        dist.all_reduce(enough)
    dist.destroy_process_group()

main()
"""


class Lab:
    """Starts jobs, and keeps what they told and what is true of them."""

    def __init__(self, torchrun: Path, folder: Path) -> None:
        self._torchrun = torchrun
        self.folder = folder
        self._decode = Decoder(TYPES).decode
        self._started: list[subprocess.Popen[bytes]] = []
        self.failures: list[Failure] = []
        self.ends: dict[str, str] = {}
        (folder / "training.py").write_text(TRAINING, "utf-8")

    def fails(self, job: str, *, attempt: int = 1, loss: int | None = None, node: str | None = None, what: str) -> None:
        """Note a failure of the program's own, or a loss that nobody explains."""
        self.failures.append(Failure(job, ("user",), ("app",), attempt, loss, node, None, what))

    def training(self, job: str, fails: str) -> list[str]:
        """Return the command that trains; each job has a folder of its own."""
        (self.folder / job).mkdir(exist_ok=True)
        return [
            str(self._torchrun.with_name("python")),
            str(self.folder / "training.py"),
            str(self.folder / job),
            fails,
        ]

    def inside(self, job: str, fails: str, *options: str, node: str = "n1", **more: str) -> subprocess.Popen[bytes]:
        """Start a job whose ranks are each run by a launcher."""
        launch = [*LAUNCH, "--out", str(self.told(job)), "--"]
        command = [*self._run(*options), "--no-python", *launch, *self.training(job, fails)]
        return self._start(job, node, command, **more)

    def around(self, job: str, fails: str, *options: str, node: str = "n1", **more: str) -> subprocess.Popen[bytes]:
        """Start a job of which a launcher runs torchrun, on this node."""
        _, script, *arguments = self.training(job, fails)
        launch = [*LAUNCH, "--out", str(self.told(job)), "--"]
        return self._start(job, node, [*launch, *self._run(*options), script, *arguments], **more)

    def _run(self, *options: str) -> list[str]:
        return [str(self._torchrun), *(options or ("--standalone", "--nproc-per-node=2"))]

    def _start(self, job: str, node: str, command: list[str], **more: str) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ, "FAULTLENS_JOB_ID": job, "FAULTLENS_CLUSTER": "lab", "SLURMD_NODENAME": node,
            "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1",
            # Else workers that meet anew find the addresses of those before them, where these wait no more.
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", **more,
        }  # fmt: skip
        with (self.folder / f"{job}.{node}.log").open("wb") as log:
            started = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
        self._started.append(started)
        return started

    def close(self) -> None:
        """End what still runs."""
        for started in self._started:
            started.terminate()
        for started in self._started:
            started.wait(PATIENCE_S)

    def told(self, job: str) -> Path:
        """Return the file of what is told of a job."""
        return self.folder / f"{job}.jsonl"

    def events(self, job: str) -> list[Event]:
        """Return what was told of a job, in the order in which it happened."""
        lines = self.told(job).read_bytes().splitlines() if self.told(job).exists() else []
        events = [self._decode(line) for line in lines]
        return sorted((replace(event, recorded_ms=event.time_ms) for event in events), key=lambda e: e.time_ms)

    def until(self, job: str, there: Callable[[list[Event]], bool]) -> None:
        """Wait until enough is told of a job."""
        deadline = monotonic() + PATIENCE_S
        while not there(self.events(job)):
            if monotonic() > deadline:
                raise TimeoutError(f"{job}: see {self.folder}")
            sleep(0.2)

    def enough(self, job: str) -> None:
        """Let the training end once it has trained on for three steps."""
        now = len(steps(self.events(job)))
        self.until(job, lambda events: len(steps(events)) >= now + 3)
        (self.folder / job / "enough").touch()


def steps(events: list[Event]) -> list[int]:
    """Return the steps that were told."""
    return [event.data.step for event in events if isinstance(event.data, JobProgress)]


def fails_and_ends(lab: Lab) -> None:
    """Let the last of two ranks raise or be killed, with nobody to start them again."""
    for place, start in (("inside", lab.inside), ("around", lab.around)):
        for fails in ("raises", "killed"):
            job = f"{place}-{fails}"
            if start(job, fails).wait(PATIENCE_S) == 0:
                raise RuntimeError(f"{job} did not fail: see {lab.folder}")
            lab.fails(job, what=f"its last rank {fails}")


def fails_and_goes_on(lab: Lab) -> None:
    """Let torchrun start the ranks again: attempts for launchers inside of it; around it the attempt goes on."""
    again = ("--standalone", "--nproc-per-node=2", "--max-restarts=2")
    for job, start in (("inside-again", lab.inside), ("around-again", lab.around)):
        running = start(job, "killed", *again)
        lab.until(job, lambda events: any(isinstance(e.data, JobCheckpoint) and e.data.restored for e in events))
        lab.enough(job)
        if running.wait(PATIENCE_S):
            raise RuntimeError(f"{job} did not go on: see {lab.folder}")
    lab.fails("inside-again", what="its last rank is killed, and torchrun starts all again")
    lab.ends |= {"inside-again/2": "succeeded", "around-again/1": "succeeded"}


def two_nodes(lab: Lab) -> None:
    """Let the last rank of a job raise that only torchrun names, and that no scheduler gave its nodes."""
    job, options = "two-nodes", meeting("two-nodes", "--nnodes=2")
    agents = [lab.inside(job, "raises", *options, node=node, FAULTLENS_JOB_ID="") for node in ("n1", "n2")]
    if 0 in [agent.wait(PATIENCE_S) for agent in agents]:
        raise RuntimeError(f"{job} did not fail: see {lab.folder}")
    lab.fails(job, what="its last rank raises, on another node")


def meeting(job: str, *more: str) -> list[str]:
    """Return the options by which agents with a rank each meet."""
    where = [f"--rdzv-endpoint=127.0.0.1:{_port()}", f"--rdzv-id={job}", "--rdzv-backend=c10d"]
    return [*where, "--nproc-per-node=1", "--local-addr=127.0.0.1", "--rdzv-conf=last_call_timeout=1", *more]


def elastic(lab: Lab) -> None:
    """Let a second agent join a job, and leave it again."""
    job, options = "elastic", meeting("elastic", "--nnodes=1:2", "--max-restarts=3")
    first = lab.around(job, "never", *options)
    lab.until(job, lambda events: len(steps(events)) >= 3)
    # Nobody numbers launchers that no scheduler starts: all but the first are told that they are not.
    second = lab.around(job, "never", *options, node="n2", RANK="1")
    lab.until(job, lambda events: len(resizes(events)) == 1)
    joined = len(steps(lab.events(job)))
    lab.until(job, lambda events: len(steps(events)) >= joined + 3)
    second.send_signal(signal.SIGTERM)
    second.wait(PATIENCE_S)
    lab.until(job, lambda events: len(resizes(events)) == 2)
    lab.enough(job)
    if first.wait(PATIENCE_S):
        raise RuntimeError(f"{job} did not go on: see {lab.folder}")
    lab.fails(job, loss=1, what="its second agent leaves")
    lab.ends["elastic/1"] = "succeeded"


def resizes(events: list[Event]) -> list[JobResized]:
    """Return when the job went on with other workers."""
    return [event.data for event in events if isinstance(event.data, JobResized)]


def _port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def judged(lab: Lab, truth: Truth) -> list[str]:
    """Keep what was told, replay it, and return what does not agree with the truth."""
    jobs = sorted(path.stem for path in lab.folder.glob("*.jsonl"))
    told = sorted((event for job in jobs for event in lab.events(job)), key=lambda event: event.time_ms)
    record(told, truth, RECORDED, "torchrun")
    out = lab.folder / "out"
    replay([Recording(str(RECORDED / "torchrun.jsonl.zst"))], load_roles(), Places(out=out, fresh=True))
    decode = Decoder(TYPES).decode
    outputs = [decode(line) for path in out.glob("*.jsonl") for line in path.read_bytes().splitlines()]
    return wrong(truth, outputs, told)


def main(torchrun: Path, folder: Path) -> int:
    """Run all jobs; return 0 when every failure is judged right."""
    with suppress(FileNotFoundError):
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    lab = Lab(torchrun, folder)
    try:
        for play in (fails_and_ends, fails_and_goes_on, two_nodes, elastic):
            say(play.__doc__ or play.__name__)
            play(lab)
    finally:
        lab.close()
    truth = Truth(tuple(lab.failures), lab.ends)
    differences = judged(lab, truth)
    for difference in differences:
        say(f"  {difference}")
    say("all as it should be" if not differences else f"{len(differences)} differences")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()))
