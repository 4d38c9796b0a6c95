"""How right remediation is, against failures whose true cause is known: nodes taken out in vain, and those missed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from msgspec import Struct

from faultlens.clock import DAY_MS, HOUR_MS, MINUTE_MS, ms_of
from faultlens.codec import Decoder
from faultlens.events import RemediationCommand
from faultlens.truth import Truth
from slo.queries import Reader, ask

# A node that broke is to be out by half an hour after the failure it caused; what broke within the hour before a
# node was taken out, or the day after, was the reason for it.
CAUGHT_BEFORE_MS: Final = HOUR_MS
CAUGHT_AFTER_MS: Final = 30 * MINUTE_MS
FOUNDED_AFTER_MS: Final = DAY_MS
_BLAMED: Final = frozenset({"hardware", "driver"})
_TAKING: Final = frozenset({"block_new_work", "drain"})


class Isolation(NamedTuple):
    """When a node was first taken from work for an incident."""

    node: str
    incident_id: str
    at_ms: int


class Remedies(Struct, frozen=True):
    """Of `faults` (failures that a machine caused) `missed` had their node in service half an hour later.

    Of `isolations` `unfounded` have no such failure near them: the most that can have been in vain, since a fault on
    an idle node makes no job fail.
    """

    faults: int
    missed: int
    isolations: int
    unfounded: int


def remedies(truths: Iterable[Truth], isolations: Sequence[Isolation]) -> Remedies:
    """Hold the isolations of nodes against the failures that machines caused."""
    faults = [(t.node, ms_of(t.ended_at)) for t in truths if t.node is not None and t.cause_class in _BLAMED]
    missed = [fault for fault in faults if not any(_is_caught(fault, isolation) for isolation in isolations)]
    unfounded = [one for one in isolations if not any(_is_founded(one, fault) for fault in faults)]
    return Remedies(len(faults), len(missed), len(isolations), len(unfounded))


def _is_caught(fault: tuple[str, int], isolation: Isolation) -> bool:
    node, ended_ms = fault
    return node == isolation.node and ended_ms - CAUGHT_BEFORE_MS <= isolation.at_ms <= ended_ms + CAUGHT_AFTER_MS


def _is_founded(isolation: Isolation, fault: tuple[str, int]) -> bool:
    node, ended_ms = fault
    return (
        node == isolation.node and isolation.at_ms - CAUGHT_BEFORE_MS <= ended_ms <= isolation.at_ms + FOUNDED_AFTER_MS
    )


def isolations_of_directory(directory: Path) -> list[Isolation]:
    """Return the isolations among the commands that `replay --out` wrote; none where it wrote none."""
    path, decode = directory / "remediation-commands.jsonl", Decoder().decode
    first: dict[tuple[str, str], Isolation] = {}
    if path.exists():
        with path.open("rb") as file:
            for line in file:
                command = decode(line).data
                if isinstance(command, RemediationCommand) and _takes(command):
                    key = (command.node or "", command.reason.incident_id)
                    first.setdefault(key, Isolation(*key, ms_of(command.issued_at)))
    return list(first.values())


def _takes(command: RemediationCommand) -> bool:
    return command.mode == "live" and command.node is not None and command.action in _TAKING


def isolations_of_store(reader: Reader) -> list[Isolation]:
    """Return the isolations among the commands of the store."""
    return [Isolation(row["node"], row["incident_id"], row["at_ms"]) for row in ask(reader, "isolations", {})]


def as_json(found: Remedies) -> dict[str, Any]:
    """Return the counts as plain values."""
    return {name: getattr(found, name) for name in found.__struct_fields__}


def as_text(found: Remedies) -> str:
    """Return the counts in two lines."""
    return (
        f"Faults missed by remediation:     {_share(found.missed, found.faults)}\n"
        f"Isolations without a failure:     {_share(found.unfounded, found.isolations)}"
    )


def _share(part: int, total: int) -> str:
    return f"{part:,} of {total:,}" + (f" ({part / total:.1%})" if total else "")
