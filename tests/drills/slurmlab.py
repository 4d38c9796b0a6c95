"""A Slurm cluster on loopback that a drill plays upon: jobs of a user, and what happens to nodes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Final

USER: Final = "games"
PATIENCE_S: Final = 180.0


class Lab:
    """The tool that brings the cluster up, and its state directory; `user` submits the jobs."""

    def __init__(self, tool: Path, state: Path, user: str = USER) -> None:
        self._tool = tool
        self._user = user
        self.state = state
        ports = {"BASE_PORT": "18000", "CTLD_PORT": "18817", "DBD_PORT": "18819", "SQL_PORT": "18306"}
        self._own = {"LAB": str(state), "SLURM_CONF": str(state / "etc" / "slurm.conf")} | ports
        self.environment = os.environ | self._own

    def up(self) -> None:
        """Start what does not run."""
        subprocess.run([self._tool / "up.sh"], env=self.environment, check=True, timeout=300)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Bring it up; stop everything and forget it in the end."""
        self.up()
        try:
            yield
        finally:
            subprocess.run([self._tool / "down.sh", "--wipe"], env=self.environment, check=False, timeout=300)

    def run(self, *command: str, check: bool = True) -> str:
        """Run one of Slurm's programs as root and return what it says."""
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=120, check=False)
        if check and done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr[-500:]}")
        return done.stdout.strip()

    def submit(self, script: str, *options: str) -> str:
        """Submit a script as the user; return the job's id."""
        place = self.state / "jobs"
        submit = ["sbatch", "--parsable", "--chdir", str(place), "--output", str(place / "%j.out"), *options]
        wrap = ["runuser", "-u", self._user, "--", "env", f"SLURM_CONF={self._own['SLURM_CONF']}", *submit]
        return self.run(*wrap, "--wrap", script).partition(";")[0]

    def state_of(self, job: str) -> str:
        """Return the controller's word for a job."""
        for part in self.run("scontrol", "show", "job", job, check=False).split():
            if part.startswith("JobState="):
                return part.removeprefix("JobState=")
        return ""

    def until(self, job: str, *states: str) -> None:
        """Wait until a job is in one of these states."""
        deadline = monotonic() + PATIENCE_S
        while (found := self.state_of(job)) not in states:
            if monotonic() > deadline:
                raise TimeoutError(f"job {job} is {found or 'gone'} and not {' or '.join(states)}")
            sleep(1)

    def script(self, text: str) -> None:
        """Run a piece of shell with the lab's own functions."""
        command = f"HERE={self._tool}; . {self._tool / 'lib.sh'}; {text}"
        subprocess.run(["bash", "-c", command], env=self.environment, check=True, timeout=120)  # noqa: S607

    def after_each_job(self, program: Path, **environment: str) -> None:
        """Have the controller run a program, with these variables, when a job has ended."""
        hook = self.state / "hook"
        said = " ".join(f"{name}={value}" for name, value in environment.items())
        hook.write_text(f"#!/bin/sh\nexec env {said} {program}\n", "utf-8")
        hook.chmod(0o755)
        with Path(self._own["SLURM_CONF"]).open("a", encoding="utf-8") as configuration:
            configuration.write(f"EpilogSlurmctld={hook}\n")
        # Slurm 22.05 asks whether there is such a program only when the controller starts.
        user = "setpriv --reuid slurm --regid slurm --init-groups"
        conf = self._own["SLURM_CONF"]
        self.script(f"stop_daemon slurmctld; start_daemon slurmctld env SLURM_CONF={conf} {user} slurmctld -D")
        self.script("wait_for 60 slurmctld scontrol ping")

    def lose(self, node: str) -> None:
        """Take the power off a node: its daemon and everything that runs on it are gone at once."""
        self.daemon_dies(node)
        self.script(f"for p in $(lab_procs {node}); do kill -KILL $p; done; true")

    def daemon_dies(self, node: str) -> None:
        """Kill a node's daemon and nothing else."""
        gone = f"for i in $(seq 50); do alive slurmd.{node} || break; sleep 0.1; done"
        self.script(f"kill -KILL $(pid_of slurmd.{node}); {gone}")

    def boot(self, node: str) -> None:
        """Start a node's daemon as after a boot."""
        self.script(f"start_slurmd {node} -b")

    def daemon_returns(self, node: str) -> None:
        """Start a node's daemon where it left."""
        self.script(f"start_slurmd {node}")

    def tell(self, name: str, text: str = "x") -> None:
        """Tell one of the lab's helpers to fail."""
        (self.state / "ctl" / name).write_text(text, "utf-8")

    def untell(self, name: str) -> None:
        """Take that back."""
        (self.state / "ctl" / name).unlink(missing_ok=True)
