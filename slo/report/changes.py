"""What changed: causes that moved most, what is new, what was done about it, and what people disputed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from faultlens.clock import SECOND_MS
from slo.labels import Label, rules_overruled
from slo.measure import OVERHEAD, Row
from slo.report.data import CauseLine, Disputes, Mover, News, Remedy

RULES: Final = 5


def movers(now: Sequence[CauseLine], then: Sequence[CauseLine]) -> tuple[Mover, ...]:
    """Return the causes whose cost changed, by how much it did; of the same cost, those whose failures changed."""
    before = {line.key: line for line in then}
    here = {line.key for line in now}
    gone = [replace(line, failures=0, assumed=0, gpu_ms=0) for key, line in before.items() if key not in here]
    found = [_mover(line, before.get(line.key)) for line in (*now, *gone) if line.cause_class != OVERHEAD]
    moved = [mover for mover in found if mover.failures or mover.gpu_ms]
    return tuple(sorted(moved, key=lambda m: (-abs(m.gpu_ms), -abs(m.failures), m.cause.key)))


def _mover(line: CauseLine, before: CauseLine | None) -> Mover:
    return Mover(line, before.failures if before else 0, before.gpu_ms if before else 0)


def news(codes: Iterable[Row], lemons: Iterable[Row], rollouts: Iterable[Row]) -> News:
    """Return what was not there before."""
    return News(
        tuple((f"{row['kind']} {row['code']}", row["faults"], row["nodes"]) for row in codes),
        tuple((row["node"], row["failures"], tuple(row["causes"])) for row in lemons),
        tuple((row["began_ms"], f"{row['what']} {row['version']} ({row['phase']})") for row in rollouts),
    )


def remedies(rows: Iterable[Row]) -> tuple[Remedy, ...]:
    """Return what became of commands, by action."""
    return tuple(
        Remedy(
            row["action"],
            row["mode"] == "shadow",
            row["commands"],
            row["succeeded"],
            row["failed"],
            row["refused"],
            row["expired"],
            row["relapsed"],
            round(row["median_s"] * SECOND_MS),
        )
        for row in rows
    )


def disputes(said: Sequence[Label]) -> Disputes:
    """Return how much was disputed, and which rules were overruled."""
    overruled = [record for record in rules_overruled(said) if record.overruled]
    rules = tuple((f"{record.rule}/{record.basis}", record.labelled, record.overruled) for record in overruled[:RULES])
    return Disputes(len(said), sum(label.held == "overrules" for label in said), rules)
