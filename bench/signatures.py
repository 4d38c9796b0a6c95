"""Reading an 8 KiB log tail with all signatures: our way beside one loop of searches and one automaton.

    python bench/signatures.py [--rounds 30]

Times are CPU times, the best of the rounds, in the same process, with their ratios to ours. New tails differ in every
line, as those of different jobs do, and are read after as many others; the same tail again is what a gang's ranks
print. One automaton (RE2's set) is quick on a tail that it knows and slow on new ones, since it builds a state for
nearly every byte; that is why it is not used.
"""

from __future__ import annotations

import argparse
import random
import re
from collections.abc import Callable, Sequence
from time import process_time

import re2

from faultlens.signatures import Signature, SignatureSet, load_signatures
from faultlens.signatures.matcher import compile_pattern, pattern_options

TAIL_BYTES = 8192
NEW_TAILS = 50
TEARDOWN = (
    "node-7:812:901 [0] NCCL INFO [Service thread] Connection closed by localRank 5",
    "W1012 04:11:09 torch/distributed/elastic/multiprocessing/api.py:897] Sending process 812 closing signal SIGTERM",
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
    "train.py FAILED",
    "Root Cause (first observed failure):",
    "  rank      : 3 (local_rank: 3)",
    "  exitcode  : 1 (pid: 812)",
    "slurmstepd: error: *** STEP 91.0 ON node-7 CANCELLED AT 2026-10-12T04:11:09 ***",
)


def tail(seed: int, failures: Sequence[str]) -> str:
    """Return a rank's log tail of 8 KiB: steps, a traceback with one known failure, and what the others' end does."""
    draw = random.Random(seed)  # noqa: S311  nothing secret
    lines = [f"step {n}: loss {draw.random():.6f}, {draw.randrange(99_999)} tokens/s" for n in range(60)]
    lines += ["[rank3]: Traceback (most recent call last):"]
    for depth in range(24):
        lines += [
            f'[rank3]:   File "/opt/train/{draw.randrange(10**6):x}.py", line {draw.randrange(900)}, in f{depth}',
            f"[rank3]:     return self.layer_{draw.randrange(10**6):x}(x, mask)",
        ]
    lines += [f"[rank3]: {draw.choice(failures)}", *TEARDOWN]
    text = "\n".join(lines)
    return text[-TAIL_BYTES:].rjust(TAIL_BYTES, ".")


def best_us(work: Callable[[str], object], texts: Sequence[str], rounds: int) -> float:
    """Return the best mean time for a text, in microseconds."""
    best = float("inf")
    for _ in range(rounds):
        started = process_time()
        for text in texts:
            work(text)
        best = min(best, (process_time() - started) / len(texts))
    return best * 1e6


def python_loop(signatures: Sequence[Signature]) -> Callable[[str], object]:
    patterns = [re.compile(for_python(s.pattern), re.MULTILINE) for s in signatures]
    return lambda text: [pattern.search(text) for pattern in patterns]


def for_python(pattern: str) -> str:
    """Return the pattern in Python's syntax, where a flag in the middle needs a group of its own."""
    head, flag, rest = pattern.partition("(?i)")
    return f"{head}(?i:{rest})" if flag else pattern


def re2_loop(signatures: Sequence[Signature]) -> Callable[[str], object]:
    patterns = [compile_pattern(s.pattern, role=s.role) for s in signatures]

    def search(text: str) -> object:
        data = text.encode()
        return [pattern.search(data) for pattern in patterns]

    return search


def re2_set(signatures: Sequence[Signature]) -> Callable[[str], object]:
    options = pattern_options(across_lines=False)
    options.max_mem = 256 << 20
    automaton = re2.Set.SearchSet(options)
    for signature in signatures:
        automaton.Add(f"(?m:{signature.pattern})".encode())
    automaton.Compile()
    return lambda text: automaton.Match(text.encode())


def ours(known: SignatureSet) -> Callable[[str], object]:
    """Return the reading of a text as if it were new: found, located, masked, but not remembered."""
    return lambda text: known._scan_anew(text, "log_tail")  # noqa: SLF001


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30, help="The best of so many rounds counts.")
    rounds = parser.parse_args().rounds
    known = load_signatures()
    applied = [s for s in known.signatures if "log_tail" in s.where]
    failures = [s.example.splitlines()[0] for s in applied if s.role == "root"]
    others, new = ([tail(n, failures) for n in range(begin, begin + NEW_TAILS)] for begin in (0, NEW_TAILS))
    again = new[:1]
    ways: dict[str, Callable[[], Callable[[str], object]]] = {
        "faultlens (finds and locates)": lambda: ours(known),
        "loop of re2 searches": lambda: re2_loop(applied),
        "loop of Python re searches": lambda: python_loop(applied),
        "one re2.Set of all patterns": lambda: re2_set(applied),
    }
    print(f"{len(applied)} signatures, tails of {TAIL_BYTES} bytes; microseconds a tail (ratio to faultlens)")
    print(f"{'':32} {'new tails':>20} {'the same again':>20}")
    print(f"{'faultlens, a text it remembers':32} {'':>20} {best_us(known.scan, again, rounds):12,.0f}")
    base: tuple[float, float] | None = None
    for name, made in ways.items():
        slow = "Python" in name
        work = made()
        best_us(work, others, 1)
        fresh = best_us(work, new, 1)  # a second round would find the automata warm for these very tails
        warm = best_us(work, again, 2 if slow else rounds)
        base = base or (fresh, warm)
        print(f"{name:32} {fresh:12,.0f} ({fresh / base[0]:5.1f}) {warm:12,.0f} ({warm / base[1]:5.1f})")


if __name__ == "__main__":
    main()
