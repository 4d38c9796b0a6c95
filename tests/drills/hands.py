"""The actuators of a drill as processes of their own, and what is seen of the repairs that they carry out."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import monotonic, sleep
from typing import Final

from faultlens import topics
from faultlens.events import Incident, RemediationResult
from tests.drills.pipeline import Pipeline, judged, say
from tests.drills.repairs import REPAIRED, repairs_wrong
from tests.drills.truth import Truth

ROLES: Final = ("node", "job", "context", "remediation")
PATIENCE_S: Final = 420.0


class Hands:
    """The actuators of a cluster `lab`, by kind; each keeps its ledger in the folder."""

    def __init__(self, line: Pipeline, folder: Path, environment: Mapping[str, str]) -> None:
        self._line, self._folder = line, folder
        self._environment = {**environment, "TERM": "dumb"}
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, kind: str, *options: str) -> None:
        """Start one, also anew."""
        ledger = ["--ledger", str(self._folder / f"{kind}.db"), "--brokers", self._line.kafka.bootstrap]
        command = [sys.executable, "-m", "faultlens.cli", "act", kind, "--cluster", "lab", *ledger, *options]
        with (self._folder / f"{kind}.log").open("ab") as log:
            self._running[kind] = subprocess.Popen(command, stdout=log, stderr=log, env=self._environment)

    def kill(self, kind: str) -> None:
        """End one without farewell."""
        self._running[kind].kill()
        self._running[kind].wait(30)
        say(f"the actuator {kind} is killed")

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


def waits(line: Pipeline) -> set[str]:
    """Return the first two words of all that incidents have waited for."""
    told = [event.data for event in line.events(topics.INCIDENTS) if isinstance(event.data, Incident)]
    return {" ".join((incident.waits_for or "").split()[:2]) for incident in told}


def has_returned(line: Pipeline) -> bool:
    """Return whether the last step of a repair has succeeded."""
    return has_come(line, REPAIRED[-1], "succeeded")


def has_come(line: Pipeline, action: str, state: str) -> bool:
    """Return whether a step of a repair has come so far."""
    told = [event.data for event in line.events(topics.REMEDIATION_RESULTS)]
    return any(isinstance(end, RemediationResult) and (end.action, end.state) == (action, state) for end in told)


def differences(line: Pipeline, truth: Truth) -> Sequence[str]:
    """Return what was not as it should be, of verdicts and of repairs."""
    said = [e for name in (topics.REMEDIATION_COMMANDS, topics.INCIDENTS) for e in line.events(name)]
    results = line.events(topics.REMEDIATION_RESULTS)
    return [*judged(line, truth), *repairs_wrong(said, results)]
