"""What changed after it was final: verdicts that were amended, overruled or withdrawn, and what they were before."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from slo.measure import Row
from slo.wording import printable

BY_A_PERSON: Final = "labelled_by_a_person"
_NAME: Final = 120
_WHY: Final = 200


@dataclass(frozen=True, slots=True)
class Correction:
    """A verdict that changed after it was final; `status` is `amended`, `withdrawn` or `provisional` (judged anew).

    `was` and `now` are class, code and node. `loss` 0 is the attempt's end.
    """

    job_id: str
    attempt: int
    loss: int
    was: tuple[str, str, str]
    now: tuple[str, str, str]
    status: str
    changed_ms: int
    by_a_person: bool
    summary: str


@dataclass(frozen=True, slots=True)
class Corrections:
    """The newest corrections, and how many more there are."""

    shown: tuple[Correction, ...] = ()
    left_out: int = 0

    @property
    def count(self) -> int:
        """All of them."""
        return len(self.shown) + self.left_out


def corrections(rows: Iterable[Row]) -> Corrections:
    """Return what the store says of verdicts that changed."""
    told = list(rows)
    shown = tuple(_correction(row) for row in told)
    return Corrections(shown, told[0]["all_changed"] - len(shown) if told else 0)


def _correction(row: Row) -> Correction:
    return Correction(
        row["job_id"],
        row["attempt"],
        row["loss"],
        (row["was_class"], row["was_code"], row["was_node"]),
        (row["class"], row["code"], row["node"]),
        row["status"],
        row["changed_ms"],
        row["rule"] == BY_A_PERSON,
        row["summary"],
    )


def after_the_end(found: Corrections, to_ms: int) -> Sequence[Correction]:
    """Return those that came after the period had ended: figures told before differ from those told now by them."""
    return [line for line in found.shown if line.changed_ms >= to_ms]


def whose(charged: tuple[str, str, str]) -> str:
    """Return a charge in a few words."""
    cause_class, code, node = charged
    return printable(f"{cause_class}, {code}" + (f" on {node}" if node else ""), limit=_NAME)


def now_words(line: Correction) -> str:
    """Return what a verdict is now."""
    if line.status == "withdrawn":
        return "withdrawn: no failure"
    return whose(line.now) + (" (not final yet)" if line.status == "provisional" else "")


def reason(line: Correction) -> str:
    """Return why a verdict changed."""
    if line.status == "withdrawn":
        return "the attempt turned out not to have failed"
    if line.by_a_person:
        return f"a person's word: {printable(line.summary, limit=_WHY)}"
    return "later evidence"
