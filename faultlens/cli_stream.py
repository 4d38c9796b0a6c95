"""`faultlens stream`: the processors live on Kafka, one role a process."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Final, Literal

import typer

from faultlens.errors import UsageError
from faultlens.kafka import load_connection
from faultlens.kafka_topics import demand
from faultlens.local_roles import LIVE, PLAYED, load_roles
from faultlens.supervisor import Supervisor
from streams.app import RoleWorker, Setup

ROLES: Final = ("node", "job", "context", "objectives")
ALL: Final = "all"
# Wrong use and wrong settings do not get better by starting anew.
_FINAL: Final = frozenset({1, 2})


def stream(  # noqa: PLR0913 - one parameter for each option of the command
    *,
    role: Annotated[
        Literal["node", "job", "context", "objectives", "all"],
        typer.Option(help="What this process does; all: one process for each, started anew when one ends."),
    ],
    brokers: Annotated[
        str | None, typer.Option(metavar="HOST:PORT,…", help="Where Kafka is (FAULTLENS_BROKERS).")
    ] = None,
    group: Annotated[str, typer.Option(metavar="NAME", help="Begins the names of consumer groups.")] = "faultlens",
    clock: Annotated[
        Literal["appended", "recorded"],
        typer.Option(help="When a record arrived: when it was appended, or when a recording that is played says."),
    ] = "appended",
    ticks: Annotated[bool, typer.Option("--ticks/--no-ticks", help="Append the time to the log each second.")] = True,
    session_s: Annotated[
        float, typer.Option(min=6, max=300, help="A worker not heard of for these seconds has lost its share.")
    ] = 30.0,
    catalogue: Annotated[
        list[Path] | None, typer.Option(metavar="DIR", help="A site's own fault catalogue; may be repeated.")
    ] = None,
    signatures: Annotated[
        list[Path] | None, typer.Option(metavar="DIR", help="A site's own log signatures; may be repeated.")
    ] = None,
    objectives: Annotated[Path | None, typer.Option(metavar="FILE", help="A site's own objectives.")] = None,
) -> None:
    """Run processors on Kafka. Any number of any role may run, on any number of machines: they share the partitions.

    A worker that cannot go on ends with 70; whoever runs it (systemd, Kubernetes, --role all) starts another.
    """
    if ticks and clock == "recorded":
        raise UsageError("--clock recorded goes with --no-ticks: a recording that is played brings its own")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr)
    for name in ("faust", "mode", "aiokafka"):
        logging.getLogger(name).setLevel(logging.WARNING)
    if role == ALL:
        raise typer.Exit(_supervised(sys.argv[1:]))
    recorded = clock == "recorded"
    roles = load_roles(catalogue or (), signatures or (), objectives, PLAYED if recorded else LIVE)
    connection = load_connection(brokers)
    partitions = demand(connection)
    chosen = next(each for each in roles if each.name == role)
    with TemporaryDirectory(prefix="faultlens-") as data:
        setup = Setup(connection, partitions, group, recorded, ticks, session_s, Path(data))
        RoleWorker(chosen, setup).run()


def _supervised(arguments: list[str]) -> int:
    """Run one process for each role with the same options; return the exit code."""
    commands = {role: [sys.executable, "-m", "faultlens.cli", *_with_role(arguments, role)] for role in ROLES}
    log = logging.getLogger("faultlens.stream")
    return Supervisor(commands, log.info, final=_FINAL).run()


def _with_role(arguments: list[str], role: str) -> list[str]:
    """Return the command line with `all` replaced by one role."""
    replaced = [role if before == "--role" else word for before, word in zip(["", *arguments], arguments, strict=False)]
    return [f"--role={role}" if word == f"--role={ALL}" else word for word in replaced]
