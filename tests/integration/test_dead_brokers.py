"""Brokers that refuse, or take a connection and say nothing: each verb ends by itself and says so in a sentence."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest

pytest.importorskip("confluent_kafka", reason="the Kafka client is not installed (extra `stream`)")

# Long, for where many other things run; alone each takes some 20 s, nearly all of it waiting.
BOUND_S = 90.0
REFUSING = "127.0.0.1:1"
EVENTS = Path(__file__).parents[2] / "examples" / "one-fault.jsonl"
AGENT = "cluster: c1\nrole: cpu\nstate: {}\n"


@pytest.fixture
def silent() -> Iterator[str]:
    """Yield the address of what takes connections, since the kernel does, and says nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def test_whoever_waits_for_brokers_is_told_in_one_sentence_that_they_do_not_answer(silent: str, tmp_path: Path) -> None:
    (tmp_path / "agent.yaml").write_text(AGENT.format(tmp_path / "agent"))
    asked = (
        (REFUSING, "topics check"),
        (silent, "topics create"),
        (REFUSING, "stream --role all"),
        (silent, f"sink --store {tmp_path}/store"),
        (silent, f"produce {EVENTS}"),
        (REFUSING, "dead-letters list"),
        (silent, f"act dry-run --cluster c1 --ledger {tmp_path}/ledger"),
        (REFUSING, "pause --cluster c1 --reason x --for 1h"),
        (REFUSING, f"agent --once --config {tmp_path}/agent.yaml"),
    )
    began = monotonic()
    running = [(where, words, started(words, where, tmp_path)) for where, words in asked]
    for where, words, process in running:
        said, complained = process.communicate(timeout=max(1.0, began + BOUND_S - monotonic()))
        assert (process.returncode, said) == (3, ""), (words, said, complained)
        (sentence,) = [line for line in complained.splitlines() if line.startswith("faultlens: ")]
        assert sentence.startswith(f"faultlens: the brokers at {where}"), (words, complained)
        assert "Connection refused" in sentence or where == silent, (words, complained)
        assert len(complained.splitlines()) <= 5, (words, complained)


def started(words: str, brokers: str, home: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "faultlens.cli", *words.split(), "--brokers", brokers]
    surroundings = os.environ | {"XDG_DATA_HOME": str(home / "data")}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=surroundings)


def test_who_is_told_to_end_while_brokers_are_asked_ends_at_once(silent: str, tmp_path: Path) -> None:
    waiting = started(f"produce {EVENTS}", silent, tmp_path)
    sleeper = threading.Event()
    while not connected(silent):
        assert waiting.poll() is None
        sleeper.wait(0.1)
    told = monotonic()
    waiting.terminate()
    _, complained = waiting.communicate(timeout=BOUND_S)
    assert (waiting.returncode, monotonic() - told < 5) == (128 + signal.SIGTERM, True), complained


def connected(where: str) -> bool:
    """Return whether somebody has connected to this port."""
    port = f":{int(where.rpartition(':')[2]):04X}"
    lines = Path("/proc/net/tcp").read_text("ascii").splitlines()[1:]
    return any(line.split()[2].endswith(port) for line in lines)
