"""`faultlens sink`: from Kafka into the store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Annotated, Final, Literal

import structlog
import typer

from faultlens.cli_audit import run_audit
from faultlens.cli_options import Brokers, StoreOption
from faultlens.clock import wall_ms
from faultlens.errors import ConfigurationError, UsageError
from faultlens.kafka import Connection, load_connection
from faultlens.logs import LogFormat, configure, forward_libraries
from faultlens.meters import SinkMeters
from faultlens.settings import load_settings
from faultlens.stopping import told_to_stop
from faultlens.store import Store, open_store
from sinks.hours import AddingUp
from sinks.intake import SUNK
from sinks.migrate import migrate, outstanding
from sinks.running import Plan, run
from sinks.sink import Limits
from sinks.writer import MAX_BYTES, MAX_ROWS

GROUP: Final = "faultlens-sink"


GroupOption = Annotated[str, typer.Option(help="The consumer group; sinks of one group share the work.")]
InstanceOption = Annotated[
    str | None, typer.Option(help="A name that stays over restarts: partitions stay with it for 15 seconds.")
]
ClockOption = Annotated[
    Literal["appended", "recorded"],
    typer.Option(help="When a record arrived: as the broker says, or as a recording that is played says itself."),
]
RowsOption = Annotated[int, typer.Option(min=1, help="Insert at so many rows …")]
MegabytesOption = Annotated[int, typer.Option(min=1, help="… or so much text …")]
AgeOption = Annotated[float, typer.Option("--age-s", min=0.0, help="… or when a record is so old.")]
UntilOption = Annotated[
    bool, typer.Option("--until-caught-up", help="End when everything that is there now is in the store.")
]
AuditOption = Annotated[
    bool, typer.Option("--audit", help="Do not write: say whether anything is missing from the store.")
]
DeepOption = Annotated[
    bool, typer.Option("--deep", help="With --audit: read the whole log again and look for every row.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="With --audit: machine-readable output.")]
MetricsOption = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Answer /metrics, /healthz and /readyz there, such as 127.0.0.1:9464."),
]
LogOption = Annotated[LogFormat, typer.Option("--log", help="How to write logs.")]


def sink(  # noqa: PLR0913 - one parameter for each option of the command
    *,
    brokers: Brokers = None,
    store: StoreOption = None,
    group: GroupOption = GROUP,
    instance: InstanceOption = None,
    clock: ClockOption = "appended",
    rows: RowsOption = MAX_ROWS,
    megabytes: MegabytesOption = MAX_BYTES // 2**20,
    age_s: AgeOption = 1.0,
    until_caught_up: UntilOption = False,
    audit: AuditOption = False,
    deep: DeepOption = False,
    as_json: JsonOption = False,
    metrics: MetricsOption = None,
    log_format: LogOption = "auto",
) -> None:
    """Write what producers said and what faultlens answered into the store, each record effectively once.

    Offsets are committed after the insert: while the store is away the sink waits, and nothing is lost. Several of them
    share the partitions. SIGTERM ends it when what it holds is in the store.
    """
    if (deep or as_json) and not audit:
        raise UsageError("--deep and --json belong to --audit")
    connection = load_connection(brokers)
    dsn = store or load_settings().store
    if audit:
        run_audit(connection, dsn, group, deeply=clock if deep else None, as_json=as_json)
        return
    configure(log_format)
    forward_libraries()
    limits = Limits(rows=rows, bytes=megabytes * 2**20, age_s=age_s)
    member = _Member(connection, dsn, group, instance)
    _run(member, Plan(limits, clock, until_caught_up=until_caught_up), metrics)


@dataclass(frozen=True)
class _Member:
    """Who reads what, and writes it where."""

    connection: Connection
    dsn: str
    group: str
    instance: str | None


def _run(member: _Member, plan: Plan, metrics: str | None) -> None:
    from sinks.kafka import KafkaLetters, KafkaLog  # noqa: PLC0415 - librdkafka is only loaded to be used

    log, meters, stopping = structlog.get_logger(), SinkMeters(), told_to_stop()
    with _shown(metrics, meters):
        reader = KafkaLog(member.connection, SUNK, member.group, instance=member.instance)
        letters = KafkaLetters(member.connection)
        log.info("the sink begins", brokers=member.connection.brokers, store=member.dsn, group=member.group)
        done = run(
            reader,
            letters,
            lambda: AddingUp(_opened(member.dsn), clock_s=monotonic),
            meters,
            plan=plan,
            stopping=stopping,
        )
    log.info("the sink ends", all_delivered=done)


@contextmanager
def _shown(address: str | None, meters: SinkMeters) -> Iterator[None]:
    """Show the meters over HTTP at the address; None: nowhere."""
    if address is None:
        yield
        return
    from faultlens.exposition import Exposition, health_of  # noqa: PLC0415
    from faultlens.metrics import SinkMetrics  # noqa: PLC0415

    health = health_of(meters.position, monotonic, not_ready="the store is not reachable")
    with closing(Exposition(address, [SinkMetrics(meters, wall_ms)], health)):
        yield


def _opened(dsn: str) -> Store:
    """Open the store. An embedded one is brought up to date; on a server that is for whoever may define tables."""
    opened = open_store(dsn)
    if opened.profile == "chdb":
        migrate(opened)
    elif missing := [migration.name for migration in outstanding(opened)]:
        opened.close()
        raise ConfigurationError(f"{opened} lacks {', '.join(missing)}: run `faultlens migrate`")
    return opened
