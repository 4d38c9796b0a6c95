"""What remediation did, read from what a replay wrote or from a store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from faultlens.clock import ms_of
from faultlens.codec import Decoder, Event
from faultlens.events import IN_MAINTENANCE, KEPT_BY, Incident, RemediationCommand
from slo.queries import Reader, ask
from slo.remedies import Episode, Isolation, Said

_TAKING: Final = frozenset({"block_new_work", "drain"})
_BY_OTHERS: Final = (KEPT_BY, IN_MAINTENANCE)


def said_in_directory(directory: Path) -> Said:
    """Return the isolations and incidents that `replay --out` wrote; none where it wrote none."""
    seen: dict[str, Episode] = {}
    for event in _read(directory / "incidents.jsonl"):
        if isinstance(event.data, Incident):
            incident, before = event.data, seen.get(event.data.incident_id)
            began = Episode(frozenset(), event.time_ms) if before is None else before
            seen[incident.incident_id] = _with(began, incident, event.time_ms)
    taken: dict[tuple[str, str], Isolation] = {}
    for event in _read(directory / "remediation-commands.jsonl"):
        if isinstance(event.data, RemediationCommand) and _takes(event.data):
            one = _isolation(event.data)
            taken.setdefault((one.node, one.incident_id), one)
    return _said(taken.values(), seen)


def said_in_store(reader: Reader) -> Said:
    """Return the isolations and incidents of the store."""
    episodes = {row["incident_id"]: _episode(row) for row in ask(reader, "episodes", {})}
    return _said((_of_row(row) for row in ask(reader, "isolations", {})), episodes)


def _said(isolations: Iterable[Isolation], episodes: Mapping[str, Episode]) -> Said:
    """Return both, each isolation up to the end of its incident."""
    held = [
        one._replace(until_ms=episodes[one.incident_id].until_ms) if one.incident_id in episodes else one
        for one in isolations
    ]
    return Said(held, list(episodes.values()))


def _read(path: Path) -> Iterator[Event]:
    decode = Decoder().decode
    if path.exists():
        with path.open("rb") as file:
            for line in file:
                yield decode(line)


def _with(before: Episode, incident: Incident, at_ms: int) -> Episode:
    scope, waits = incident.scope, incident.waits_for or ""
    return before._replace(
        nodes=before.nodes | frozenset(scope.nodes or ()),
        until_ms=at_ms if incident.phase == "closed" else before.until_ms,
        common=before.common or bool(scope.domains),
        kept=before.kept or waits.startswith(_BY_OTHERS),
    )


def _takes(command: RemediationCommand) -> bool:
    return command.mode == "live" and command.node is not None and command.action in _TAKING


def _isolation(command: RemediationCommand) -> Isolation:
    reason = command.reason
    return Isolation(command.node or "", reason.incident_id, ms_of(command.issued_at), faults=reason.fault_codes)


def _episode(row: dict[str, Any]) -> Episode:
    found = Episode(
        nodes=frozenset(row["nodes"]),
        from_ms=row["from_ms"],
        common=bool(row["common"]),
        kept=any(waits.startswith(_BY_OTHERS) for waits in row["waited_for"]),
    )
    return found if row["until_ms"] is None else found._replace(until_ms=row["until_ms"])


def _of_row(row: dict[str, Any]) -> Isolation:
    return Isolation(row["node"], row["incident_id"], row["at_ms"], faults=tuple(row["faults"]))
