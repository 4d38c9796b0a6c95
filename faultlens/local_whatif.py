"""What another policy would have done: recorded events under both, side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from faultlens.clock import HOUR_MS, ms_of
from faultlens.codec import Decoder
from faultlens.events import Incident, JobAttributed, NodeState, RemediationCommand
from faultlens.local import Places, replay
from faultlens.recordings import Recording
from faultlens.topics import ATTRIBUTIONS, INCIDENTS, NODE_STATES, REMEDIATION_COMMANDS
from streams.runtime.records import Role

TAKING: Final = frozenset(
    {"block_new_work", "drain", "reset_device", "restart_services", "reboot", "power_cycle", "replace"}
)


@dataclass
class Outcome:
    """What came of a policy. An isolation lasts from a node's first command to the end of its incident, or of time.

    `gpu_hours_taken`: what isolated nodes could have given. `gpu_hours_saved`: what failures cost that were blamed on
    a node while it would have been isolated. Shadow commands are counted apart, by route.
    """

    policy: str
    commands: dict[str, int] = field(default_factory=dict)
    incidents: int = 0
    isolations: int = 0
    nodes: int = 0
    gpu_hours_taken: float = 0.0
    gpu_hours_saved: float = 0.0
    failures_avoided: int = 0
    shadow: dict[str, int] = field(default_factory=dict)


@dataclass
class _Isolation:
    node: str
    from_ms: int
    to_ms: int | None = None


def outcome(recordings: Sequence[str], roles: Sequence[Role], *, policy: str, until_ms: int | None = None) -> Outcome:
    """Return what the roles decide over the recordings. Raises what `replay` raises."""
    with TemporaryDirectory(prefix="faultlens-whatif-") as directory:
        out = Path(directory)
        replay([Recording(file) for file in recordings], roles, Places(out), until_ms=until_ms)
        return _counted(out, policy)


def as_plain(present: Outcome, other: Outcome) -> dict[str, Any]:
    """Return both outcomes and what would be different, as plain values."""
    return {"present": asdict(present), "other": asdict(other), "difference": _difference(present, other)}


def _difference(present: Outcome, other: Outcome) -> dict[str, Any]:
    actions = sorted({*present.commands, *other.commands})
    return {
        "commands": {a: other.commands.get(a, 0) - present.commands.get(a, 0) for a in actions},
        "isolations": other.isolations - present.isolations,
        "gpu_hours_taken": round(other.gpu_hours_taken - present.gpu_hours_taken, 1),
        "gpu_hours_saved": round(other.gpu_hours_saved - present.gpu_hours_saved, 1),
        "failures_avoided": other.failures_avoided - present.failures_avoided,
    }


def _counted(out: Path, policy: str) -> Outcome:
    commands = [c for c in _read(out, REMEDIATION_COMMANDS) if isinstance(c, RemediationCommand)]
    incidents = {i.incident_id: i for i in _read(out, INCIDENTS) if isinstance(i, Incident)}
    isolations, end_ms = _isolations(commands, incidents)
    gpus = {s.node: s.gpus_total for s in _read(out, NODE_STATES) if isinstance(s, NodeState)}
    found = Outcome(policy, dict(Counter(c.action for c in commands if c.mode == "live")), len(incidents))
    found.shadow = dict(Counter(c.policy.rpartition(" ")[2] for c in commands if c.mode == "shadow"))
    found.isolations = len(isolations)
    found.nodes = len({isolation.node for isolation in isolations})
    taken = (gpus.get(i.node, 0) * ((i.to_ms or end_ms) - i.from_ms) for i in isolations)
    found.gpu_hours_taken = round(sum(taken) / HOUR_MS, 1)
    avoided = [v for v in _in_force(out) if _is_avoided(v, isolations)]
    found.failures_avoided = len(avoided)
    found.gpu_hours_saved = round(sum(v.lost.gpu_seconds for v in avoided) * 1000 / HOUR_MS, 1)
    return found


def _isolations(commands: Sequence[RemediationCommand], incidents: dict[str, Incident]) -> tuple[list[_Isolation], int]:
    end_ms = max((ms_of(i.last_seen) for i in incidents.values()), default=0)
    end_ms = max([end_ms, *(ms_of(c.issued_at) for c in commands)])
    found: dict[tuple[str, str], _Isolation] = {}
    for command in commands:
        if command.mode != "live" or command.node is None:
            continue
        key = (command.node, command.reason.incident_id)
        if command.action in TAKING and key not in found:
            found[key] = _Isolation(command.node, ms_of(command.issued_at))
        elif command.action == "return_to_service" and key in found:
            found[key].to_ms = ms_of(command.issued_at)
    return list(found.values()), end_ms


def _in_force(out: Path) -> list[JobAttributed]:
    """Return the last settled verdict on each failure."""
    last: dict[tuple[str, int, int], JobAttributed] = {}
    for verdict in _read(out, ATTRIBUTIONS):
        if isinstance(verdict, JobAttributed) and verdict.status != "provisional":
            last[verdict.job_id, verdict.attempt, verdict.loss or 0] = verdict
    return [verdict for verdict in last.values() if verdict.status != "withdrawn"]


def _is_avoided(verdict: JobAttributed, isolations: Sequence[_Isolation]) -> bool:
    ended_ms, lost_ms = ms_of(verdict.ended_at), int(verdict.lost.since_checkpoint_s * 1000)
    return any(
        i.node == verdict.culprit.node and i.from_ms <= ended_ms - lost_ms and (i.to_ms is None or ended_ms <= i.to_ms)
        for i in isolations
    )


def _read(out: Path, topic: str) -> Iterator[Any]:
    path, decode = out / f"{topic}.jsonl", Decoder().decode
    if path.exists():
        with path.open("rb") as file:
            for line in file:
                yield decode(line).data
