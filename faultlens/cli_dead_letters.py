"""`faultlens dead-letters`: what could not be processed, and how it gets another chance."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final

import typer

from faultlens.cli_options import Brokers, JsonOption, StoreOption
from faultlens.clock import iso, ms_of, parse_moment
from faultlens.errors import UsageError
from faultlens.kafka import load_connection
from faultlens.settings import load_settings
from faultlens.store import open_store
from sinks.letters import OBSTACLES, Chosen, Letter, chosen, decoded
from slo.wording import printable

EXIT_BAD: Final = 1
MAX_SHOWN: Final = 100_000
_ERROR_WIDTH: Final = 100

app = typer.Typer(no_args_is_help=True, help="List, show and retry what could not be processed.")

BrokersOption = Annotated[
    str | None,
    typer.Option("--brokers", metavar="HOST:PORT,…", help="Read them from Kafka instead of the store."),
]
ReasonOption = Annotated[str | None, typer.Option(help="Only those of this reason, such as not_json.")]
TopicOption = Annotated[str | None, typer.Option(help="Only those of records of this topic.")]
SinceOption = Annotated[str | None, typer.Option(metavar="TIME", help="Only those from this time on.")]
UntilOption = Annotated[str | None, typer.Option(metavar="TIME", help="Only those before this time.")]


@app.command("list")
def list_(  # noqa: PLR0913 - one parameter for each option of the command
    *,
    reason: ReasonOption = None,
    topic: TopicOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    limit: Annotated[int, typer.Option(min=1, help="Show so many, the newest first.")] = 50,
    brokers: BrokersOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List dead letters, the newest first, and count them by topic and reason."""
    found = _found(_which((), reason, topic, since, until), brokers, store)
    if as_json:
        typer.echo(json.dumps([_as_json(letter) for letter in found[:limit]], indent=2))
    else:
        typer.echo("\n".join(_listed(found, limit)))


