"""`faultlens sink --audit`: that the store has everything, and nothing twice."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

import typer

from faultlens.clock import wall_ms
from faultlens.kafka import Connection
from faultlens.store import open_store
from sinks.audit import Counts, PartitionAudit, by_topic
from sinks.auditing import Deep, audit, audit_deeply
from sinks.intake import SUNK, Clock
from slo.wording import printable

EXIT_BAD: Final = 1


def run_audit(connection: Connection, dsn: str, group: str, *, deeply: Clock | None, as_json: bool) -> None:
    """Compare the store with the log and say what is missing or double; ends with 1 if anything is.

    `deeply` reads the whole log again, by this clock, and looks for the rows of every record.
    """
    from sinks.kafka_reading import Reader  # noqa: PLC0415 - librdkafka is only loaded to be used

    with open_store(dsn) as store, Reader(connection, group) as reader:
        audits = audit(store, reader.extents(SUNK), wall_ms())
        deep = None if deeply is None else audit_deeply(store, reader.read, audits, deeply)
    typer.echo(json.dumps(_as_json(audits, deep), indent=2) if as_json else "\n".join(_lines(audits, deep)))
    if any(partition.missing for partition in audits) or (deep is not None and not deep.is_good):
        raise typer.Exit(EXIT_BAD)


def _as_json(audits: Sequence[PartitionAudit], deep: Deep | None) -> dict[str, Any]:
    partitions = [
        {
            "topic": audited.place[0],
            "partition": audited.place[1],
            "taken": audited.taken,
            **audited.counts._asdict(),
            "again": audited.again,
            "waiting": audited.waiting,
            "missing": audited.missing,
        }
        for audited in audits
    ]
    return {"partitions": partitions, "deep": None if deep is None else _deep_as_json(deep)}


def _deep_as_json(deep: Deep) -> dict[str, Any]:
    return {
        "is_good": deep.is_good,
        "records": deep.records,
        "rows": deep.rows,
        "miscounted": [run._asdict() | {"found": found} for run, found in deep.miscounted],
        "missing": [row._asdict() for row in deep.missing],
        "doubled": deep.doubled,
    }


def _lines(audits: Sequence[PartitionAudit], deep: Deep | None) -> Iterator[str]:
    yield f"{'topic':<22}{'records':>12}{'ticks':>10}{'dead':>8}{'rows':>12}{'again':>8}{'waiting':>9}"
    for topic, partitions in by_topic(audits).items():
        counts = Counts(*map(sum, zip(*(partition.counts for partition in partitions), strict=True)))
        again, waiting = sum(p.again for p in partitions), sum(p.waiting for p in partitions)
        yield (
            f"{topic:<22}{counts.records:>12,}{counts.ticks:>10,}{counts.dead:>8,}{counts.rows:>12,}"
            f"{again:>8,}{waiting:>9,}"
        )
    missing = [(audited.place, hole) for audited in audits for hole in audited.missing]
    for (topic, partition), (first, behind) in missing:
        yield f"MISSING  {topic} partition {partition}: offsets {first} to {behind - 1} were never taken"
    if deep is not None:
        yield from _deep_lines(deep)
    if not missing and (deep is None or deep.is_good):
        yield "Nothing is missing" + ("." if deep is None else ", and nothing is there twice.")


def _deep_lines(deep: Deep) -> Iterator[str]:
    yield f"{deep.records:,} records were read again, and {deep.rows:,} rows looked for."
    for run, found in deep.miscounted:
        yield (
            f"WRONG    {run.topic} partition {run.partition}: offsets {run.start} to {run.stop - 1} hold {found} "
            f"records, {run.records} were counted"
        )
    for row in deep.missing:
        yield printable(
            f"MISSING  {row.topic} partition {row.partition} offset {row.offset}: no row in {row.table}", limit=500
        )
    for table, count in deep.doubled.items():
        yield f"TWICE    {table} shows {count} rows more than it has keys"
