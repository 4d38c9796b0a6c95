"""Tables that `sacct` and `sacctmgr` print with a delimiter between columns and none around what holds it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from producers.slurm.cells import refit

# A batch script pasted into a comment has this many lines at most; beyond, the row is given up.
CONTINUATION_LINES: Final = 200
LINE_CHARS: Final = 1_000_000

_FIRST_NAME: Final = re.compile(r"^\ufeff?([A-Za-z][A-Za-z0-9]*(?: [A-Za-z0-9]+)*)([^A-Za-z0-9 ]+)(?=[A-Za-z]|$)")
_DASHES: Final = re.compile(r"^[- ]{3,}$")


class TableError(ValueError):
    """The file is no table that can be read; the message says how to export it."""


class BadLine(NamedTuple):
    """A line that was left out, and why."""

    line: int
    why: str


class Row(NamedTuple):
    """One record: the number of its first line, and its cells by lower-case column name."""

    line: int
    cells: dict[str, str]


class Table(NamedTuple):
    """The records of a file. `repaired` counts rows whose cells held the delimiter or a line end."""

    columns: tuple[str, ...]
    rows: list[Row]
    bad: list[BadLine]
    repaired: int


def header_of(line: str) -> tuple[tuple[str, ...], str] | None:
    """Return the lower-case column names of a header line and its delimiter, or None if it is no header."""
    line = line.rstrip("\r\n")
    found = _FIRST_NAME.match(line)
    if found is None:
        return None
    delimiter = found[2]
    names = [name.strip().lower() for name in line.removeprefix("\ufeff").removesuffix(delimiter).split(delimiter)]
    if len(names) < 2 or not all(re.fullmatch(r"[a-z][a-z0-9 ]*", name) for name in names):
        return None
    return tuple(names), delimiter


def read_table(lines: Iterable[str], *, needed: frozenset[str], wanted: frozenset[str], what: str) -> Table:
    """Return the records in `lines`, of which the first is the header; only `wanted` columns are kept.

    Raises `TableError` when there is no such header, or when columns in `needed` are missing.
    """
    numbered = ((number, line.rstrip("\r\n")) for number, line in enumerate(lines, start=1))
    numbered = ((number, line) for number, line in numbered if line.strip())
    first = next(numbered, None)
    if first is None:
        raise TableError(f"{what}: empty")
    header = header_of(first[1])
    second = next(numbered, None)
    if header is None or (second is not None and _DASHES.match(second[1])):
        raise TableError(f"{what}: no header with a delimiter; export with --parsable2 and without --noheader")
    missing = sorted(needed - set(header[0]))
    if missing:
        raise TableError(f"{what}: no column {', '.join(missing)}; add it to --format")
    rest = numbered if second is None else _chained(second, numbered)
    return _read_rows(rest, header[0], header[1], wanted)


def _chained(first: tuple[int, str], rest: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    yield first
    yield from rest


class _Pieces(NamedTuple):
    """Lines that together may be one row: number of the first, how many, and the text so far."""

    line: int
    lines: int
    text: str


def _read_rows(
    lines: Iterator[tuple[int, str]], columns: tuple[str, ...], delimiter: str, wanted: frozenset[str]
) -> Table:
    kept = [(at, name) for at, name in enumerate(columns) if name in wanted]
    rows: list[Row] = []
    bad: list[BadLine] = []
    repaired = 0
    for pieces, cells in _records(lines, columns, delimiter):
        if cells is None:
            bad.append(BadLine(pieces.line, _count(pieces.text, delimiter, columns)))
            continue
        repaired += pieces.lines > 1 or pieces.text.removesuffix(delimiter).count(delimiter) >= len(columns)
        rows.append(Row(pieces.line, {name: cells[at] for at, name in kept}))
    return Table(columns, rows, bad, repaired)


def _records(
    lines: Iterator[tuple[int, str]], columns: tuple[str, ...], delimiter: str
) -> Iterator[tuple[_Pieces, list[str] | None]]:
    """Yield each record's text with its cells; None instead of cells for what is none."""
    begun: _Pieces | None = None
    for number, line in lines:
        alone = _Pieces(number, 1, line[:LINE_CHARS])
        cells = _cells(alone.text, columns, delimiter)
        if begun is not None and cells is None:
            alone = _Pieces(begun.line, begun.lines + 1, f"{begun.text}\n{alone.text}")
            cells = _cells(alone.text, columns, delimiter)
        elif begun is not None:
            yield begun, None
        begun = None
        if cells is not None or alone.lines > CONTINUATION_LINES or len(alone.text) > LINE_CHARS:
            yield alone, cells
        else:
            begun = alone
    if begun is not None:
        yield begun, None


def _cells(text: str, columns: tuple[str, ...], delimiter: str) -> list[str] | None:
    """Return one cell for each column, or None if that cannot be done without guessing."""
    cells = text.split(delimiter)
    if len(cells) == len(columns) + 1 and cells[-1] == "":
        cells.pop()  # `--parsable` ends each line with the delimiter
    if len(cells) <= len(columns):
        return cells if len(cells) == len(columns) else None
    return refit(cells, columns, delimiter)


def _count(text: str, delimiter: str, columns: tuple[str, ...]) -> str:
    return f"{text.count(delimiter) + 1} cells where the header has {len(columns)}, and they fit no other way"
