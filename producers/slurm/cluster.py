"""`scontrol show config` and `scontrol show nodes`: the limits that a cluster waits for, and what its nodes are."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from producers.slurm.accounting import gres_gpus
from producers.slurm.times import TimeReader

_SETTING: Final = re.compile(r"^(\w+)\s+= ?(.*)$")
_SECONDS: Final = re.compile(r"^(\d{1,9})(?: sec)?$")
_NODE: Final = re.compile(r"^NodeName=(\S+)")
_NODE_FIELD: Final = re.compile(r"\s(Gres|Partitions|BootTime)=(\S*)")
_FAMILY: Final = re.compile(r"gpu:([^:,()\d][^:,()]*)")


class Limits(NamedTuple):
    """Settings that say how late Slurm notices something, in seconds; None where they are not known.

    `return_to_service` 2 means that a node which restarted comes back without a word.
    """

    slurmd_timeout_s: int | None = None
    prolog_timeout_s: int | None = None
    return_to_service: int | None = None


class Node(NamedTuple):
    """What the controller says of a node: its GPUs, their family and the first of its partitions."""

    name: str
    gpus: int
    family: str | None
    partition: str | None
    boot_ms: int | None


def read_limits(lines: Iterable[str]) -> Limits:
    """Return the limits of `scontrol show config`; what is missing there is not known."""
    found = {match[1]: match[2].strip() for line in lines if (match := _SETTING.match(line.rstrip("\r\n")))}
    return Limits(
        slurmd_timeout_s=_seconds(found.get("SlurmdTimeout")),
        prolog_timeout_s=_seconds(found.get("PrologEpilogTimeout")),
        return_to_service=_seconds(found.get("ReturnToService")),
    )


def _seconds(text: str | None) -> int | None:
    """Return the seconds; None for nothing, words, and 0 or 65534, by which Slurm means no limit."""
    found = _SECONDS.match(text or "")
    return int(found[1]) if found and int(found[1]) not in (65534, 65535) else None


def read_nodes(lines: Iterable[str], times: TimeReader) -> dict[str, Node]:
    """Return the nodes of `scontrol show nodes` by name, from either layout."""
    nodes: dict[str, Node] = {}
    name, text = "", ""
    for line in (*lines, "NodeName="):
        begins = line.startswith("NodeName=")
        if begins and name:
            nodes[name] = _node(name, text, times)
        if begins:
            found = _NODE.match(line)
            name, text = (found[1], line) if found else ("", "")
        else:
            text += "\n" + line
    return nodes


def _node(name: str, text: str, times: TimeReader) -> Node:
    fields = {match[1]: match[2] for match in _NODE_FIELD.finditer(text)}
    gres = fields.get("Gres", "")
    family = _FAMILY.search(gres)
    partitions = fields.get("Partitions", "")
    try:
        boot_ms = times.read(fields.get("BootTime", ""))
    except ValueError:
        boot_ms = None
    return Node(name, gres_gpus(gres), family[1] if family else None, partitions.split(",")[0] or None, boot_ms)
