"""The verdicts in force: read from a replay's output or from a store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from faultlens.clock import ms_of
from faultlens.codec import Decoder
from faultlens.errors import InvalidEventError, UsageError
from faultlens.events import JobAttributed, Status
from faultlens.store import Store
from slo.scoring import Key, Verdict

ATTRIBUTIONS_FILE: Final = "attributions.jsonl"
_SETTLED: Final = frozenset({"final", "amended"})


class Revision(Struct, frozen=True):
    """One revision of a verdict and the event time at which it was said."""

    number: int
    status: Status
    said_ms: int
    verdict: Verdict


def verdicts_of_directory(directory: Path) -> list[Verdict]:
    """Return the verdicts in force of a directory that `replay --out` wrote; UsageError if it holds none."""
    path = directory / ATTRIBUTIONS_FILE
    if not path.is_file():
        raise UsageError(f"{directory}: no {ATTRIBUTIONS_FILE}; give a directory that `faultlens replay --out` wrote")
    revisions: dict[Key, list[Revision]] = {}
    decoder = Decoder()
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                event = decoder.decode(line)
            except InvalidEventError as error:
                raise UsageError(f"{path}:{number}: {error}") from None
            if isinstance(event.data, JobAttributed):
                revision = _revision(event.data, event.time_ms)
                revisions.setdefault(revision.verdict.key, []).append(revision)
    return [verdict for said in revisions.values() if (verdict := in_force(said)) is not None]


def in_force(revisions: Iterable[Revision]) -> Verdict | None:
    """Return the verdict in force among the revisions on one failure.

    It is the highest final or amended one, unless a withdrawn one is higher; before any of those, the highest
    provisional one.
    """
    ordered = sorted(revisions, key=lambda revision: revision.number)
    settled = [revision for revision in ordered if revision.status in _SETTLED]
    withdrawn = max((revision.number for revision in ordered if revision.status == "withdrawn"), default=0)
    chosen = settled[-1] if settled and settled[-1].number > withdrawn else None
    if chosen is None:
        chosen = next((r for r in reversed(ordered) if r.status == "provisional" and r.number > withdrawn), None)
    return None if chosen is None else replace(chosen.verdict, first_said_ms=ordered[0].said_ms)


def verdicts_of_store(store: Store) -> list[Verdict]:
    """Return the verdicts in force of a store. WorldError when it cannot be read."""
    return [_of_row(row) for row in store.query(_IN_FORCE)]


_IN_FORCE: Final = """
SELECT
    latest.job_id AS job_id, latest.attempt AS attempt, latest.loss AS loss, latest.class AS class,
    latest.code AS code, latest.basis AS basis, latest.confidence AS confidence, latest.rule AS rule,
    latest.status AS status, latest.node AS node, latest.device_index AS device_index, first.said AS first_said
FROM attributions_latest AS latest
INNER JOIN (
    SELECT job_id, attempt, loss, min(emitted) AS said FROM attributions GROUP BY job_id, attempt, loss
) AS first ON latest.job_id = first.job_id AND latest.attempt = first.attempt AND latest.loss = first.loss
ORDER BY job_id, attempt, loss
"""


def _of_row(row: Mapping[str, Any]) -> Verdict:
    return Verdict(
        Key(row["job_id"], row["attempt"], row["loss"]),
        row["class"],
        row["code"],
        row["basis"],
        row["confidence"],
        row["rule"],
        row["status"] in _SETTLED,
        ms_of(row["first_said"]),
        row["node"] or None,
        row["device_index"],
    )


def _revision(data: JobAttributed, said_ms: int) -> Revision:
    device = data.culprit.device
    verdict = Verdict(
        Key(data.job_id, data.attempt, data.loss or 0),
        data.cause.cause_class,
        data.cause.code,
        data.basis,
        data.confidence,
        data.rule,
        data.status in _SETTLED,
        said_ms,
        data.culprit.node,
        None if device is None else device.index,
    )
    return Revision(data.revision, data.status, said_ms, verdict)
