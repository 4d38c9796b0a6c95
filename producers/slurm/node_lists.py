"""Slurm's notation for sets of nodes: `node[1-3,7],rack02-gpu[09-11]`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import groupby, product
from typing import Final

# More than any cluster has; a mistyped range must not fill the memory.
NODES_LIMIT: Final = 100_000

_NO_NODES: Final = frozenset({"", "(null)", "None assigned", "None", "N/A", "Unknown", "n/a"})
_RANGE: Final = re.compile(r"(\d+)(?:-(\d+))?")
_NUMBERED: Final = re.compile(r"^(.*?)(\d+)$")


class NodeListError(ValueError):
    """A text that is no node list, or one that names too many nodes."""


@lru_cache(maxsize=4096)  # the same few lists stand in row after row
def expand(text: str) -> tuple[str, ...]:
    """Return the nodes that a list names, in its order, each once; () for Slurm's words for none.

    Raises `NodeListError` for unbalanced brackets, a range that is none, or more than `NODES_LIMIT` nodes.
    """
    text = text.strip()
    if text in _NO_NODES:
        return ()
    names: dict[str, None] = {}
    for part in _split(text):
        for name in _names(part):
            names[name] = None
            if len(names) > NODES_LIMIT:
                raise NodeListError(f"more than {NODES_LIMIT} nodes: {text[:80]!r}")
    return tuple(names)


def _split(text: str) -> Iterator[str]:
    """Yield the parts between commas that are not inside brackets."""
    depth = start = 0
    for at, char in enumerate(text):
        if char == "[":
            depth += 1
        elif char == "]":
            depth -= 1
        elif char == "," and depth == 0:
            yield text[start:at]
            start = at + 1
        if depth not in (0, 1):
            raise NodeListError(f"unbalanced brackets: {text[:80]!r}")
    if depth != 0:
        raise NodeListError(f"unbalanced brackets: {text[:80]!r}")
    yield text[start:]


def _names(part: str) -> Iterator[str]:
    """Yield the names of one part; several brackets multiply, the last counts fastest."""
    pieces = re.split(r"\[([^\]]*)\]", part)
    literals, ranges = pieces[0::2], [_numbers(inside) for inside in pieces[1::2]]
    if not part or any(" " in literal for literal in literals):
        raise NodeListError(f"not a node list: {part[:80]!r}")
    size = 1
    for numbers in ranges:
        size *= len(numbers)
    if size > NODES_LIMIT:
        raise NodeListError(f"more than {NODES_LIMIT} nodes: {part[:80]!r}")
    for combination in product(*ranges):
        tail = "".join(f"{number}{literal}" for number, literal in zip(combination, literals[1:], strict=True))
        yield literals[0] + tail


def _numbers(inside: str) -> list[str]:
    """Return what `09-11,15` counts, each as wide as the range's first number."""
    numbers: list[str] = []
    for item in inside.split(","):
        found = _RANGE.fullmatch(item)
        if found is None:
            raise NodeListError(f"not a range of nodes: {item[:40]!r}")
        first, last = found[1], found[2] or found[1]
        count = int(last) - int(first) + 1
        if count < 1 or len(numbers) + count > NODES_LIMIT:
            raise NodeListError(f"not a range of nodes, or too long: {item[:40]!r}")
        numbers += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    return numbers


def compress(names: Iterable[str]) -> str:
    """Return the shortest list in Slurm's notation that names these nodes, in sorted order."""
    numbered: dict[tuple[str, int], list[int]] = {}
    plain: list[str] = []
    for name in sorted(set(names)):
        found = _NUMBERED.match(name)
        if found is None:
            plain.append(name)
        else:
            width = len(found[2]) if found[2].startswith("0") else 0
            numbered.setdefault((found[1], width), []).append(int(found[2]))
    parts = plain + [_folded(prefix, width, numbers) for (prefix, width), numbers in numbered.items()]
    return ",".join(sorted(parts))


def _folded(prefix: str, width: int, numbers: list[int]) -> str:
    runs: list[str] = []
    ordered = sorted(numbers)
    for _, group in groupby(enumerate(ordered), key=lambda pair: pair[1] - pair[0]):
        run = [number for _, number in group]
        first, last = str(run[0]).zfill(width), str(run[-1]).zfill(width)
        runs.append(first if first == last else f"{first}-{last}")
    if len(ordered) == 1:
        return f"{prefix}{runs[0]}"
    return f"{prefix}[{','.join(runs)}]"
