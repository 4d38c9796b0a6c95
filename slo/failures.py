"""Failures with the verdicts in force, newest first, as a terminal shows them and as JSON says them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from faultlens.causes import title_of
from faultlens.clock import iso
from slo.queries import EVER_MS, Reader, ask
from slo.wording import many, minute, printable

EVER: Final[Mapping[str, int]] = {"from": EVER_MS[0], "to": EVER_MS[1]}
# All that they can be narrowed to, and are not.
ALL: Final[Mapping[str, str]] = {"cluster": "", "class": "", "code": "", "node": "", "job": ""}
_WIDTH: Final = 160

Row = Mapping[str, Any]


def newest(reader: Reader, narrowed: Mapping[str, str | int], *, limit: int) -> list[dict[str, Any]]:
    """Return at most `limit` failures; `narrowed`: to a cluster, class, code, node, job, ends `from` and `to`."""
    return ask(reader, "page_failures", {**ALL, **EVER, **narrowed, "limit": limit})


def as_text(rows: Sequence[Row], limit: int) -> str:
    """Return a line for each failure, and how to go on from there; there are more where `limit` is passed."""
    if not rows:
        return "No failure is known."
    shown = rows[:limit]
    count = (
        f"The newest {len(shown):,} failures" if len(rows) > limit else many(len(shown), "failure") + ", newest first"
    )
    return "\n".join([count, *_lines(shown), "`faultlens why JOB/N` tells the story of one."])


def _lines(rows: Sequence[Row]) -> Iterator[str]:
    names = [printable(name_of(row), limit=60) for row in rows]
    wide = max(map(len, names))
    for name, row in zip(names, rows, strict=True):
        where = f" on {row['node']}" if row["node"] else ""
        told = f"{row['class']:<9} {title_of(row['code'])}{where} ({row['basis']})"
        yield printable(f"  {minute(row['ended_ms'])}  {name:<{wide}}  {told}", limit=_WIDTH)


def name_of(row: Row) -> str:
    """Return what a failure is called: job/attempt, and which loss of an elastic job it is."""
    loss = f", loss {row['loss']}" if row.get("loss") else ""
    return f"{row['job_id']}/{row['attempt']}{loss}"


def as_plain(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the same as plain values, with what each failure cost."""
    return [
        {"ended_at": iso(row["ended_ms"]), **{name: value for name, value in row.items() if name != "ended_ms"}}
        for row in rows
    ]
