"""Producers end to end: an agent's word decides on its node, outages of Kafka lose nothing, power loss is noticed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
from msgspec.structs import replace

from faultlens import topics
from faultlens.clock import HOUR_MS, MINUTE_MS, SECOND_MS, wall_ms
from faultlens.codec import Decoder, Event, encode, event_of
from faultlens.events import Check, JobAttributed, NodeFault, NodeHealth, NodeState
from faultlens.local import Places, replay
from faultlens.local_roles import load_roles
from faultlens.recordings import Recording
from faultlens.topics import TYPES
from producers.agent.configuration import Configuration
from producers.agent.loop import Agent
from producers.delivery import Outbox, Spool
from producers.delivery.memory import MemoryBroker
from producers.launcher.identity import Identity
from producers.launcher.launching import Launcher, Options

NOW_MS = 1_800_000_000_000


def replayed(events: Sequence[Event], folder: Path, topic: str) -> list[Event]:
    """Return what the processors say of events, an hour after the last one."""
    path = folder / "events.jsonl"
    ordered = sorted(events, key=lambda event: event.recorded_ms or event.time_ms)
    path.write_bytes(b"".join(encode(event) + b"\n" for event in ordered))
    replay([Recording(str(path))], load_roles(), Places(out=folder / "out", fresh=True))
    written = folder / "out" / f"{topic}.jsonl"
    decode = Decoder(TYPES).decode
    return [decode(line) for line in written.read_bytes().splitlines()] if written.exists() else []


def configuration(folder: Path, **more: Any) -> Configuration:
    (folder / "kmsg").touch()
    fixed = {"cluster": "c1", "node": "n1", "state": folder / "state", "kernel_log": folder / "kmsg"}
    off = dict.fromkeys(("clock", "local_disk"), "not what this is about")
    return Configuration.model_validate(fixed | {"not_needed": off} | more)


class Kept:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def put(self, event: Event) -> None:
        self.events.append(event)

    def trouble(self) -> str | None:
        return None


@pytest.mark.parametrize(("role", "state"), [("cpu", {"available"}), ("gpu", {"degraded", "blocked", "down"})])
def test_without_a_gpu_a_node_of_the_role_gpu_is_not_available_and_one_of_the_role_cpu_is(
    role: str, state: set[str], tmp_path: Path
) -> None:
    if role == "gpu" and Path("/dev/nvidiactl").exists():
        pytest.skip("a driver is beside the repository")
    clock = count(NOW_MS, 30_000)
    kept = Kept()
    agent = Agent(configuration(tmp_path, role=role), kept, version="1", now_ms=lambda: next(clock))
    for _ in range(2):
        agent.look()
    told = replayed(kept.events, tmp_path, topics.NODE_STATES)
    states = [event.data for event in told if isinstance(event.data, NodeState)]
    assert states[-1].state in state
    assert states[-1].gpus_allocatable == 0


# --- Kafka is away for ten minutes -----------------------------------------------------------------------


def arrived(broker: MemoryBroker) -> list[Event]:
    decode = Decoder().decode
    return [decode(record.value) for record in broker.records]


def test_what_an_agent_tells_in_ten_minutes_without_kafka_arrives_in_order_with_its_times(tmp_path: Path) -> None:
    broker, clock = MemoryBroker(), [NOW_MS]
    broker.away = True
    outbox = Outbox(Spool(tmp_path / "spool"), broker, now_ms=lambda: clock[0])
    agent = Agent(configuration(tmp_path, role="cpu"), outbox, version="1", now_ms=lambda: clock[0])
    for minute in range(10):
        fault = NodeFault("n1", "c1", "xid", str(minute), "kmsg")
        outbox.put(event_of(fault, source="agent/n1", id_=f"f{minute}", time_ms=clock[0]))
        agent.look()
        clock[0] += MINUTE_MS
    assert broker.records == []
    broker.away = False
    assert outbox.close(60)
    events = arrived(broker)
    assert [event.time_ms for event in events] == [NOW_MS + m * MINUTE_MS for m in range(10) for _ in (1, 2)]
    assert [e.data.code for e in events if isinstance(e.data, NodeFault)] == [str(minute) for minute in range(10)]
    assert sum(isinstance(event.data, NodeHealth) for event in events) == 10
    assert {event.sent_ms for event in events} == {NOW_MS + 10 * MINUTE_MS}
    assert (outbox.spool.folded, outbox.unkept) == (0, 0)


class Nobody:
    def tell(self, event: Event) -> None:
        return

    def verdict(self, job_id: str, attempt: int, *, decides: bool) -> None:
        return None


def test_a_job_is_not_held_up_while_kafka_is_away_and_its_life_is_told_afterwards(tmp_path: Path) -> None:
    broker, clock = MemoryBroker(), count(NOW_MS, SECOND_MS)
    broker.away = True
    outbox = Outbox(Spool(tmp_path / "spool"), broker)
    who = Identity(job_id="j", attempt=1, rank=0, ranks=1, node="n1", cluster="c1", nodes=("n1",), devices=(0,))
    began = monotonic()
    ending = Launcher(
        who, [sys.executable, "-c", "exit(3)"], os.environ, options=Options(retries=1), sink=outbox, judge=Nobody(),
        now_ms=lambda: next(clock), say=lambda line: None,
    ).run()  # fmt: skip
    assert ending.exit_code == 3
    assert monotonic() - began < 30
    assert not outbox.close(0.2)
    broker.away = False
    assert Outbox(Spool(tmp_path / "spool"), broker).close(60)
    events = arrived(broker)
    told = [event.type.split(".")[2] for event in events]
    assert told == ["submitted", *(2 * ["allocated", "started", "rank_exited", "ended"])]
    assert all(event.time_ms < NOW_MS + MINUTE_MS for event in events)


# --- power loss ------------------------------------------------------------------------------------------


@pytest.fixture
def running_job(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    out = tmp_path / "launch.jsonl"
    launch = [sys.executable, "-m", "faultlens.cli", "launch", "--cluster", "c1", "--out", str(out)]
    environment = os.environ | {"FAULTLENS_JOB_ID": "j", "CUDA_VISIBLE_DEVICES": "0"}
    process = subprocess.Popen([*launch, "--", "sleep", "600"], env=environment, start_new_session=True)
    deadline = monotonic() + 60
    while not (out.exists() and b"job.started" in out.read_bytes()):
        assert monotonic() < deadline
        sleep(0.05)
    yield process, out
    process.kill()
    process.wait(30)


def reports(node: str, first_ms: int, last_ms: int) -> Iterator[Event]:
    """Yield a node's reports every half minute."""
    data = NodeHealth(node, "c1", 30.0, 1, 1, (Check("gpu_count", "gpu", "pass"),), boot_id="b1")
    for at_ms in range(first_ms, last_ms, 30 * SECOND_MS):
        yield event_of(data, source=f"agent/{node}", id_=f"{node}-{at_ms}", time_ms=at_ms, recorded_ms=at_ms)


def test_when_a_node_loses_power_nobody_reports_the_end_and_the_host_is_to_blame(
    running_job: tuple[subprocess.Popen[bytes], Path], tmp_path: Path
) -> None:
    process, out = running_job
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)
    dark_ms = wall_ms()
    decode = Decoder().decode
    told = [replace(e, recorded_ms=e.time_ms) for e in map(decode, out.read_bytes().splitlines())]
    assert "faultlens.job.ended.v1" not in {event.type for event in told}
    here = socket.gethostname()
    told += reports(here, dark_ms - HOUR_MS, dark_ms)
    for other in ("other-1", "other-2", "other-3"):
        told += reports(other, dark_ms - HOUR_MS, dark_ms + HOUR_MS)
    said = [e.data for e in replayed(told, tmp_path, topics.ATTRIBUTIONS) if isinstance(e.data, JobAttributed)]
    last = max(said, key=lambda verdict: verdict.revision)
    assert (last.job_id, last.cause.cause_class, last.culprit.node) == ("j", "hardware", here)
    assert last.cause.code.startswith("host.lost")
    assert last.status == "final"
