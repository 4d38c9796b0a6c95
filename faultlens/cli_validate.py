"""`faultlens validate-node`: whether this node may take work."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from faultlens.cli_agent import CONFIGURATION, ConfigOption
from faultlens.cli_options import Brokers, Out
from faultlens.cli_outlet import outlet
from faultlens.clock import wall_ms
from faultlens.events import Check
from faultlens.settings import load_settings
from producers.agent import validation
from producers.agent.active.table import MODULES as TESTS
from producers.agent.active.table import tests_of
from producers.agent.configuration import Configuration, Validation, load_configuration
from producers.agent.probe import Probe
from producers.agent.probes import nvidia
from producers.agent.probes.sysfs import boot_id_of_this_host
from producers.agent.probes.table import MODULES, probes_of
from producers.agent.running import Runner
from producers.agent.state import load_memory
from slo.wording import printable


def validate_node(
    *,
    config: ConfigOption = CONFIGURATION,
    recorded: Annotated[
        bool, typer.Option("--recorded", help="Test nothing: say whether it has passed since it was started.")
    ] = False,
    if_due: Annotated[
        bool, typer.Option("--if-due", help="Test only when its GPUs are idle and the last test is old enough.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable.")] = False,
    out: Out = None,
    brokers: Brokers = None,
) -> None:
    """Make all checks of the node's role and its active tests. Ends with 0 where it may take work, else with 1.

    What hangs, breaks or is missing is no pass. A wrong result of a GPU is told as a fault where there is somewhere to
    tell it. The agent reads what was found, and reports the node as not validated until then.
    """
    configuration = load_configuration(config)
    boot_id, machine = boot_id_of_this_host(), validation.machine_of(configuration)
    path = validation.record_path(configuration)
    wanted = configuration.validation or Validation()
    if recorded:
        count = load_memory(configuration.state / "agent.json").good_reports
        tested = validation.load_tested(path)
        standing = validation.standing(wanted, tested, boot_id=boot_id, machine=machine, good_reports=count)
        _say([standing], as_json=as_json)
        raise typer.Exit(0 if standing.status == "pass" else 1)
    runner = Runner([*MODULES, *TESTS])
    if if_due and (why := _not_due(configuration, runner, boot_id, machine)) is not None:
        typer.echo(printable(why))
        return
    checks = list(_found(configuration, runner))
    found = validation.judged(checks, boot_id=boot_id, machine=machine, at_ms=wall_ms())
    validation.save_tested(path, found)
    _tell(configuration, checks, boot_id, out, brokers)
    _say(checks, as_json=as_json)
    raise typer.Exit(0 if found.passed else 1)


def _found(configuration: Configuration, runner: Runner) -> Iterator[Check]:
    """Yield the checks, which are made side by side, and the tests one after the other."""
    yield from runner.run(probes_of(configuration)).checks
    for test in tests_of(configuration):
        yield from runner.run([test]).checks


def _not_due(configuration: Configuration, runner: Runner, boot_id: str, machine: str) -> str | None:
    tested = validation.load_tested(validation.record_path(configuration))
    every_s = (configuration.validation or Validation()).retest_every_s
    if not validation.is_due(tested, wall_ms(), every_s, boot_id=boot_id, machine=machine):
        return "it was tested lately"
    if configuration.role != "gpu":
        return None
    (idle,) = runner.run([Probe("gpu_idle", {"gpu_idle": "gpu"}, nvidia.look_at_idle)]).checks
    return None if idle.status == "pass" else f"its GPUs are not known to be idle: {idle.message}"


def _tell(
    configuration: Configuration, checks: list[Check], boot_id: str, out: Path | None, brokers: str | None
) -> None:
    faults = validation.faults(configuration, checks, boot_id=boot_id, at_ms=wall_ms())
    if faults and (out is not None or brokers or load_settings().brokers):
        with outlet(out, brokers, configuration.state / "spool-validation", lasting=False) as events:
            for fault in faults:
                events.put(fault)


def _say(checks: list[Check], *, as_json: bool) -> None:
    if as_json:
        told = [{"name": c.name, "status": c.status, "code": c.code, "message": c.message} for c in checks]
        typer.echo(json.dumps({"passed": all(c.status in ("pass", "warn", "off") for c in checks), "checks": told}))
        return
    for check in checks:
        typer.echo(printable(f"{check.status:8}{check.name:18}{check.message or check.code or ''}", limit=200))
