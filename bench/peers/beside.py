"""What others take to read the topic that a worker reads, each in a process of its own, one after the other."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
# Faust's agents take an event at a time: a share of the records says what they take.
READS = {"confluent": 1.0, "aiokafka": 1.0, "quix": 1.0, "bytewax": 1.0, "faust": 0.15}
PATIENCE_S = 300


def environment(directory: Path) -> Path:
    """Return the interpreter of an environment with the peers in it, which is made where there is none."""
    python = directory / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(directory)], check=True)
        subprocess.run(
            [str(python), "-m", "pip", "install", "-q", "-r", str(HERE / "requirements.txt")],
            check=True,
            timeout=900,
        )
    return python


def beside(python: Path, brokers: str, topic: str, *, records: int, partitions: int) -> dict[str, dict[str, float]]:
    """Return what each peer takes for a record of the topic; one that fails says why instead of being left out."""
    found: dict[str, dict[str, float]] = {}
    for peer, share in READS.items():
        command = [str(python), str(HERE / "reading.py"), peer, brokers, topic, str(round(records * share))]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
            env=os.environ | {"PEER_PARTITIONS": str(partitions)},
        )
        # Some of them say more than they are asked for, before that and on the same line.
        told = re.findall(r"\{\"records.*\}", done.stdout)
        if done.returncode or not told:
            print(f"{peer} cannot be timed: {done.stdout[-500:]}{done.stderr[-500:]}", file=sys.stderr)
        else:
            found[peer] = json.loads(told[-1])
    return found
