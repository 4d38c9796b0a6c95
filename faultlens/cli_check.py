"""`faultlens check`, `migrate` and `schema`: is the installation right, is the store up to date, what is an event."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from faultlens.asyncapi import asyncapi, event_schema, text_of
from faultlens.catalogue import load_catalogue
from faultlens.cli_options import JsonOption, ObjectivesOption, PolicyOption, StoreOption, promised
from faultlens.errors import ConfigurationError, FaultlensError, UsageError, WorldError
from faultlens.kafka import connection_of
from faultlens.local_policy import decided_by
from faultlens.local_report import SHOWN
from faultlens.settings import PREFIX, load_settings, unknown_variables
from faultlens.signatures import load_signatures
from faultlens.store import Embedded, open_store, parse_dsn
from sinks.migrate import migrate as bring_up_to_date
from sinks.migrate import outstanding
from slo.queries import ask
from slo.wording import printable

EXIT_BAD: Final = 1
_CONNECT_SECONDS: Final = 3.0
_LINE: Final = 2_000


@dataclass(frozen=True)
class Finding:
    """What was found of one part of the installation; a `problem` makes the check fail, a `warning` does not."""

    part: str
    level: Literal["ok", "warning", "problem"]
    message: str


@dataclass(frozen=True)
class Sources:
    """What a site adds to the shipped data, and where its store is."""

    catalogue: list[Path]
    signatures: list[Path]
    objectives: Path | None
    policy: Path | None
    store: str | None


def check(
    *,
    store: StoreOption = None,
    catalogue: Annotated[
        list[Path] | None, typer.Option(metavar="DIR", help="A site's own fault catalogue; may be repeated.")
    ] = None,
    signatures: Annotated[
        list[Path] | None, typer.Option(metavar="DIR", help="A site's own log signatures; may be repeated.")
    ] = None,
    objectives: ObjectivesOption = None,
    policy: PolicyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check settings, catalogue, signatures, objectives, policy and the connections that are configured.

    Ends with 1 if something is wrong, and says what, where, and what to do.
    """
    findings = list(_findings(Sources(catalogue or [], signatures or [], objectives, policy, store)))
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        typer.echo("\n".join(line for finding in findings for line in _lines(finding)))
    if any(finding.level == "problem" for finding in findings):
        raise typer.Exit(EXIT_BAD)


def _lines(finding: Finding) -> Iterator[str]:
    first, *more = finding.message.splitlines() or [""]
    yield f"{finding.level:<8} {finding.part:<11} {printable(first, limit=_LINE)}"
    for line in more:
        yield f"{'':20} {printable(line, limit=_LINE)}"


def _findings(sources: Sources) -> Iterator[Finding]:
    yield _part("settings", _settings)
    for name in unknown_variables(list(os.environ)):
        yield Finding("settings", "warning", f"{name} is not a setting of faultlens: is it misspelt?")
    yield _part("catalogue", lambda: f"version {load_catalogue(sources.catalogue).version}")
    yield _part("signatures", lambda: f"version {load_signatures(sources.signatures).version}")
    yield _part("objectives", lambda: _objectives(sources.objectives))
    yield _part("policy", lambda: f"version {decided_by(sources.policy).version}")
    kept_in = sources.store or load_settings().store
    store = _part("store", lambda: _store(kept_in))
    yield store
    if store.level == "ok":
        yield from _shared_names(kept_in)
    brokers = [_part("brokers", partial(_broker, address)) for address in _brokers()]
    yield from brokers
    if brokers and all(broker.level == "ok" for broker in brokers):
        yield _part("topics", _topics)


def _objectives(path: Path | None) -> str:
    """Return the version, and the burn rates that would warn of nothing, ever."""
    promise = promised(path)
    return "\n".join([f"version {promise.version}", *map(str, promise.never_fire)])


def _part(part: str, say: Callable[[], str]) -> Finding:
    """Return what `say` says, or the error that it raises: of several wrong parts each is named."""
    try:
        return Finding(part, "ok", say())
    except FaultlensError as error:
        return Finding(part, "problem", str(error))


def _settings() -> str:
    settings = load_settings()
    settings.password()
    if settings.brokers:
        connection_of(settings)
    names = sorted(f"{PREFIX}{name.upper()}" for name in settings.model_fields_set)
    return ", ".join(names) or "none set, defaults hold"


def _store(dsn: str) -> str:
    place = parse_dsn(dsn)
    if isinstance(place, Embedded) and not place.path.exists():
        return f"{place} is not there yet: the first replay makes it"
    with open_store(dsn) as store:
        missing = [migration.name for migration in outstanding(store)]
    if missing:
        raise ConfigurationError(f"{place} lacks {', '.join(missing)}: run `faultlens migrate`")
    return f"{place} is up to date"


def _shared_names(dsn: str) -> Iterator[Finding]:
    """Yield a warning of names that are to be unique and came under several clusters."""
    place = parse_dsn(dsn)
    if isinstance(place, Embedded) and not place.path.exists():
        return
    with open_store(dsn) as store:
        found = ask(store, "shared_names", {"shown": SHOWN})
    for row in found:
        some = "; ".join(f"{name} in {', '.join(clusters)}" for name, clusters in row["some"])
        yield Finding(
            "names",
            "warning",
            f"{row['names']:,} {row['kind']} name(s) came under more than one cluster, such as {some}: names are to be "
            "unique. If it is one cluster, import again with its one name (--cluster), else with --prefix",
        )


def _brokers() -> list[str]:
    try:
        return [address.strip() for address in (load_settings().brokers or "").split(",") if address.strip()]
    except ConfigurationError:
        return []  # told of under settings


def _broker(address: str) -> str:
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise ConfigurationError(f"{PREFIX}BROKERS: {address!r} is not host:port")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise WorldError(f"{address} cannot be reached: {error}") from None
    return f"{address} answers"


def _topics() -> str:
    try:
        from faultlens.kafka_topics import demand  # noqa: PLC0415 - the Kafka client may be missing
    except ImportError:
        raise ConfigurationError("the Kafka client is not installed: pip install 'faultlens[stream]'") from None
    return f"all are as they must be, {demand(connection_of(load_settings()))} partitions"


def migrate(
    *,
    store: StoreOption = None,
    replicated: Annotated[
        bool, typer.Option("--replicated", help="A cluster's tables: replicated engines on all its servers.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Bring the store's tables up to date; without effect if they are."""
    dsn = store or load_settings().store
    with open_store(dsn) as target:
        if replicated and target.profile == "chdb":
            raise UsageError(f"{target} is an embedded store, which cannot be replicated")
        applied = bring_up_to_date(target, profile="replicated" if replicated else None)
    if as_json:
        typer.echo(json.dumps({"store": str(parse_dsn(dsn)), "applied": applied}))
    else:
        typer.echo("\n".join(f"applied {name}" for name in applied) or "up to date")


def schema(
    type_: Annotated[
        str | None, typer.Argument(metavar="TYPE", help="Such as faultlens.node.fault.v1; without it all.")
    ] = None,
    *,
    as_asyncapi: Annotated[
        bool, typer.Option("--asyncapi", help="The AsyncAPI 3 document of all topics and their events.")
    ] = False,
) -> None:
    """Print the JSON Schema of one type of event or of all, or the contract as AsyncAPI."""
    if as_asyncapi and type_ is not None:
        raise UsageError("--asyncapi describes all types: leave the type out")
    typer.echo(text_of(asyncapi() if as_asyncapi else event_schema(type_)), nl=False)
