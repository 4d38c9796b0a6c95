"""`sacctmgr show event`: when nodes were out, and what Slurm or somebody gave as the reason."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from faultlens.clock import SECOND_MS
from producers.slurm.node_reasons import ASKED_FOR, ReasonFile, load_reasons, meaning_of
from producers.slurm.states import NodeState, node_state
from producers.slurm.tables import BadLine, Row, read_table
from producers.slurm.times import TimeReader

NEEDED: Final = frozenset({"nodename", "timestart", "timeend", "state", "reason"})
WANTED: Final = NEEDED | {"user", "cluster"}
# A row that begins when the one before it ends goes on with the same outage; the two times may differ by rounding.
_TOUCHING_MS: Final = SECOND_MS
_USER: Final = re.compile(r"^(?P<name>[^(]*)(?:\((?P<uid>\d+)\))?$")
# States that take no work away by themselves: powered down to save power, coming up, reserved.
_NOT_OUT: Final = frozenset({"IDLE", "ALLOCATED", "ALLOC", "MIXED", "MIX", "COMPLETING", "FUTURE", "PLANNED", ""})
SLURM_USERS: Final = frozenset({"", "slurm"})


class Stretch(NamedTuple):
    """A stretch of an outage with one reason. `code` is what the reason means, `by_slurm` whose word it is."""

    node: str
    start_ms: int
    end_ms: int | None
    state: NodeState
    reason: str
    user: str
    code: str
    by_slurm: bool
    line: int

    @property
    def down(self) -> bool:
        """Whether it ends what runs there: a drained node lets its jobs end."""
        return self.state.name.startswith(("DOWN", "ERROR", "UNKNOWN"))

    @property
    def set_by_person(self) -> bool:
        """Whether somebody set the node down by hand; of a drain Slurm does not keep who asked for it."""
        return self.down and not self.by_slurm and self.user not in SLURM_USERS


class Outage(NamedTuple):
    """A time in which a node took no work: stretches without a gap."""

    node: str
    stretches: tuple[Stretch, ...]

    @property
    def start_ms(self) -> int:
        """When it began."""
        return self.stretches[0].start_ms

    @property
    def end_ms(self) -> int | None:
        """When the node was taken back, None if it was not."""
        return self.stretches[-1].end_ms

    def has(self, code: str) -> bool:
        """Whether some stretch has this meaning."""
        return any(stretch.code == code for stretch in self.stretches)


class Outages(NamedTuple):
    """The outages of a cluster, in the order of their start, and the lines that could not be read.

    `clusters` are those whose events were read, in Slurm's own names.
    """

    outages: list[Outage]
    bad: list[BadLine]
    repaired: int
    clusters: frozenset[str] = frozenset()


def read_outages(
    lines: Iterable[str],
    times: TimeReader,
    *,
    clusters: frozenset[str] = frozenset(),
    reasons: ReasonFile | None = None,
    what: str = "sacctmgr show event",
) -> Outages:
    """Return the outages of these clusters, of all without any: one database may serve several. Raises `TableError`."""
    table = read_table(lines, needed=NEEDED, wanted=WANTED, what=what)
    meanings = reasons or load_reasons()
    told = frozenset(row.cells["cluster"] for row in table.rows if row.cells.get("cluster"))
    wanted = told & clusters or told
    found: list[Stretch] = []
    bad = list(table.bad)
    for row in table.rows:
        if wanted and row.cells.get("cluster", "") not in wanted:
            continue
        try:
            stretch = _stretch(row, times, meanings)
        except ValueError as error:
            bad.append(BadLine(row.line, str(error)))
            continue
        if stretch is not None:
            found.append(stretch)
    return Outages(_joined(found), bad, table.repaired, wanted)


def _stretch(row: Row, times: TimeReader, reasons: ReasonFile) -> Stretch | None:
    """Return the row's stretch; None for the whole cluster's rows and for states that keep no work away."""
    cells = row.cells
    state = node_state(cells["state"])
    start_ms = times.read(cells["timestart"])
    if not cells["nodename"] or state.name in _NOT_OUT:
        return None
    if start_ms is None:
        raise ValueError("an event without TimeStart")
    code, by_slurm = meaning_of(cells["reason"], reasons)
    user = _USER.match(cells.get("user", ""))
    return Stretch(
        node=cells["nodename"],
        start_ms=start_ms,
        end_ms=times.read(cells["timeend"], not_before=start_ms),
        state=state,
        reason=cells["reason"],
        user=user["name"] if user else cells.get("user", ""),
        code=code,
        by_slurm=by_slurm,
        line=row.line,
    )


def _joined(stretches: list[Stretch]) -> list[Outage]:
    by_node: dict[str, list[list[Stretch]]] = {}
    for stretch in sorted(stretches, key=lambda s: (s.node, s.start_ms, s.line)):
        groups = by_node.setdefault(stretch.node, [])
        if groups and _touches(groups[-1][-1], stretch):
            groups[-1].append(stretch)
        else:
            groups.append([stretch])
    found = [Outage(node, tuple(group)) for node, groups in by_node.items() for group in groups]
    return sorted(found, key=lambda outage: (outage.start_ms, outage.node))


def _touches(earlier: Stretch, later: Stretch) -> bool:
    return earlier.end_ms is None or later.start_ms - earlier.end_ms <= _TOUCHING_MS


def planned(stretch: Stretch) -> bool:
    """Return whether the node was taken out on purpose and in advance: reboots that were asked for, maintenance."""
    return stretch.code == ASKED_FOR or stretch.state.name in ("MAINT", "RESERVED", "BOOT")
