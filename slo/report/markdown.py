"""The report as Markdown: the same words and tables, for a mail, a wiki or a pull request."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from slo.report import notes, telling_changes, view, view_machines
from slo.report.data import ReportData
from slo.report.html import scope_words
from slo.report.summary import CATEGORY_WORDS, summary
from slo.wording import minute, of_tenths, percent, printable, tenths_that_add_up

# What Markdown or the HTML in it would take for more than a character.
_SPECIAL: Final = re.compile(r"([\\`*_{}\[\]<>#|~&])")


def render_markdown(data: ReportData) -> str:
    """Return the report as Markdown; what came from outside is escaped."""
    lines = [f"# GPU fleet: {_plain(data.period.label)}", "", _plain(scope_words(data)), "", "## In short", ""]
    for paragraph in summary(data):
        lines += [_plain(paragraph), ""]
    if not data.is_empty:
        lines += _sections(data)
    return "\n".join([*lines, f"Data up to {minute(data.as_of_ms)}.", ""])


def _sections(data: ReportData) -> Iterator[str]:
    yield from _bullets("What to do next", telling_changes.actions(data))
    yield from _table(view.objectives_table(data), "Objectives and their budgets")
    yield from _table(view.bad_table(data), "What was not good, by whom it is charged to")
    yield from (f"- {_plain(sentence)}" for sentence in notes.second_numbers(data))
    yield ""
    if data.causes:
        yield from _table(view.causes_table(data), "Failures by cause, and what they cost")
    yield from _table(_ledger(data), "Where the GPU time went")
    for title, table in (
        ("The fleet", view.fleet_table(data)),
        ("Worst nodes and devices", view.nodes_table(data) if data.nodes else None),
        ("Compared with the period before", view.comparison_table(data)),
        ("How long jobs last, by size", view_machines.sizes_table(data)),
        ("The largest trainings", view_machines.trainings_table(data)),
        ("How often to save", view_machines.saves_table(data)),
        ("Hardware that went back", view_machines.returned_table(data)),
        ("Week by week", view.weeks_table(data)),
        ("Causes that moved most", view.movers_table(data)),
        ("What faultlens did about it", view.remedies_table(data)),
        ("How sure this is", view.quality_table(data)),
        ("Verdicts that changed after they were final", view_machines.corrections_table(data)),
    ):
        if table is not None:
            yield from _table(table, title)
    yield from (f"- {_plain(sentence)}" for sentence in notes.blindness(data))
    yield from (f"- {_plain(sentence)}" for sentence in telling_changes.correction_lines(data))
    yield from (f"- {_plain(sentence)}" for sentence in telling_changes.dispute_lines(data.disputes))
    yield ""
    yield from _bullets("What is new", list(telling_changes.news_lines(data.news)))


def _bullets(title: str, sentences: Sequence[str]) -> Iterator[str]:
    if sentences:
        yield from (f"## {title}", "", *(f"- {_plain(sentence)}" for sentence in sentences), "")


def _ledger(data: ReportData) -> view.Table:
    ledger = data.totals.ledger
    tenths = tenths_that_add_up({"productive": ledger.productive_ms, **dict(ledger.losses)})
    rows = [
        (CATEGORY_WORDS.get(name, name), of_tenths(tenths[name]), _share(amount, ledger.allocated_ms))
        for name, amount in [*ledger.losses, ("productive", ledger.productive_ms)]
    ]
    foot = ("Allocated", of_tenths(sum(tenths.values())), _share(ledger.allocated_ms, ledger.allocated_ms))
    return view.Table("", ("Went into", "GPU-hours", "Share"), rows, frozenset({1, 2}), foot)


def _share(part: int, whole: int) -> str:
    return percent(part / whole if whole else None)


def _table(table: view.Table, title: str) -> Iterator[str]:
    yield f"## {title}"
    yield ""
    yield _row(table.heads)
    yield "|" + "|".join(" ---: " if index in table.numeric else " --- " for index in range(len(table.heads))) + "|"
    yield from (_row(row) for row in table.rows)
    if table.foot:
        yield _row(table.foot)
    yield ""


def _row(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(_plain(cell) for cell in cells) + " |"


def _plain(words: str) -> str:
    return _SPECIAL.sub(r"\\\1", printable(words, limit=2_000))
