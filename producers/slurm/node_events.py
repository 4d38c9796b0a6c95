"""What Slurm knows of nodes as events of the contract: faults for causes, cordons for the time they took no work."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from faultlens.clock import SECOND_MS, iso
from faultlens.codec import Event, event_of, stable_id
from faultlens.events import Data, NodeActed, NodeFault
from producers.slurm.job_events import Names
from producers.slurm.node_reasons import ASKED_FOR, TAKEN_OUT
from producers.slurm.onsets import onset_ms
from producers.slurm.outages import SLURM_USERS, Outage, Stretch, planned
from producers.slurm.surroundings import TOGETHER_MS, Surroundings

SOURCE: Final = "bridge/slurm"
MESSAGE_CHARS: Final = 1_000
# Codes after which a node that restarts does what it was told to.
_RESTART_EXPECTED: Final = frozenset({ASKED_FOR, "resume_timeout", "reboot_timed_out"})
_NO_FAULT: Final = frozenset({ASKED_FOR, TAKEN_OUT})
# A daemon tells of what ended meanwhile as soon as it is heard again.
_TOLD_MS: Final = 5 * SECOND_MS


_SLURM: Final = "slurm"
# Accounting keeps no name of who resumes a node: whoever set it is told, unless that was Slurm or its user.
_SOMEBODY: Final = "scontrol"
# What the reason of a drain begins with that carries out a command of ours (actuators/slurm.py).
_OURS: Final = re.compile(r"faultlens:([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\b")


def _command_of(reason: str) -> str | None:
    """Return the command that a drain carries out; None: somebody else's."""
    found = _OURS.match(reason)
    return None if found is None else found[1]


class _Fault(NamedTuple):
    code: str
    onset_ms: int
    seen_ms: int
    message: str


def node_events(outage: Outage, names: Names, around: Surroundings, *, restarts_show: bool) -> Iterator[Event]:
    """Yield an outage's events, each as a live bridge would have sent it.

    `restarts_show`: this cluster says of nodes that restarted without being told to, so one that came back without
    that word did not restart.
    """
    first = outage.stretches[0]
    told = _Teller(outage.node, names, around)
    yield told.cordon(first, first.start_ms)
    for before, stretch in zip((None, *outage.stretches), outage.stretches, strict=False):
        if before is not None and planned(before) and not planned(stretch):
            yield told.cordon(stretch, stretch.start_ms)
        fault = _fault_of(outage, stretch, around)
        if fault is not None:
            yield told.fault(fault)
    gone = _daemon_lost(outage, around) if restarts_show else None
    if gone is not None:
        yield told.fault(gone)
    if outage.end_ms is not None:
        yield told.back(outage.stretches[-1], outage.end_ms)


def restarts_show(outages: list[Outage], return_to_service: int | None) -> bool:
    """Return whether the cluster tells of unexpected restarts: by its setting, or because it did so before."""
    if return_to_service is not None:
        return return_to_service != 2
    return any(outage.has("unexpected_reboot") for outage in outages)