@app.command()
def show(
    id_: Annotated[str, typer.Argument(metavar="ID", help="As `list` shows it.")],
    *,
    brokers: BrokersOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one whole: where its record was, what is wrong with it, and its bytes, escaped."""
    found = _found(Chosen(frozenset({id_})), brokers, store)
    if not found:
        typer.echo(f"there is no dead letter {printable(id_, limit=100)}", err=True)
        raise typer.Exit(EXIT_BAD)
    typer.echo(json.dumps(_as_json(found[0], whole=True), indent=2) if as_json else "\n".join(_shown(found[0])))


@app.command()
def retry(  # noqa: PLR0913 - one parameter for each option of the command
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID", help="As `list` shows them.")] = None,
    *,
    reason: ReasonOption = None,
    topic: TopicOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    everything: Annotated[bool, typer.Option("--all", help="All there are.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Those too that were sent again and failed again.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without this it is only said what would be done.")] = False,
    brokers: Brokers = None,
    as_json: JsonOption = False,
) -> None:
    """Send the original bytes of dead records to their topics again, with their keys and headers.

    What was wrong must be mended first. A record that fails again becomes a dead letter again, which tells how often it
    was tried; such a one is left out unless --again is given.
    """
    from sinks.kafka_reading import Reader  # noqa: PLC0415 - librdkafka is only loaded to be used
    from sinks.letters_kafka import GROUP, Resender, letters_on, sendable  # noqa: PLC0415

    which = _which(ids or (), reason, topic, since, until)
    if which.is_everything and not everything:
        raise UsageError("say which: name ids, give --reason, --topic, --since or --until, or --all")
    connection = load_connection(brokers)
    with Reader(connection, GROUP) as reader:
        ready, left_out = sendable(chosen(letters_on(reader), which), reader, again=again)
    sent = Resender(connection).send(ready) if yes else 0
    if as_json:
        typer.echo(json.dumps({"ready": len(ready), "sent": sent, "left_out": dict(left_out)}))
        return
    typer.echo(f"{sent} records were sent again." if yes else f"{len(ready)} records would be sent again: add --yes.")
    for why, count in left_out.items():
        typer.echo(f"{count} {OBSTACLES[why]}.")


def _which(ids: Sequence[str], reason: str | None, topic: str | None, since: str | None, until: str | None) -> Chosen:
    return Chosen(frozenset(ids), reason, topic, _moment("--since", since), _moment("--until", until))


def _moment(option: str, text: str | None) -> int | None:
    try:
        return None if text is None else parse_moment(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None


def _found(which: Chosen, brokers: str | None, store: str | None) -> list[Letter]:
    """Return the letters that are meant, from Kafka where it is named, else from the store."""
    if brokers is None:
        return chosen(_stored(which, store or load_settings().store), which)
    if store is not None:
        raise UsageError("--brokers and --store: name one of them")
    from sinks.kafka_reading import Reader  # noqa: PLC0415 - librdkafka is only loaded to be used
    from sinks.letters_kafka import GROUP, letters_on  # noqa: PLC0415

    with Reader(load_connection(brokers), GROUP) as reader:
        return chosen(letters_on(reader), which)


def _stored(which: Chosen, dsn: str) -> list[Letter]:
    given: dict[str, object] = {
        "reason": which.reason,
        "topic": which.topic,
        "since": which.since_ms,
        "until": which.until_ms,
        "ids": sorted(which.ids) or None,
    }
    conditions = {
        "reason": "reason = {reason:String}",
        "topic": "topic = {topic:String}",
        "since": "time >= fromUnixTimestamp64Milli({since:Int64}, 'UTC')",
        "until": "time < fromUnixTimestamp64Milli({until:Int64}, 'UTC')",
        "ids": "event_id IN {ids:Array(String)}",
    }
    params = {name: value for name, value in given.items() if value is not None}
    where = " AND ".join(["1", *(conditions[name] for name in params)])
    with open_store(dsn) as opened:
        rows = opened.query(
            f"SELECT * FROM dead_letters FINAL WHERE {where} ORDER BY time DESC LIMIT {MAX_SHOWN}",  # noqa: S608
            params,
        )
    return [_letter(row) for row in rows]


def _letter(row: dict[str, Any]) -> Letter:
    return Letter(
        row["event_id"],
        ms_of(row["time"]),
        row["topic"],
        row["partition"],
        row["offset"],
        row["reason"],
        row["error"],
        decoded(row["value"]),
        row["headers"],
        row["sha256"],
    )


# --- how they are shown --------------------------------------------------------------------------------


def _as_json(letter: Letter, *, whole: bool = False) -> dict[str, Any]:
    said: dict[str, Any] = {
        "id": letter.id,
        "time": iso(letter.time_ms),
        "topic": letter.topic,
        "partition": letter.partition,
        "offset": letter.offset,
        "reason": letter.reason,
        "error": letter.error,
        "retries": letter.retries,
    }
    if whole:
        said |= {
            "headers": dict(letter.headers),
            "sha256": letter.sha256 or None,
            "value": letter.value.decode("utf-8", "backslashreplace"),
        }
    return said


def _listed(letters: Sequence[Letter], limit: int) -> Iterator[str]:
    counts: dict[tuple[str, str], int] = {}
    for letter in letters:
        counts[(letter.topic, letter.reason)] = counts.get((letter.topic, letter.reason), 0) + 1
    for letter in letters[:limit]:
        again = f" (tried {letter.retries + 1} times)" if letter.retries else ""
        line = (
            f"{letter.id}  {iso(letter.time_ms)}  {letter.reason:<16} {letter.topic}/{letter.partition}@{letter.offset}"
            f"{again}  {letter.error.splitlines()[-1] if letter.error.strip() else ''}"
        )
        yield printable(line, limit=120 + _ERROR_WIDTH)
    if len(letters) > limit:
        yield f"… and {len(letters) - limit:,} more (--limit)"
    for (topic, reason), count in sorted(counts.items()):
        yield printable(f"{count:>8,}  {topic}  {reason}", limit=200)
    if not letters:
        yield "no dead letters"


def _shown(letter: Letter) -> Iterator[str]:
    for name, value in _as_json(letter).items():
        if name != "error":
            yield printable(f"{name:<10} {value}", limit=500)
    for name, header in letter.headers.items():
        yield printable(f"header     {name}: {header}", limit=1_000)
    yield "error"
    yield from (printable(f"  {line}", limit=2_000) for line in letter.error.splitlines())
    yield f"value, {len(letter.value):,} bytes" + (
        f", the beginning of one with {letter.sha256}" if letter.is_cut else ""
    )
    yield from (
        printable(f"  {line}", limit=len(line) * 6 + 10)
        for line in letter.value.decode("utf-8", "backslashreplace").split("\n")
    )
