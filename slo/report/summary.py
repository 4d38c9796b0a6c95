"""The report in words: what a reader who stops after one screen should know."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from slo.backing import attained_words
from slo.report.data import OVERHEAD, CauseLine, NodeLine, ObjectiveLine, ReportData
from slo.wording import duration, listed, many, percent, points, signed, target_percent, whole_hours

CLASS_WORDS: Final = {"hardware": "hardware", "driver": "drivers", "platform": "the platform", "user": "users"}
CATEGORY_WORDS: Final = {
    "productive": "Work that was kept",
    "lost_work": "Work lost to restarts",
    "stalled": "Stalls",
    "slow": "Slow steps",
    "recovery": "Recovery after failures",
    "startup": "Start-up",
    "checkpoint_save": "Saving checkpoints",
    "checkpoint_restore": "Restoring checkpoints",
    "other": "Not accounted for",
}
NOTHING_KNOWN: Final = (
    "Nothing is known of this period: no node reported and no job ended. Check that this is the right store, and that "
    "events are replayed or written into it (`faultlens check` looks at both)."
)


def summary(data: ReportData) -> list[str]:
    """Return the sentences of the summary, each entry a paragraph; one that says so when nothing is known."""
    if data.is_empty:
        return [NOTHING_KNOWN]
    return [words for tell in _PARAGRAPHS if (words := " ".join(tell(data)))]


def _objectives(data: ReportData) -> Iterator[str]:
    measured = [line for line in data.objectives if line.met is False or (line.met and line.enough)]
    open_yet = [_inside(line.title) for line in data.objectives if line.met and not line.enough]
    missed = [_miss(line) for line in measured if not line.met]
    met = len(measured) - len(missed)
    if missed:
        yield f"{met or 'None'} of {many(len(measured), 'objective')} {'was' if met == 1 else 'were'} met."
        yield f"Missed: {listed(missed)}."
    elif measured:
        yield f"All {met} objectives were met." if met > 1 else "The one objective measured was met."
    if open_yet:
        yield f"Too little is known yet to call these kept: {listed(open_yet)}."


def _budgets(data: ReportData) -> Iterator[str]:
    left = {_inside(line.title): line.budget_left for line in data.objectives if line.budget_left is not None}
    overspent = [title for title, share in left.items() if share < 0]
    if overspent:
        yield f"Over its whole rolling window, the error budget is overspent for {listed(overspent)}."
    elif left:
        title = min(left, key=lambda name: left[name])
        yield f"The least error budget is left for {title}: {percent(left[title], digits=0)} of it."


def _miss(line: ObjectiveLine) -> str:
    shown = attained_words(line.shown, line.target, digits=line.digits)
    return f"{_inside(line.title)} ({shown}, target {target_percent(line.target)})"


def _inside(title: str) -> str:
    """Return a title as it stands inside a sentence; `GPU availability` stays."""
    return title if title[:2].isupper() else title[:1].lower() + title[1:]


def _failures(data: ReportData) -> Iterator[str]:
    attempts = many(data.totals.attempts, "attempt")
    counts = sorted(data.totals.failures.items(), key=lambda item: -item[1])
    charged = [f"{count:,} to {CLASS_WORDS.get(name, name)}" for name, count in counts if count]
    if not charged:
        yield f"Of {attempts} that ended none failed."
        return
    survived = data.totals.survived
    lost = f", and {survived:,} went on after a loss" if survived else ""
    yield f"Of {attempts} that ended, {data.totals.all_failures - survived:,} failed{lost}: {listed(charged)}."
    ours = [line for line in data.causes if line.failures and line.cause_class not in ("user", OVERHEAD)]
    if ours:
        yield _causes(ours)


def _causes(ours: list[CauseLine]) -> str:
    most = max(ours, key=lambda line: (line.failures, line.gpu_ms))
    dearest = max(ours, key=lambda line: line.gpu_ms)
    text = f"Leaving out what users did, the most frequent cause was “{most.title}” ({many(most.failures, 'failure')})"
    if not dearest.gpu_ms:
        return f"{text}."
    cost = f"{whole_hours(dearest.gpu_ms)} GPU-hours"
    return (
        f"{text}, which also cost most, {cost}." if dearest is most else f"{text}; “{dearest.title}” cost most, {cost}."
    )


def _goodput(data: ReportData) -> Iterator[str]:
    ledger = data.totals.ledger
    if not ledger.allocated_ms:
        yield "No GPU time was allocated."
        return
    allocated = whole_hours(ledger.allocated_ms)
    yield f"Jobs held GPUs for {allocated} GPU-hours, and {percent(ledger.goodput)} of that became work that was kept."
    dearest = sorted(ledger.losses, key=lambda item: -item[1])[:2]
    if dearest:
        named = [f"{_inside(CATEGORY_WORDS.get(name, name))} ({whole_hours(amount)})" for name, amount in dearest]
        yield f"Of the {whole_hours(ledger.lost_ms)} GPU-hours that did not, most went into {listed(named)}."


def _change(data: ReportData) -> Iterator[str]:
    if data.before is None:
        yield "There are no data of the period before to compare with."
        return
    then = data.before
    words = f"{signed(data.totals.all_failures - then.all_failures)} failures ({then.all_failures:,} then)"
    here, there = data.totals.ledger.goodput, then.ledger.goodput
    if here is not None and there is not None:
        words += f", goodput {points(here - there)} ({percent(there)} then)"
    yield f"Against the period before: {words}."


def _nodes(data: ReportData) -> Iterator[str]:
    failing = [line for line in data.nodes if line.failures]
    if failing:
        yield f"The node with most to its charge is {failing[0].node}: {charge(failing[0])}."


def charge(line: NodeLine) -> str:
    """Return what a node is charged with, in words: failures, which device, GPU time, time out of service."""
    return f"{many(line.failures, 'failure')}{_where(line)}{_cost(line)}"


def _where(line: NodeLine) -> str:
    if not line.devices:
        return ""
    index, count = max(line.devices.items(), key=lambda item: item[1])
    if line.failures == 1:
        return f" on GPU {index}"
    return f", {count:,} of them on GPU {index}" if count < line.failures else f", all on GPU {index}"


def _cost(line: NodeLine) -> str:
    parts = [f"{whole_hours(line.gpu_ms)} GPU-hours lost"] if line.gpu_ms else []
    if line.down_ms:
        parts.append(f"{duration(line.down_ms)} out of service")
    return f"; {listed(parts)}" if parts else ""


def _certainty(data: ReportData) -> Iterator[str]:
    total, assumed = data.quality.count(), data.quality.count(basis="assumed")
    if not total:
        return
    if not assumed:
        yield "Every verdict rests on an observation; none is assumed."
        return
    low, high = data.quality.bounds("hardware")
    verdicts = f"{assumed:,} of {many(total, 'verdict')} ({percent(assumed / total)})"
    yield f"Nothing pointed anywhere for {verdicts}, whose class is assumed."
    yield f"Moving those to either side, hardware is behind at least {low:,} and at most {high:,} failures."


def _intake(data: ReportData) -> Iterator[str]:
    letters = sum(data.intake.dead_letters.values())
    if letters:
        yield f"{many(letters, 'record')} could not be read and lie among the dead letters."
    coverage = next((line for line in data.objectives if line.name == "coverage"), None)
    if coverage is not None and coverage.met is False:
        yield "Nodes reported late more often than the coverage target allows, so less is known of them."


_PARAGRAPHS: Final[tuple[Callable[[ReportData], Iterator[str]], ...]] = (
    _objectives,
    _budgets,
    _failures,
    _goodput,
    _change,
    _nodes,
    _certainty,
    _intake,
)
