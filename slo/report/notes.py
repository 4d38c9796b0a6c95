"""What a report says beside its tables and charts: second numbers, reliability, an outlook, and what is not known."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from faultlens.clock import DAY_MS, HOUR_MS, MINUTE_MS
from slo.backing import TOO_LITTLE, floors, rough, share_words
from slo.indicators import (
    TrainingPlan,
    best_checkpoint_interval_min,
    expected_effective_time_ratio,
    failure_rate,
    mean_time_between_h,
    mttf_bounds_h,
    mttf_h,
)
from slo.report.data import Quality, ReportData
from slo.wording import NOTHING, duration, listed, many, percent

# The large job of the outlook: what a failure and a checkpoint cost it, in minutes.
OUTLOOK_GPUS: Final = 1_024
RESTART_MIN: Final = 5.0
HOURLY_MIN: Final = 60.0
WRITE_MIN: Final = 1.0


def second_numbers(data: ReportData) -> list[str]:
    """The second number of objectives that have two, each as a sentence."""
    return [
        f"{line.title}, {what}: {share_words(value, digits=line.digits)}."
        for line in data.objectives
        for what, value in line.also
    ]


def reliability_lines(data: ReportData) -> Iterator[tuple[str, str]]:
    """How often hardware and driver ended jobs, per node-day and GPU-hour, and how long nodes stayed out."""
    known = data.reliability
    rate = failure_rate(known.failures, known.node_ms / DAY_MS)
    yield "Failures by hardware or driver", f"{known.failures:,}"
    yield "per 1,000 node-days", _unless_few(None if rate is None else rate * 1000, known.failures)
    between = mean_time_between_h(known.gpu_ms / HOUR_MS, known.failures)
    yield "GPU-hours between them", _unless_few(between, known.failures)
    if known.failures:
        low, high = mttf_bounds_h(known.gpu_ms / HOUR_MS, known.failures)
        yield "at least, and at most (90 % confidence)", f"{_two(low)} to {_two(high)}"
    repairs = sorted(known.repairs_ms)
    if repairs:
        middle, late = repairs[len(repairs) // 2], repairs[min(len(repairs) - 1, len(repairs) * 9 // 10)]
        yield "Unplanned outages of nodes", f"{len(repairs):,}"
        yield "median until back", duration(middle)
        yield "nine of ten back within", duration(late)


def _unless_few(value: float | None, failures: int) -> str:
    """Return what was reckoned from so many failures, unless they are too few to say it."""
    if value is None:
        return NOTHING
    return TOO_LITTLE if failures < floors().failures else _two(value)


def _two(value: float) -> str:
    """Return a number to two digits: a count of failures says no more."""
    return f"{float(f'{value:.2g}'):,.6g}"


def outlook_gpus(data: ReportData) -> int:
    """The size of the job that the outlook is for: large, but no larger than the fleet where that is known."""
    length_ms = data.period.to_ms - data.period.from_ms
    fleet = round(sum(data.fleet.values()) / length_ms) if length_ms else 0
    return min(OUTLOOK_GPUS, fleet) or OUTLOOK_GPUS


def outlook_lines(data: ReportData) -> Iterator[tuple[str, str]]:
    """What this period's failure rate would mean for a large job; nothing where hardware and drivers ended none."""
    known, gpus = data.reliability, outlook_gpus(data)
    rate = failure_rate(known.failures, known.gpu_ms / DAY_MS)
    if not rate or known.failures < floors().failures:
        return
    best_min = best_checkpoint_interval_min(WRITE_MIN, nodes=gpus, failures_per_node_day=rate)
    yield "it would be ended every", rough(mttf_h(gpus, rate) * HOUR_MS)
    yield "effective training time, hourly checkpoints", _expected(TrainingPlan(gpus, rate, RESTART_MIN, HOURLY_MIN))
    yield "best interval, if one takes a minute", duration(math.ceil(best_min) * MINUTE_MS)
    yield "effective training time with that", _expected(TrainingPlan(gpus, rate, RESTART_MIN, best_min))


def _expected(plan: TrainingPlan) -> str:
    """The formula holds while failures cost less than they leave; beyond that there is nothing to say."""
    ratio = expected_effective_time_ratio(plan)
    return percent(ratio) if ratio >= 0.5 else "less than half"


def _changes(quality: Quality) -> str:
    counts = {
        "changed after they were final": quality.amended,
        "withdrawn": quality.withdrawn,
        "not final yet": quality.provisional,
    }
    told = [f"{count:,} {what}" for what, count in counts.items() if count]
    return (
        f"Verdicts: {listed(told)}."
        if told
        else "Every verdict is final, and none was changed or withdrawn after it was."
    )


def _known(data: ReportData) -> list[str]:
    """How much of the period stands behind the figures, where that is not all of it."""
    span_ms = data.period.to_ms - data.period.from_ms
    if data.known_ms is None or data.known_ms >= span_ms:
        return []
    return [f"Of this period of {duration(span_ms)} {duration(data.known_ms)} are known: figures are of that."]


def blindness(data: ReportData) -> list[str]:
    """What faultlens could not read, or sees two ways: each a sentence."""
    letters = data.intake.dead_letters
    said = _known(data)
    if letters:
        parts = [f"{count:,} {reason.replace('_', ' ')}" for reason, count in letters.items()]
        said.append(f"{many(sum(letters.values()), 'record')} could not be processed: {listed(parts)}.")
    else:
        said.append("Every record that arrived could be processed.")
    coverage = next((line for line in data.objectives if line.name == "coverage"), None)
    if coverage is not None and coverage.shown is not None:
        late = percent(1 - coverage.shown, digits=3)
        said.append(f"Nodes reported late, or not at all, for {late} of their time.")
    said.append(_changes(data.quality))
    return [*said, *(f"{words}." for words in data.never_fire)]
