"""`faultlens agent` and `npd-check`: watch over this node."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from faultlens.cli_options import Brokers, Out
from faultlens.cli_outlet import outlet
from faultlens.clock import wall_ms
from faultlens.errors import FaultlensError, UsageError
from faultlens.stopping import told_to_stop
from faultlens.version import program_version
from producers.agent.configuration import Configuration, load_configuration
from producers.agent.loop import Agent
from producers.agent.probes.table import MODULES, off_checks, probes_of
from producers.agent.problem_detector import Answer, plugin_answer, plugin_rules, plugin_trouble
from producers.agent.reporting import told
from producers.agent.running import Runner
from slo.wording import printable

CONFIGURATION: Final = Path("/etc/faultlens/agent.yaml")

ConfigOption = Annotated[Path, typer.Option("--config", metavar="FILE", help="What this node is and has.")]


def agent(
    *,
    config: ConfigOption = CONFIGURATION,
    once: Annotated[bool, typer.Option("--once", help="Look once, say what was found, and end.")] = False,
    out: Out = None,
    brokers: Brokers = None,
) -> None:
    """Report this node's health at every interval, and the faults that the kernel tells of at once.

    Whatever hangs, breaks or is missing is reported as such, and never as healthy. While Kafka is away events wait on
    disk.
    """
    configuration = load_configuration(config)
    with outlet(out, brokers, configuration.state / "spool", must_arrive=once) as events:
        watching = Agent(configuration, events, version=program_version(), now_ms=wall_ms)
        if once:
            typer.echo(printable(told(watching.once()), limit=2_000), err=True)
        else:
            watching.run(told_to_stop())


def npd_check(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="The check to make, such as ecc.")] = None,
    *,
    config: ConfigOption = CONFIGURATION,
    rules: Annotated[
        bool, typer.Option("--rules", help="Print node-problem-detector's configuration for all checks instead.")
    ] = False,
) -> None:
    """Make one check as a plugin of node-problem-detector: ends with 0 where all is well, else with 1, and never hangs.

    Whatever else a plugin ends with counts as healthy there; so whatever goes wrong here is a problem with its reason.
    """
    if rules:
        typer.echo(plugin_rules(load_configuration(config), config), nl=False)
        return
    if name is None:
        raise UsageError("name the check to make, such as ecc; or give --rules")
    try:
        answer = _answer(name, load_configuration(config))
    except FaultlensError as error:
        answer = plugin_trouble(str(error))
    typer.echo(printable(answer.message, limit=80))
    raise typer.Exit(0 if answer.healthy else 1)


def _answer(name: str, configuration: Configuration) -> Answer:
    """Return what one check comes to. UsageError: this node has no such check, and does not say that it needs none."""
    probes = {probe.name: probe for probe in probes_of(configuration)}
    off = [check for check in off_checks(configuration) if check.name == name]
    if name not in probes and not off:
        raise UsageError(f"no check {name} on this node; there are {', '.join(sorted(probes))}")
    return plugin_answer(off or Runner(MODULES).run([probes[name]]).checks)
