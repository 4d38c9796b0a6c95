"""Many stories of a fleet in trouble, one seeded day after the other, with a line for each; goes on where it stopped.

Run: python -m tests.simulation.campaign --days 10000 --first 1 --nodes 100 --out build/adversary.jsonl. A seed that is
in the file and held is not told again. Ends with 1 when something does not hold.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO

from tests.simulation.promises import broken
from tests.simulation.repairing import Story

Line = dict[str, Any]


def told(seed: int, nodes: int) -> Line:
    """Tell a seed's day and return what is to be written of it; `broken` says what did not hold."""
    began_s, story = time.process_time(), Story(seed, nodes=nodes)
    try:
        story.run()
        wrong = broken(story)
    except Exception:  # noqa: BLE001 - whatever a seed ends with, the others are to be told
        wrong = [traceback.format_exc()]
    return {
        "seed": seed,
        "nodes": nodes,
        "commands": len(story.counted.commands),
        "incidents": len(story.incidents),
        "crashes": story.crashes,
        "cpu_s": round(time.process_time() - began_s, 2),
        "broken": wrong,
    }


def held_in(lines: Iterable[str], nodes: int) -> set[int]:
    """Return the seeds that were told with so many nodes and of which all held; a line cut short is told again."""
    held = set()
    for line in lines:
        try:
            known = json.loads(line)
        except ValueError:
            continue
        if known["nodes"] == nodes and not known["broken"]:
            held.add(known["seed"])
    return held


def campaign(seeds: Iterable[int], nodes: int, out: TextIO) -> Iterator[Line]:
    """Tell the seeds one by one, each written down before it is yielded."""
    for seed in seeds:
        line = told(seed, nodes)
        out.write(json.dumps(line) + "\n")
        out.flush()
        yield line


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=20, help="how many seeded days")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--out", type=Path, default=Path("build/adversary.jsonl"))
    chosen = parser.parse_args()
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    with chosen.out.open("a+") as out:
        out.seek(0)
        text = out.read()
        if text and not text.endswith("\n"):
            out.write("\n")
        held = held_in(text.splitlines(), chosen.nodes)
        seeds = [seed for seed in range(chosen.first, chosen.first + chosen.days) if seed not in held]
        failed = [line for line in campaign(seeds, chosen.nodes, out) if complained(line)]
    before = chosen.days - len(seeds)
    sys.stdout.write(
        f"{chosen.days} days of {chosen.nodes} nodes ({before} told before): {len(failed)} with something wrong\n"
    )
    return 1 if failed else 0


def complained(line: Line) -> bool:
    """Say what did not hold of a seed, and how to tell it again; return whether anything did not."""
    if not line["broken"]:
        return False
    seed, nodes = line["seed"], line["nodes"]
    wrong = "\n  ".join(line["broken"])
    again = f"make adversary DAYS=1 FIRST={seed} NODES={nodes}"
    sys.stderr.write(f"seed {seed} with {nodes} nodes:\n  {wrong}\nagain: {again}\n")
    return True


if __name__ == "__main__":
    sys.exit(main())
