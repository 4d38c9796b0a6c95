"""The live pipeline around a bridge: a real Kafka, workers, and what they said, for drills that run for minutes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Final

import zstandard
from msgspec.structs import replace

from faultlens import topics
from faultlens.codec import Decoder, Event, encode
from faultlens.topics import TYPES
from tests.drills.truth import Truth, save, waits_for, wrong
from tests.kafka.cluster import Cluster
from tests.kafka.jars import jars
from tests.kafka.living import Worker, consumed, fresh_topics, running

INPUTS: Final = (topics.JOB_EVENTS, topics.NODE_EVENTS, topics.PLATFORM_EVENTS)
ROLES: Final = ("node", "job", "context")
PARTITIONS: Final = 2
# The window closes five minutes after an end, and the nodes answer soon after.
PATIENCE_S: Final = 600.0


def say(line: str) -> None:
    """Tell whoever runs the drill."""
    print(line, flush=True)  # noqa: T201 - a drill is run by hand


class Pipeline:
    """Kafka and workers of these roles, and the topics that are told; `bridge` starts what is drilled."""

    def __init__(self, directory: Path, roles: Sequence[str] = ROLES, told: Sequence[str] = INPUTS) -> None:
        self._directory = directory
        self._told = told
        self._decode = Decoder(TYPES).decode
        self.kafka = Cluster(directory, jars())
        self.kafka.start()
        fresh_topics(self.kafka, PARTITIONS)
        self._bridge: subprocess.Popen[bytes] | None = None
        self.workers = [Worker(self.kafka, role, directory / f"{role}.log") for role in roles]

    def start_bridge(self, *arguments: str, environment: dict[str, str] | None = None) -> None:
        """Start the bridge, also anew after `stop_bridge`."""
        command = [sys.executable, "-m", "faultlens.cli", "bridge", *arguments, "--brokers", self.kafka.bootstrap]
        with (self._directory / "bridge.log").open("ab") as log:
            environment = os.environ | {"TERM": "dumb"} | (environment or {})
            self._bridge = subprocess.Popen(command, stdout=log, stderr=log, env=environment)

    def hears(self, words: str) -> bool:
        """Return whether the bridge has said this."""
        return words in (self._directory / "bridge.log").read_text("utf-8", "replace")

    def stop_bridge(self, *, kill: bool = False) -> None:
        """End the bridge, without farewell if asked."""
        if self._bridge is not None:
            if kill:
                self._bridge.kill()
            else:
                self._bridge.terminate()
            self._bridge.wait(60)

    def check(self) -> None:
        """Make sure that all of it still runs."""
        dead = [f"{worker.role} ended with {worker.code}: {worker.said()}" for worker in self.workers if worker.code]
        if self._bridge is not None and self._bridge.poll() is not None:
            dead.append(f"the bridge ended with {self._bridge.returncode}; see {self._directory}")
        if dead:
            raise RuntimeError("; ".join(dead))

    def events(self, topic: str) -> list[Event]:
        """Return what is in a topic, in the order of its arrival, with the time of that."""
        messages = [message for message in consumed(self.kafka, topic) if message.value()]
        messages.sort(key=lambda message: (message.timestamp()[1], message.partition(), message.offset()))
        return [replace(self._decode(m.value()), recorded_ms=m.timestamp()[1]) for m in messages]

    def outputs(self) -> list[Event]:
        """Return verdicts and findings."""
        return [*self.events(topics.ATTRIBUTIONS), *self.events(topics.FINDINGS)]

    def inputs(self) -> list[Event]:
        """Return everything that was told, in the order of its arrival."""
        found = [event for topic in self._told for event in self.events(topic)]
        return sorted(found, key=lambda event: event.recorded_ms or 0)

    def close(self) -> None:
        """End everything."""
        self.stop_bridge()
        self.kafka.close()


@contextmanager
def pipeline(roles: Sequence[str] = ROLES, told: Sequence[str] = INPUTS) -> Iterator[Pipeline]:
    """Yield a pipeline whose workers run."""
    with tempfile.TemporaryDirectory(prefix="faultlens-drill-") as folder:
        line = Pipeline(Path(folder), roles, told)
        try:
            with running(line.workers):
                yield line
        finally:
            line.close()


def judged(line: Pipeline, truth: Truth, *, patience_s: float = PATIENCE_S) -> list[str]:
    """Wait for the last final verdict, and return what does not agree with the truth."""
    deadline = monotonic() + patience_s
    while (waiting := waits_for(truth, line.outputs())) and monotonic() < deadline:
        line.check()
        say(f"{len(waiting)} verdicts are not final yet: {', '.join(waiting[:6])} …")
        sleep(20)
    return wrong(truth, line.outputs(), line.inputs())


def record(events: Sequence[Event], truth: Truth, folder: Path, name: str) -> None:
    """Keep what was told and what is true, so that it can be replayed."""
    folder.mkdir(parents=True, exist_ok=True)
    # By which clock a sender sent it says nothing here: the same machine told and received it.
    lines = b"".join(encode(replace(event, sent_ms=None)) + b"\n" for event in events)
    (folder / f"{name}.jsonl.zst").write_bytes(zstandard.ZstdCompressor(19).compress(lines))
    (folder / f"{name}.truth.json").write_bytes(save(truth))


def report(line: Pipeline, truth: Truth, differences: Sequence[str], folder: Path, name: str) -> int:
    """Say how the drill went, keep what it told, and return the exit code."""
    inputs = line.inputs()
    record(inputs, truth, folder, name)
    say(f"{len(inputs)} events were told; {len(truth.failures)} failures, {len(truth.other_ends)} other ends")
    for difference in differences:
        say(f"  {difference}")
    say("all as it should be" if not differences else f"{len(differences)} differences")
    return 1 if differences else 0
