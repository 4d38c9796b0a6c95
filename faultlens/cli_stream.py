"""`faultlens stream`: the processors live on Kafka, one role a process."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Final, Literal

import structlog
import typer

from faultlens.cli import main
from faultlens.cli_options import Brokers, ObjectivesOption, PolicyOption
from faultlens.clock import monotonic_s, wall_ms
from faultlens.errors import UsageError
from faultlens.exposition import Exposition, health_of, parse_address
from faultlens.kafka import load_connection
from faultlens.kafka_topics import demand
from faultlens.local_roles import LIVE, PLAYED, load_roles
from faultlens.logs import LogFormat, configure, forward_libraries
from faultlens.meters import RoleMeters
from faultlens.metrics import RoleMetrics
from faultlens.supervisor import Supervisor
from streams.app import RoleWorker, Setup
from streams.runtime.records import Role

ROLES: Final = ("node", "job", "context", "objectives", "remediation")
ALL: Final = "all"
# Wrong use and wrong settings do not get better by starting anew.
_FINAL: Final = frozenset({1, 2})


def stream(  # noqa: PLR0913 - one parameter for each option of the command
    *,
    role: Annotated[
        Literal["node", "job", "context", "objectives", "remediation", "all"],
        typer.Option(help="What this process does; all: one process for each, started anew when one ends."),
    ],
    brokers: Brokers = None,
    group: Annotated[str, typer.Option(metavar="NAME", help="Begins the names of consumer groups.")] = "faultlens",
    clock: Annotated[
        Literal["appended", "recorded"],
        typer.Option(help="When a record arrived: when it was appended, or when a recording that is played says."),
    ] = "appended",
    ticks: Annotated[bool, typer.Option("--ticks/--no-ticks", help="Append the time to the log each second.")] = True,
    session_s: Annotated[
        float, typer.Option(min=6, max=300, help="A worker not heard of for these seconds has lost its share.")
    ] = 15.0,
    metrics: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Answer /metrics, /healthz and /readyz there, such as 127.0.0.1:9465."),
    ] = None,
    log_format: Annotated[LogFormat, typer.Option("--log", help="How to write logs.")] = "auto",
    catalogue: Annotated[
        list[Path] | None, typer.Option(metavar="DIR", help="A site's own fault catalogue; may be repeated.")
    ] = None,
    signatures: Annotated[
        list[Path] | None, typer.Option(metavar="DIR", help="A site's own log signatures; may be repeated.")
    ] = None,
    objectives: ObjectivesOption = None,
    policy: PolicyOption = None,
) -> None:
    """Run processors on Kafka. Any number of any role may run, on any number of machines: they share the partitions.

    A worker that cannot go on ends with 70; whoever runs it (systemd, Kubernetes, --role all) starts another.
    """
    if ticks and clock == "recorded":
        raise UsageError("--clock recorded goes with --no-ticks: a recording that is played brings its own")
    configure(log_format)
    forward_libraries()
    connection = load_connection(brokers)
    partitions = demand(connection)
    if role == ALL:
        raise typer.Exit(_supervised(sys.argv[1:]))
    recorded = clock == "recorded"
    cadence = PLAYED if recorded else LIVE
    [ours] = load_roles(catalogue or (), signatures or (), objectives, cadence, policy=policy, only=role)
    setup = Setup(connection, partitions, group, recorded, ticks, session_s)
    _run(ours, setup, metrics)


def _run(role: Role, setup: Setup, metrics: str | None) -> None:
    """Run the worker of one role until it is told to stop."""
    with TemporaryDirectory(prefix="faultlens-") as data:
        worker = RoleWorker(role, replace(setup, data=Path(data)))
        with _shown(metrics, worker.meters):
            worker.run()


@contextmanager
def _shown(address: str | None, meters: RoleMeters) -> Iterator[None]:
    """Show the meters over HTTP at the address; None: nowhere."""
    if address is None:
        yield
        return
    health = health_of(meters.position, monotonic_s, not_ready="its lanes are not loaded")
    with closing(Exposition(address, [RoleMetrics(meters, wall_ms)], health)):
        yield


def _supervised(arguments: list[str]) -> int:
    """Run one process for each role with the same options, metrics at ports one after the other; return the code."""
    programs = {role: partial(main, _for_role(arguments, role, number)) for number, role in enumerate(ROLES)}
    return Supervisor(programs, structlog.get_logger().info, final=_FINAL).run()


def _for_role(arguments: list[str], role: str, number: int) -> list[str]:
    """Return the command line with `all` replaced by one role, and the port of its metrics by the n-th after it."""
    words = [word for each in arguments for word in (each.split("=", 1) if each.startswith("--") else [each])]
    for before, at in zip(words, range(1, len(words)), strict=False):
        if before == "--role":
            words[at] = role
        elif before == "--metrics":
            host, port = parse_address(words[at])
            words[at] = f"{host}:{port + number}"
    return words
