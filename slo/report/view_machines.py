"""Tables of how machines and jobs lasted, what saving costs, what went back, and which verdicts changed."""

from __future__ import annotations

import math
from typing import Final

from faultlens.clock import HOUR_MS, MINUTE_MS
from slo.backing import mean_words, rough
from slo.report.corrections import now_words, reason, whose
from slo.report.data import ReportData
from slo.report.machines import SizeLine
from slo.report.view import Table
from slo.wording import NOTHING, duration, minute, percent, printable, whole_hours

_NAME: Final = 120


def sizes_table(data: ReportData) -> Table | None:
    """Mean time to failure by the size of jobs; None where no job ran."""
    if not data.sizes:
        return None
    rows = [_size_row(line) for line in data.sizes]
    heads = ("GPUs of the job", "Attempts", "Hours run", "Failures", "Mean time to failure", "at least", "at most")
    return Table("How long jobs run before hardware or a driver ends them", heads, rows, frozenset(range(1, 7)))


def _size_row(line: SizeLine) -> tuple[str, ...]:
    low, high = line.bounds_h
    return (
        f"{line.from_gpus:,} to {line.to_gpus:,}" if line.to_gpus else f"{line.from_gpus:,} and more",
        f"{line.attempts:,}",
        whole_hours(line.run_ms),
        f"{line.failures:,}",
        mean_words(None if line.mttf_h is None else line.mttf_h * HOUR_MS, line.failures),
        _hours(low),
        NOTHING if math.isinf(high) else _hours(high),
    )


def _hours(hours: float) -> str:
    return rough(hours * HOUR_MS)


def trainings_table(data: ReportData) -> Table | None:
    """The trainings that held most GPU time, and how much of their time was effective; None without any."""
    if not data.trainings:
        return None
    rows = [
        (
            printable(line.job_id, limit=_NAME),
            printable(line.team, limit=_NAME) or NOTHING,
            f"{line.gpus:,}",
            f"{line.attempts:,}",
            percent(line.effective),
            f"{line.interruptions:,}",
            mean_words(None if line.between_h is None else line.between_h * HOUR_MS, line.interruptions),
        )
        for line in data.trainings
    ]
    heads = ("Job", "Team", "GPUs", "Attempts", "Effective time", "Interruptions", "Time between")
    return Table("Trainings that held most GPU time", heads, rows, frozenset(range(2, 7)))


def saves_table(data: ReportData) -> Table | None:
    """Jobs that would lose less by saving more or less often; None where none would."""
    if not data.saves:
        return None
    rows = [
        (
            printable(line.job_id, limit=_NAME),
            f"{line.gpus:,}",
            f"{line.saves:,}",
            duration(line.write_ms),
            duration(line.every_ms),
            duration(max(1, round(line.best_ms / MINUTE_MS)) * MINUTE_MS),
            whole_hours(line.gained_gpu_ms),
        )
        for line in data.saves
    ]
    heads = ("Job", "GPUs", "Saves", "One takes", "Saved every", "Best every", "GPU-hours to gain")
    return Table("Jobs that would lose less by saving more or less often", heads, rows, frozenset(range(1, 7)))


def returned_table(data: ReportData) -> Table | None:
    """What was replaced or taken away, by the vendor of its GPUs; None where nothing was."""
    if not data.returned:
        return None
    rows = [
        (
            line.vendor,
            printable(line.family, limit=_NAME),
            f"{line.nodes:,}",
            f"{line.times:,}",
            f"{line.still_away:,}",
            NOTHING if line.median_ms is None else duration(line.median_ms),
            duration(max(line.away_ms)) if line.away_ms else NOTHING,
        )
        for line in data.returned
    ]
    heads = ("Vendor", "GPUs", "Nodes", "Times", "Still away", "Away (median)", "Away (longest)")
    return Table("Nodes that were replaced or taken away", heads, rows, frozenset(range(2, 7)))


def corrections_table(data: ReportData) -> Table | None:
    """Verdicts that changed after they were final; None where none did."""
    if not data.corrections.count:
        return None
    rows = [
        (
            f"{printable(line.job_id, limit=_NAME)}/{line.attempt}" + (f", loss {line.loss}" if line.loss else ""),
            whose(line.was),
            now_words(line),
            minute(line.changed_ms),
            reason(line),
        )
        for line in data.corrections.shown
    ]
    heads = ("Attempt", "Was charged to", "Is now", "Since", "Because")
    return Table("Verdicts that changed after they were final", heads, rows, frozenset())
