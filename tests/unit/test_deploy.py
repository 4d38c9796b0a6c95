"""The compose files start what is there, with limits, and open nothing to the network."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from faultlens.cli import VERBS, app

ROOT = Path(__file__).parents[2]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))
DEMO = yaml.safe_load((ROOT / "deploy" / "demo.yml").read_text("utf-8"))
SERVICES: dict[str, Any] = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if service["image"] == "faultlens"}


def commands() -> list[tuple[str, list[str]]]:
    """Return the command lines of the program that the files start."""
    listed = [(f"{name}", service["command"]) for name, service in OURS.items()]
    listed += [(f"demo-{n}", s["command"]) for n, s in DEMO["services"].items() if "entrypoint" not in s]
    shell = DEMO["services"]["fleet"]["command"][0]
    listed += [(f"fleet-{part.split()[1]}", part.split()[1:]) for part in shell.split(" | ")]
    return listed


@pytest.mark.parametrize(("name", "command"), commands(), ids=[name for name, _ in commands()])
def test_every_command_is_one_that_the_program_takes(name: str, command: list[str]) -> None:
    """An option that is not there ends with 2 before anything is done; `--help` at the end does nothing."""
    assert command[0] in VERBS
    result = CliRunner().invoke(app, [*command, "--help"])
    assert result.exit_code == 0, result.output
    shown = re.sub(r"\s", "", result.output)
    options = [word for word in command if word.startswith("--")]
    assert [option for option in options if option not in shown] == []


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_has_limits_and_keeps_to_loopback(name: str) -> None:
    service = SERVICES[name]
    assert {"mem_limit", "cpus", "pids_limit", "security_opt"} <= service.keys()
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
    assert "healthcheck" in service
    assert service["image"] == "faultlens" or re.search(r":v?\d+\.\d+", service["image"]), "pin it"


@pytest.mark.parametrize("name", OURS)
def test_what_is_ours_can_write_nothing_and_run_as_nobody(name: str) -> None:
    service = OURS[name]
    assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
    assert re.search(r"^USER 10001$", (ROOT / "Dockerfile").read_text("utf-8"), re.MULTILINE)


def test_there_is_no_default_password() -> None:
    text = (ROOT / "docker-compose.yml").read_text("utf-8")
    given = re.findall(r"PASSWORD: (.*)", text)
    assert given
    assert all(re.fullmatch(r"\$\{[A-Z_]+:\?[^}]+\}", value) for value in given)
    assert re.findall(r"=(.*)", (ROOT / "deploy" / "example.env").read_text("utf-8")) == ["", ""]


def test_only_who_needs_the_store_has_its_password() -> None:
    knowing = {name for name, service in OURS.items() if "FAULTLENS_STORE_PASSWORD" in service["environment"]}
    assert knowing == {"migrate", "sink"}


def test_every_worker_and_the_sink_are_watched() -> None:
    scraped = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text("utf-8"))
    (job,) = scraped["scrape_configs"]
    watched = {target.partition(":")[0] for target in job["static_configs"][0]["targets"]}
    assert watched == {name for name, service in OURS.items() if "--metrics" in service["command"]}


def test_alerts_speak_of_metrics_that_there_are_and_are_explained() -> None:
    files = [ROOT / "deploy" / "prometheus" / name for name in ("alerts.yml", "objectives.yml")]
    groups = chain.from_iterable(yaml.safe_load(file.read_text("utf-8"))["groups"] for file in files)
    rules = list(chain.from_iterable(group["rules"] for group in groups))
    page = (ROOT / "docs" / "metrics.md").read_text("utf-8")
    operations = (ROOT / "docs" / "operations.md").read_text("utf-8")
    names = {name for rule in rules for name in re.findall(r"faultlens_\w+", rule["expr"])}
    bare = {re.sub(r"_(bucket|count|sum)$", "", name) for name in names}
    assert {name for name in bare if f"`{name}`" not in page} == set()
    assert {rule["alert"] for rule in rules if f"`{rule['alert']}`" not in operations} == set()


UNITS = sorted((ROOT / "examples").glob("*/*.service"))


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_a_unit_starts_a_command_that_there_is_with_options_that_it_takes(path: Path) -> None:
    [line] = [line for line in path.read_text("utf-8").splitlines() if line.startswith("ExecStart=")]
    command = line.split()[1:]
    assert command[0] in VERBS
    result = CliRunner().invoke(app, [*command, "--help"])
    assert result.exit_code == 0, result.output
    shown = re.sub(r"\s", "", result.output)
    assert [word for word in command if word.startswith("--") and word not in shown] == []
