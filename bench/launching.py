"""Output that passes through the launcher, beside the same through `cat`: how fast, and in how much memory.

    python bench/launching.py [--megabytes 2000] [--rounds 3]

The command prints lines of 100 bytes as quickly as they are taken, and then at 100 MB/s; it says itself how long its
output took, so that starting up counts for nobody. `cat` and the launcher hand them to the same reader.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

LAUNCH = (sys.executable, "-m", "faultlens.cli", "launch")
PATTERN = ("--progress-pattern", r"step (?P<step>\d+)")
PACE = 100.0
# Prints so many megabytes, at most so many a second; leaves how long that took and its parent's peak of memory.
FLOOD = r"""
import json, os, sys, time
megabytes, pace, result = float(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
chunk = (b"epoch 3 loss 0.123456789 tokens/s 123 " + b"x" * 61 + b"\n") * 655
count = int(megabytes * 1e6 / len(chunk))
began = time.monotonic()
for number in range(count):
    left = memoryview(chunk)
    while left:
        left = left[os.write(1, left):]
    if pace:
        ahead = (number + 1) * len(chunk) / (pace * 1e6) - (time.monotonic() - began)
        if ahead > 0.01:
            time.sleep(ahead)
seconds = time.monotonic() - began
peak = [line.split()[1] for line in open(f"/proc/{os.getppid()}/status") if line.startswith("VmHWM")]
json.dump([count * len(chunk) / seconds / 1e6, int(peak[0]) / 1024], open(result, "w"))
"""


def flood(megabytes: float, pace: float, *through: str) -> tuple[float, float]:
    """Return how many megabytes a second were taken, and the peak (MiB) of what took them."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result"
        command = [*through, sys.executable, "-c", FLOOD, str(megabytes), str(pace), str(result)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            subprocess.run(["cat"], stdin=process.stdout, stdout=subprocess.DEVNULL, check=True)  # noqa: S607
        rate, peak = json.loads(result.read_text("utf-8"))
        return rate, peak


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=float, default=2_000)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    ways = {
        "cmd | cat > /dev/null": (),
        "launch -- cmd | cat > /dev/null": (*LAUNCH, "--"),
        "the same with --progress-pattern": (*LAUNCH, *PATTERN, "--"),
    }
    for pace in (0.0, PACE):
        megabytes = asked.megabytes / (4 if pace else 1)
        best = {name: max(flood(megabytes, pace, *way) for _ in range(asked.rounds)) for name, way in ways.items()}
        bare = best["cmd | cat > /dev/null"][0]
        print(f"{megabytes:,.0f} MB, " + (f"at {pace:.0f} MB/s" if pace else "as fast as they are taken"))
        for name, (rate, peak) in best.items():
            memory = "" if name.startswith("cmd") else f", peak {peak:.0f} MiB"
            print(f"  {name:34} {rate:8,.0f} MB/s, {rate / bare:.2f} of plain{memory}")


if __name__ == "__main__":
    main()
