"""Rows of the store as tables of short texts, with where each leads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from faultlens.causes import title_of
from slo.failures import name_of
from slo.pages.asked import job_link, link, node_link
from slo.wording import NOTHING, duration, minute, printable, whole_hours

Row = Mapping[str, Any]


class Cell(NamedTuple):
    """A text, where it leads, and how it is marked."""

    text: str
    href: str = ""
    tone: str = ""


@dataclass(frozen=True)
class Grid:
    """A table; `empty` is said where it has no rows. `more`: there are more rows than are shown."""

    caption: str
    heads: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    empty: str
    more: bool = False


def failures(rows: Sequence[Row], limit: int, *, caption: str = "Failures, newest first") -> Grid:
    """Return verdicts in force."""
    heads = ("ended", "job", "whose fault", "what happened", "where", "GPU-hours lost")
    made = [
        (
            Cell(minute(row["ended_ms"])),
            Cell(name_of(row), job_link(row["job_id"], row["attempt"])),
            Cell(row["class"], link("/failures", **{"class": row["class"]}), row["class"]),
            Cell(_what(row), link("/failures", code=row["code"])),
            _place(row),
            Cell(whole_hours(round(row["lost_gpu_seconds"] * 1000))),
        )
        for row in rows[:limit]
    ]
    return Grid(caption, heads, made, "No failure is known.", len(rows) > limit)


def _what(row: Row) -> str:
    basis = "" if row["basis"] == "established" else f" ({row['basis']})"
    early = ", provisional" if row.get("status") == "provisional" else ""
    return f"{title_of(row['code'])}{basis}{early}"


def _place(row: Row) -> Cell:
    if not row["node"]:
        return Cell(NOTHING)
    device = "" if row["device_index"] is None else f", GPU {row['device_index']}"
    return Cell(f"{row['node']}{device}", node_link(row["node"]))


def findings(rows: Sequence[Row], limit: int) -> Grid:
    """Return trouble of jobs that have not failed."""
    made = [
        (
            Cell(minute(row["since_ms"])),
            Cell(name_of(row), job_link(row["job_id"], row["attempt"])),
            Cell(row["kind"].replace("_", " ")),
            Cell(row["summary"] or (title_of(row["code"]) if row["code"] else NOTHING), "", row["class"]),
            _place(row),
            Cell("goes on" if row["until_ms"] is None else f"over after {duration(row['until_ms'] - row['since_ms'])}"),
        )
        for row in rows[:limit]
    ]
    heads = ("since", "job", "kind", "what", "where", "")
    return Grid("Trouble of jobs that have not failed", heads, made, "No trouble was found.", len(rows) > limit)


def incidents(rows: Sequence[Row], limit: int) -> Grid:
    """Return incidents, the open ones first."""
    made = [
        (
            Cell(minute(row["first_ms"])),
            Cell(
                row["phase"] if row["phase"] == "closed" else "open", "", "" if row["phase"] == "closed" else "missed"
            ),
            Cell(title_of(row["cause"])),
            Cell(_some(row["nodes"])),
            Cell(f"{len(row['jobs'])}"),
            Cell(f"{row['commands']}"),
        )
        for row in rows[:limit]
    ]
    heads = ("since", "", "cause", "nodes", "jobs", "commands")
    return Grid("Incidents", heads, made, "No incident is open.", len(rows) > limit)


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown or NOTHING


def states(rows: Sequence[Row], limit: int) -> Grid:
    """Return the states that a node was in, and of which cluster it is where several have one of that name."""
    shared = len({row["cluster"] for row in rows}) > 1
    made = [
        (
            Cell(minute(row["since_ms"]) + (f" ({row['cluster']})" if shared else "")),
            Cell(row["state"] + (", planned" if row["planned"] else ""), "", _state_tone(row["state"])),
            Cell(title_of(row["cause"]) if row["cause"] else NOTHING),
            Cell(f"{row['gpus_allocatable']} of {row['gpus_total']}"),
            Cell("until now" if row["until_ms"] is None else duration(row["until_ms"] - row["since_ms"])),
        )
        for row in rows[:limit]
    ]
    heads = ("since", "state", "cause", "GPUs allocatable", "for")
    return Grid("States, newest first", heads, made, "No state of it is known.", len(rows) > limit)


def _state_tone(state: str) -> str:
    return "met" if state == "available" else "" if state in ("removed", "maintenance") else "missed"


def faults(rows: Sequence[Row], limit: int) -> Grid:
    """Return what a node told of faults."""
    made = [
        (
            Cell(minute(row["at_ms"])),
            Cell(f"{row['kind']} {row['code']}" + (f" ({row['subcode']})" if row["subcode"] else "")),
            Cell("whole node" if row["device_index"] is None else f"GPU {row['device_index']}"),
            Cell(f"{row['count']}" + (", injected" if row["synthetic"] else "")),
            Cell(printable(row["message"], limit=160)),
        )
        for row in rows[:limit]
    ]
    heads = ("at", "fault", "device", "times", "message")
    return Grid("Faults, newest first", heads, made, "It told of no fault.", len(rows) > limit)


def commands(rows: Sequence[Row], limit: int) -> Grid:
    """Return what was to be done to a node."""
    made = [
        (
            Cell(minute(row["issued_ms"])),
            Cell(row["action"].replace("_", " ") + (" (shadow)" if row["mode"] == "shadow" else "")),
            Cell(row["policy"]),
            Cell(row["state"] or "no answer yet"),
            Cell(row["reason"] or NOTHING),
        )
        for row in rows[:limit]
    ]
    heads = ("issued", "action", "policy", "state", "reason")
    return Grid("What was done about it", heads, made, "Nothing was.", len(rows) > limit)


def found(rows: Iterable[Row], text: str) -> Grid:
    """Return jobs and nodes that may be meant."""
    made = [
        (
            Cell(row["kind"]),
            Cell(row["name"], job_link(row["name"]) if row["kind"] == "job" else node_link(row["name"])),
        )
        for row in rows
    ]
    return Grid(f"What holds “{printable(text, limit=100)}”", ("", "name"), made, "No job and no node does.")
