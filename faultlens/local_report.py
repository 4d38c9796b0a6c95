"""What a replay says of itself when it is done: for people, and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from faultlens.clock import moment_of
from faultlens.local_tally import Tally
from faultlens.topics import DEAD_LETTERS
from slo.wording import printable

# Of names that several clusters have, so many are told.
SHOWN: Final = 5


@dataclass(frozen=True)
class Run:
    """A finished replay: its counts, how long it took, and where its answers are (None: nowhere)."""

    tally: Tally
    seconds: float
    out: Path | None
    store: str | None

    @property
    def events_per_second(self) -> int:
        """Events taken per second of the whole run."""
        return round(self.tally.events / self.seconds) if self.seconds else 0


def as_json(run: Run) -> dict[str, Any]:
    """Return the summary as plain values."""
    return run.tally.answer() | {
        "seconds": round(run.seconds, 3),
        "events_per_second": run.events_per_second,
        "out": None if run.out is None else str(run.out),
        "store": run.store,
    }


def as_text(run: Run) -> str:
    """Return the summary for people: what came in, what was found, what was refused, and where it all is."""
    tally = run.tally
    lines = [
        f"Replayed {tally.events:,} events in {run.seconds:.1f} s ({run.events_per_second:,} a second)"
        + _list(tally.by_topic, before=": "),
        _verdicts(tally),
    ]
    if tally.dead_letters:
        total = sum(tally.dead_letters.values())
        where = "" if run.out is None else f"; see {run.out / f'{DEAD_LETTERS}.jsonl'}"
        lines.append(f"Dead letters: {total:,} ({_list(tally.dead_letters)}){where}")
    if tally.failures:
        lines.append(f"Processors failed {tally.failures:,} times: the tracebacks are in the dead letters")
    if tally.duplicates or tally.too_old:
        lines.append(
            f"Without effect: {tally.duplicates:,} duplicates, {tally.too_old:,} more than 7 days older than the saved "
            "clock (--fresh loads older history)"
        )
    if tally.doubted:
        lines.append(
            f"Not believed: {tally.doubted:,} times that an event was received more than a day after those around it; "
            "it counts as received with those"
        )
    if tally.namesakes:
        lines.append(_namesakes(tally.namesakes))
    if tally.stopped:
        lines.append(_stopped(tally.stopped))
    if run.out is not None:
        lines.append(f"Written to {run.out}: {_list(tally.written) or 'nothing'}")
    lines.append("Kept nowhere (--store none)" if run.store is None else f"Kept in {run.store}")
    return "\n".join(lines)


def _verdicts(tally: Tally) -> str:
    by_class: dict[str, dict[str, int]] = tally.answer()["verdicts"]
    total = sum(tally.verdicts.values())
    if not total and not tally.open_verdicts:
        return _nothing(tally)
    text = f"Failures: {total:,}" + ("" if not tally.open_verdicts else f", and {tally.open_verdicts:,} undecided")
    for cause_class, bases in by_class.items():
        text += f"\n  {cause_class:<9} {sum(bases.values()):>7,}  ({_list(bases)})"
    changes = {"amended": tally.amended, "withdrawn": tally.withdrawn}
    return text + _list({name: count for name, count in changes.items() if count}, before="\n  revisions: ")


def _namesakes(clusters_of: Mapping[str, Sequence[str]]) -> str:
    """Warn of names that nodes of several clusters have: each cluster's evidence was kept from the others' jobs."""
    shown = [printable(f"{node} in {', '.join(clusters)}", limit=200) for node, clusters in sorted(clusters_of.items())]
    more = "" if len(shown) <= SHOWN else f", and {len(shown) - SHOWN:,} more"
    return (
        f"Warning: {len(shown):,} node name{'s' if len(shown) != 1 else ''} came under more than one cluster "
        f"({'; '.join(shown[:SHOWN])}{more}). What was reported for one cluster says nothing of another's jobs: if it "
        "is one cluster, import again with its one name (--cluster), else with --prefix"
    )


def _stopped(last_ms: Mapping[str, int]) -> str:
    """Warn of nodes that are counted as out of service only since nobody reports on them any more."""
    shown = [
        printable(f"{node} since {moment_of(at_ms):%Y-%m-%d %H:%M} UTC", limit=200)
        for node, at_ms in sorted(last_ms.items(), key=lambda one: (one[1], one[0]))
    ]
    more = "" if len(shown) <= SHOWN else f", and {len(shown) - SHOWN:,} more"
    return (
        f"Warning: {len(shown):,} node{'s' if len(shown) != 1 else ''} stopped reporting before the recordings end "
        f"({', '.join(shown[:SHOWN])}{more}). Time without reports counts as not available and has no failure behind "
        "it: see to their agents, or tell that they were removed (an event of type faultlens.node.action.v1)"
    )


def _list(counts: Mapping[str, int], *, before: str = "") -> str:
    shown = ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()))
    return before + shown if shown else ""


def _nothing(tally: Tally) -> str:
    """Say why there is no verdict: nothing was an event, nothing was new, or nothing failed."""
    if tally.duplicates + tally.too_old >= max(1, tally.events):
        return "Nothing new: all of it was known already; see what the store holds with `faultlens report`"
    if not tally.events:
        return "No line was an event: is this a recording of events?" if tally.dead_letters else "The input is empty"
    known = tally.duplicates + tally.too_old
    return f"No job failed in what was new ({known:,} of it were known already)" if known else "No job failed"