class _Teller:
    """Makes the events of one node."""

    def __init__(self, node: str, names: Names, around: Surroundings) -> None:
        self._node = names.of(node)
        self._cluster = names.cluster
        self._known = around.nodes.get(node)
        self._return_to_service = around.limits.return_to_service

    def cordon(self, stretch: Stretch, at_ms: int) -> Event:
        return self._act("cordon", stretch, at_ms, stretch.user)

    def back(self, stretch: Stretch, at_ms: int) -> Event:
        """Return that the node takes work again, by Slurm itself or by a person."""
        if stretch.by_slurm and stretch.down and self._returns(stretch):
            return self._act("uncordon", stretch, at_ms, _SLURM)
        return self._act("uncordon", stretch, at_ms, _SOMEBODY if stretch.user in SLURM_USERS else stretch.user)

    def _returns(self, stretch: Stretch) -> bool:
        """Return whether Slurm takes a node that it set down back by itself (slurm.conf, ReturnToService)."""
        return self._return_to_service != 0 and (self._return_to_service != 1 or stretch.code == "not_responding")

    def _act(self, action: Literal["cordon", "uncordon"], stretch: Stretch, at_ms: int, actor: str) -> Event:
        data = NodeActed(
            node=self._node,
            cluster=self._cluster,
            action=action,
            actor=actor or _SLURM,
            planned=planned(stretch),
            reason=f"{stretch.state}: {stretch.reason}"[:MESSAGE_CHARS],
            command_id=_command_of(stretch.reason) if action == "cordon" else None,
        )
        return self._say(data, at_ms, at_ms, action)

    def fault(self, fault: _Fault) -> Event:
        known = self._known
        data = NodeFault(
            node=self._node,
            cluster=self._cluster,
            kind="other",
            code=fault.code,
            detected_by="other",
            pool=known.partition if known else None,
            gpu_family=known.family.upper() if known and known.family else None,
            message=fault.message[:MESSAGE_CHARS],
        )
        return self._say(data, fault.onset_ms, fault.seen_ms, fault.code)

    def _say(self, data: Data, at_ms: int, seen_ms: int, what: str) -> Event:
        key = stable_id("slurm", self._cluster, self._node, what, seen_ms)
        return event_of(data, source=SOURCE, id_=key, time_ms=at_ms, recorded_ms=seen_ms)


def _fault_of(outage: Outage, stretch: Stretch, around: Surroundings) -> _Fault | None:
    """Return what the stretch says is wrong with the node; None when somebody only took it out."""
    if stretch.code in _NO_FAULT:
        return None
    earlier = outage.stretches[: outage.stretches.index(stretch)]
    if stretch.code == "unexpected_reboot" and any(one.code in _RESTART_EXPECTED for one in earlier):
        return None
    if any(one.code == stretch.code for one in earlier):
        return None
    began_ms, seen_ms, said = onset_ms(outage, stretch, around), stretch.start_ms, f"{stretch.state}: {stretch.reason}"
    if stretch.code == "unexpected_reboot" and _ghost_told(outage, stretch, around):
        return _Fault("daemon_lost", began_ms, seen_ms, f"{said}, but processes from before were still there")
    code = "prolog_timed_out" if _prolog_hung(stretch, around) else stretch.code
    return _Fault(code, began_ms, seen_ms, said)


def _ghost_told(outage: Outage, stretch: Stretch, around: Surroundings) -> bool:
    """Return whether the node came back with processes of a run that it was lost under, so it cannot have restarted.

    Their end is then booked on the job's next run, elsewhere: a step of it ends in that moment while it goes on.
    """
    lost = around.ended_on(outage.node, outage.start_ms - TOGETHER_MS, outage.start_ms + TOGETHER_MS)
    return any(
        step.end_ms is not None and 0 <= step.end_ms - stretch.start_ms <= _TOLD_MS < (again.end_ms or 0) - step.end_ms
        for run in lost
        for again in around.runs_after(run)
        if outage.node not in again.nodes
        for step in again.steps
    )


def _prolog_hung(stretch: Stretch, around: Surroundings) -> bool:
    """Return whether the run whose prolog failed had waited for it as long as the site lets a prolog run."""
    if stretch.code != "prolog_failed":
        return False
    ended = around.ended_on(stretch.node, stretch.start_ms - TOGETHER_MS, stretch.start_ms + TOGETHER_MS)
    return any(map(around.waited_for_prolog, ended))


def _daemon_lost(outage: Outage, around: Surroundings) -> _Fault | None:
    """Return that only Slurm's daemon was gone, when the node answered again without having restarted."""
    end_ms = outage.end_ms
    if end_ms is None or any(stretch.code != "not_responding" for stretch in outage.stretches):
        return None
    known = around.nodes.get(outage.node)
    first = outage.stretches[0]
    began_ms = onset_ms(outage, first, around)
    if known is not None and known.boot_ms is not None and began_ms <= known.boot_ms <= end_ms:
        return None
    message = f"answered again at {iso(end_ms)} without a restart: only its slurmd was gone"
    return _Fault("daemon_lost", began_ms, end_ms, message)
