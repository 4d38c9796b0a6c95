"""Which text can stand in which column: how cells that hold the delimiter themselves are put together again."""

from __future__ import annotations

import re
from typing import Final

_TIME: Final = re.compile(r"(?:\d{9,11}|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S*|Unknown|None|N/A|INVALID|)")
_DURATION: Final = re.compile(r"(?:[\d:.-]*|UNLIMITED|Partition_Limit|INVALID|Unknown)")
_NUMBER: Final = re.compile(r"[\d.]*[KMGTP]?[cn]?")
_EXIT: Final = re.compile(r"(?:\d+:\d+|)")
_NAME: Final = re.compile(r"[\w.@+$-]*")
_TRES: Final = re.compile(r"(?:[\w/:.-]+=[^,|]*(?:,|$))*")
_NODES: Final = re.compile(r"(?:[\w.,\[\]-]*|None assigned|\(null\))")

# Columns that say nothing of their own: users and operators write them, and Slurm quotes nothing.
FREE: Final = frozenset(
    {"jobname", "comment", "admincomment", "systemcomment", "submitline", "workdir", "reason", "constraints", "wckey"}
)
_PATTERNS: Final[dict[str, re.Pattern[str]]] = {
    "jobid": re.compile(r"\d+(?:[_+]\S+)?(?:\.\S+)?"),
    "jobidraw": re.compile(r"\d+(?:\+\d+)?(?:\.\S+)?"),
    "state": re.compile(r"(?:[A-Z_]+[+*~#!%$@^-]*(?: by \d+)?|)"),
    "flags": re.compile(r"[\w,]*"),
    "nodename": re.compile(r"[\w.-]*"),
    **dict.fromkeys(("submit", "eligible", "start", "end", "timestart", "timeend"), _TIME),
    **dict.fromkeys(
        (
            "elapsed",
            "suspended",
            "timelimit",
            "totalcpu",
            "usercpu",
            "systemcpu",
            "cputime",
            "reserved",
            "planned",
            "duration",
        ),
        _DURATION,
    ),
    **dict.fromkeys(
        (
            "elapsedraw",
            "uid",
            "gid",
            "ncpus",
            "nnodes",
            "ntasks",
            "alloccpus",
            "allocnodes",
            "reqcpus",
            "reqnodes",
            "dbindex",
            "priority",
            "associd",
            "qosraw",
            "timelimitraw",
            "cputimeraw",
            "stateraw",
            "reqmem",
            "wckeyid",
        ),
        _NUMBER,
    ),
    **dict.fromkeys(("exitcode", "derivedexitcode"), _EXIT),
    **dict.fromkeys(("account", "group", "cluster", "qos"), _NAME),
    "user": re.compile(r"[\w.@+$-]*(?:\(\d+\))?"),
    "partition": re.compile(r"[\w.,@+-]*"),
    **dict.fromkeys(("alloctres", "reqtres"), _TRES),
    "nodelist": _NODES,
}
# No one writes more delimiters than this into one record by accident; beyond, trying all ways takes too long.
EXTRA_LIMIT: Final = 64
# One column of a known form that is filled outweighs all free ones.
_FILLED: Final = 100


def fits(column: str, cell: str) -> bool:
    """Return whether the column can hold this text; a column of unknown form holds any."""
    pattern = _PATTERNS.get(column)
    return pattern is None or pattern.fullmatch(cell) is not None


def refit(cells: list[str], columns: tuple[str, ...], delimiter: str) -> list[str] | None:
    """Return one cell for each column by joining neighbours in free-text columns until all others fit.

    Of several ways the one in which most columns of a known form are filled is taken, of these the one with most
    free ones empty. None if there is no way.
    """
    extra = len(cells) - len(columns)
    if not 0 < extra <= EXTRA_LIMIT or not FREE.intersection(columns):
        return None
    # best[used]: score and widths of the columns so far, when `used` cells more than columns were taken.
    best: dict[int, tuple[int, tuple[int, ...]]] = {0: (0, ())}
    for at, column in enumerate(columns):
        following: dict[int, tuple[int, tuple[int, ...]]] = {}
        for used, (score, widths) in best.items():
            widest = extra - used if column in FREE else 0
            for more in range(widest + 1):
                cell = delimiter.join(cells[at + used : at + used + 1 + more])
                if not fits(column, cell):
                    continue
                gained = _gain(column, cell)
                candidate = (score + gained, (*widths, 1 + more))
                known = following.get(used + more)
                if known is None or candidate[0] > known[0]:
                    following[used + more] = candidate
        best = following
    if extra not in best:
        return None
    return _joined(cells, best[extra][1], delimiter)


def _gain(column: str, cell: str) -> int:
    if not cell:
        return 0
    return -1 if column in FREE else _FILLED * (column in _PATTERNS)


def _joined(cells: list[str], widths: tuple[int, ...], delimiter: str) -> list[str]:
    found, at = [], 0
    for width in widths:
        found.append(delimiter.join(cells[at : at + width]))
        at += width
    return found
