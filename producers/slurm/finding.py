"""Which files of a folder are which export of Slurm, told by their content."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from producers.slurm import accounting, outages
from producers.slurm.tables import header_of

FILES_LIMIT: Final = 1_000
FILE_BYTES_LIMIT: Final = 4 << 30
_HEAD_BYTES: Final = 64 * 1024


class Found(NamedTuple):
    """The best file for each part of an export, None where there is none; `passed_over` were as good or less."""

    sacct: Path | None
    events: Path | None
    jobs: Path | None
    config: Path | None
    nodes: Path | None
    passed_over: tuple[Path, ...]


class _Candidate(NamedTuple):
    part: str
    score: tuple[int, ...]
    path: Path


def find_exports(folder: Path) -> Found:
    """Return what the folder holds. Files that are too large, no text or something else are passed over silently.

    Of several accounting files the one with most records (`-D` shows more runs), then with most useful columns, then
    one with a delimiter that nobody types.
    """
    paths = sorted(path for path in folder.iterdir() if path.is_file())[:FILES_LIMIT]
    candidates = [found for path in paths if (found := _candidate(path)) is not None]
    best: dict[str, _Candidate] = {}
    for one in candidates:
        known = best.get(one.part)
        if known is None or one.score > known.score:
            best[one.part] = one
    chosen = {part: one.path for part, one in best.items()}
    return Found(
        sacct=chosen.get("sacct"),
        events=chosen.get("events"),
        jobs=chosen.get("jobs"),
        config=chosen.get("config"),
        nodes=chosen.get("nodes"),
        passed_over=tuple(one.path for one in candidates if one.path != chosen[one.part]),
    )


def _candidate(path: Path) -> _Candidate | None:
    if path.stat().st_size > FILE_BYTES_LIMIT:
        return None
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    lines = [line for line in head.decode("utf-8", errors="replace").splitlines() if line.strip()]
    if not lines or b"\0" in head:
        return None
    for prefix, part, also in _BEGINNINGS:
        if lines[0].startswith(prefix) and also in lines[0]:
            return _Candidate(
                part, (_count(path, prefix), len(lines[0]) < 200), path
            )  # whole lines are the last choice
    return _table(path, lines)


# How the first line begins, and what else is in it: a log of completed jobs begins like `scontrol show job`.
_BEGINNINGS: Final = (
    ("JobId=", "jobs", " JobName="),
    ("NodeName=", "nodes", ""),
    ("Configuration data as of", "config", ""),
)


def _table(path: Path, lines: list[str]) -> _Candidate | None:
    header = header_of(lines[0])
    if header is None or len(lines) < 2:
        return None
    columns, delimiter = frozenset(header[0]), header[1]
    for part, needed, wanted in _TABLES:
        if needed <= columns and delimiter in lines[1]:
            epochs = any(cell.isdigit() and len(cell) == 10 for cell in lines[1].split(delimiter))
            return _Candidate(
                part, (_count(path, ""), len(columns & wanted), not delimiter.isprintable(), epochs), path
            )
    return None


_TABLES: Final = (
    ("events", outages.NEEDED, outages.WANTED),
    ("sacct", accounting.NEEDED, accounting.WANTED),
)


def _count(path: Path, prefix: str) -> int:
    with path.open("rb") as file:
        return sum(line.startswith(prefix.encode()) for line in file)
