"""The report as JSON: every exact figure, for machines."""

from __future__ import annotations

from dataclasses import asdict
from math import isfinite
from typing import Any

import msgspec

from faultlens.clock import iso
from slo.report.data import Quality, ReportData, Totals
from slo.report.summary import summary
from slo.report.telling_changes import actions


def render_json(data: ReportData) -> str:
    """Return the report as JSON. GPU time is in whole GPU-milliseconds, times are RFC 3339."""
    return msgspec.json.format(msgspec.json.encode(to_plain(data)), indent=2).decode() + "\n"


def to_plain(data: ReportData) -> dict[str, Any]:
    """Return the report as plain values: dicts, lists, numbers and text."""
    plain = asdict(data)
    plain["period"] = {
        "label": data.period.label,
        "from": iso(data.period.from_ms),
        "to": iso(data.period.to_ms),
        "complete": data.period.complete,
    }
    plain["as_of"] = iso(plain.pop("as_of_ms"))
    plain["summary"] = summary(data)
    plain["objectives"] = [asdict(line) | {"met": line.met} for line in data.objectives]
    plain["days"] = [{"day": iso(line.day_ms)[:10], "by_class": dict(line.by_class)} for line in data.days]
    plain["totals"] = _totals(data.totals)
    plain["before"] = _totals(data.before) if data.before is not None else None
    plain["quality"] = _quality(data.quality)
    plain["weeks"] = [
        {"from": iso(week.from_ms), "totals": _totals(week.totals), "attained": dict(week.attained)}
        for week in data.weeks
    ]
    plain["actions"] = actions(data)
    plain["sizes"] = [
        asdict(line) | {"mttf_h": line.mttf_h, "bounds_h": [low, high if isfinite(high) else None]}
        for line in data.sizes
        for low, high in (line.bounds_h,)
    ]
    plain["trainings"] = [
        asdict(line) | {"effective": line.effective, "between_h": line.between_h} for line in data.trainings
    ]
    plain["returned"] = [asdict(line) | {"median_ms": line.median_ms} for line in data.returned]
    return plain


def _totals(totals: Totals) -> dict[str, Any]:
    ledger = totals.ledger
    return {
        "attempts": totals.attempts,
        "failures": dict(totals.failures),
        "gpu_ms": dict(ledger.by_category),
        "allocated_gpu_ms": ledger.allocated_ms,
        "productive_gpu_ms": ledger.productive_ms,
        "queued_ms": ledger.queued_ms,
        "goodput": ledger.goodput,
    }


def _quality(quality: Quality) -> dict[str, Any]:
    by_class: dict[str, dict[str, int]] = {}
    for (cause_class, basis), count in quality.by_basis.items():
        by_class.setdefault(cause_class, {})[basis] = count
    return {
        "by_class": by_class,
        "bounds": {name: list(quality.bounds(name)) for name in by_class},
        "amended": quality.amended,
        "withdrawn": quality.withdrawn,
        "provisional": quality.provisional,
    }
