"""The agent as a whole, on this machine: what it reports with and without GPUs, and how tools that misbehave show."""

from __future__ import annotations

import json
import os
from pathlib import Path
from threading import Event as Flag
from time import monotonic
from typing import Any

import pytest

from faultlens.cli import main
from faultlens.codec import Event
from faultlens.errors import ConfigurationError, WorldError
from faultlens.events import Check, Device, DeviceRef, NodeHealth
from producers.agent.configuration import Configuration, load_configuration
from producers.agent.loop import Agent
from producers.agent.probe import Looked
from producers.agent.probes.table import off_checks, probes_of
from producers.agent.problem_detector import plugin_answer, plugin_rules
from producers.agent.reporting import allocatable, report
from producers.agent.state import LOOP_MS, LOOP_STARTS, Memory, is_looping, load_memory, save_memory, started

NOW_MS = 1_800_000_000_000


class Kept:
    """Keeps what it is given, and stops the agent after so many reports."""

    def __init__(self, stop: Flag | None = None, after: int = 1) -> None:
        self.events: list[Event] = []
        self._stop, self._after = stop, after

    def put(self, event: Event) -> None:
        self.events.append(event)
        if self._stop is not None and len(self.reports) >= self._after:
            self._stop.set()

    def trouble(self) -> str | None:
        return None

    @property
    def reports(self) -> list[NodeHealth]:
        return [event.data for event in self.events if isinstance(event.data, NodeHealth)]


def configuration(tmp_path: Path, **more: Any) -> Configuration:
    fields = {
        "cluster": "c1",
        "node": "n1",
        "role": "cpu",
        "state": tmp_path / "state",
        "kernel_log": tmp_path / "kmsg",
    }
    return Configuration.model_validate(fields | more)


def look(settings: Configuration, version: str = "1") -> dict[str, Check]:
    event = Agent(settings, Kept(), version=version, now_ms=lambda: NOW_MS).once()
    assert isinstance(event.data, NodeHealth)
    return {check.name: check for check in event.data.checks}


# --- with and without GPUs -----------------------------------------------------------------------------------


def test_a_gpu_node_without_a_driver_says_of_every_gpu_check_that_it_is_missing(tmp_path: Path) -> None:
    if os.path.exists("/dev/nvidiactl"):  # noqa: PTH110 - the path is the driver's
        pytest.skip("this machine has an NVIDIA driver")
    checks = look(configuration(tmp_path, role="gpu", gpus=8))
    of_gpus = {"gpu_count", "driver_responds", "ecc", "nvlink", "pcie", "thermal", "power"}
    assert {checks[name].status for name in of_gpus} == {"missing"}


def test_a_node_without_gpus_says_so_of_each_and_passes_what_it_needs(tmp_path: Path) -> None:
    (tmp_path / "kmsg").touch()
    checks = look(configuration(tmp_path, disks=[str(tmp_path)]))
    assert checks["gpu_count"].status == "off"
    assert checks["gpu_count"].message == "a node of the role cpu has no GPUs"
    assert checks["kernel_log"].status == "pass"
    assert checks["agent"].status == "pass"
    assert {check.status for check in checks.values()} <= {"pass", "off", "warn"}


def test_it_reports_at_every_interval_until_it_is_stopped(tmp_path: Path) -> None:
    stop = Flag()
    kept = Kept(stop, after=3)
    settings = configuration(tmp_path, interval_s=1)
    began = monotonic()
    Agent(settings, kept, version="1", now_ms=lambda: NOW_MS + round((monotonic() - began) * 1_000)).run(stop)
    assert len(kept.reports) == 3
    assert 2.0 <= monotonic() - began < 20


# --- tools that misbehave ------------------------------------------------------------------------------------

HEALTHY = '{"body": {"PCIe": {"value": "On"}, "Overall Health": {"value": "Healthy"}}}'


@pytest.mark.parametrize(
    ("script", "status", "why"),
    [
        (f"echo '{HEALTHY}'", "pass", ""),
        ("while :; do :; done", "timeout", "no answer within 2 s"),
        ("kill -STOP $$", "timeout", "no answer within 2 s"),
        ("kill -SEGV $$", "error", "ValueError: health --fetch --json answered no JSON (exit status -11)"),
        ("echo garbage", "error", "ValueError: health --fetch --json answered no JSON (exit status 0): garbage"),
        (None, "missing", "is not installed"),
    ],
)
def test_a_tool_that_hangs_dies_babbles_or_vanishes_shows_as_that_and_hides_nothing_else(
    tmp_path: Path, script: str | None, status: str, why: str
) -> None:
    tool = tmp_path / "dcgmi"
    if script is not None:
        tool.write_text(f"#!/bin/sh\n{script}\n")
        tool.chmod(0o755)
    settings = configuration(tmp_path, dcgm={"program": str(tool), "timeout_s": 60}, deadline_s=2)
    checks = look(settings)
    assert checks["dcgm"].status == status
    assert why in (checks["dcgm"].message or "")
    assert checks["local_disk"].status in ("pass", "warn")
    assert "timeout" not in {check.status for name, check in checks.items() if name != "dcgm"}


def test_a_check_that_vanishes_with_an_upgrade_is_missing_until_it_is_off(tmp_path: Path) -> None:
    tool = {"program": "dcgmi-that-is-not-there"}
    look(configuration(tmp_path, dcgm=tool))
    upgraded = look(configuration(tmp_path), version="2")["dcgm"]
    assert upgraded.status == "missing"
    assert (upgraded.message or "").startswith("was checked by version 1 of the agent and is not by 2")
    off = look(configuration(tmp_path, not_needed={"dcgm": "not on this pool"}), version="2")["dcgm"]
    assert (off.status, off.message) == ("off", "not on this pool")


# --- what is reported and remembered ---------------------------------------------------------------------------

DEVICES = tuple(Device(index, f"GPU-{index}") for index in range(8))


def test_the_inventory_is_told_once_a_boot_and_when_it_changes(tmp_path: Path) -> None:
    settings, memory = configuration(tmp_path, role="gpu"), Memory("b1")
    told = []
    for at, (boot, devices) in enumerate([("b1", DEVICES), ("b1", DEVICES), ("b1", DEVICES[:7]), ("b2", DEVICES[:7])]):
        memory = memory if memory.boot_id == boot else Memory(boot)
        event, memory = report(settings, memory, Looked([], devices, "580"), version="1", at_ms=NOW_MS + at)
        assert isinstance(event.data, NodeHealth)
        told.append(event.data.devices)
    assert told == [DEVICES, None, DEVICES[:7], DEVICES[:7]]


@pytest.mark.parametrize(
    ("checks", "count"),
    [
        ([Check("ecc", "gpu", "pass")], 8),
        ([Check("ecc", "gpu", "fail", DeviceRef(index=3)), Check("pcie", "pcie", "fail", DeviceRef(index=3))], 7),
        ([Check("ecc", "gpu", "warn", DeviceRef(index=3))], 8),
        ([Check("driver_responds", "driver", "timeout")], 0),
        ([Check("gpu_count", "gpu", "missing")], 0),
        ([Check("local_disk", "storage", "fail")], 8),
    ],
)
def test_gpus_are_allocatable_while_they_are_known_to_be_well(checks: list[Check], count: int) -> None:
    assert allocatable(8, checks) == count


def test_many_starts_within_a_quarter_of_an_hour_are_a_crash_loop_also_across_boots(tmp_path: Path) -> None:
    memory = Memory()
    for number in range(LOOP_STARTS):
        assert not is_looping(memory)
        memory = started(memory, NOW_MS + number, boot_id=f"b{number}", boot_ms=0)
    assert is_looping(memory)
    assert not is_looping(started(memory, NOW_MS + 2 * LOOP_MS, boot_id="b9", boot_ms=0))


def test_the_memory_survives_and_a_damaged_one_is_none(tmp_path: Path) -> None:
    path = tmp_path / "state" / "agent.json"
    memory = Memory("b1", 5, 7, ("ecc",), "1", (3,), "b1/GPU-1", 8)
    save_memory(path, memory)
    assert load_memory(path) == memory
    path.write_text("{")
    assert load_memory(path) == Memory()
    assert load_memory(tmp_path / "none.json") == Memory()
    with pytest.raises(WorldError, match="cannot be written"):
        save_memory(path / "below" / "a.json", memory)


# --- the configuration -------------------------------------------------------------------------------------------


def test_a_mistake_in_the_configuration_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "agent.yaml"
    path.write_text("cluster: c1\nrole: tpu\n")
    with pytest.raises(ConfigurationError, match=rf"{path}:2: role: Input should be 'gpu' or 'cpu'"):
        load_configuration(path)
    path.write_text("cluster: c1\n")
    assert load_configuration(path).interval_s == 30


def test_the_cluster_s_name_may_be_left_to_the_environment_and_is_missed_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "agent.yaml"
    path.write_text("role: cpu\n")
    monkeypatch.delenv("FAULTLENS_CLUSTER", raising=False)
    with pytest.raises(ConfigurationError, match=r"no cluster is named, here or by FAULTLENS_CLUSTER"):
        load_configuration(path)
    monkeypatch.setenv("FAULTLENS_CLUSTER", "c7")
    assert load_configuration(path).cluster == "c7"
    path.write_text("role: cpu\ncluster: c8\n")
    assert load_configuration(path).cluster == "c8"


def test_a_check_that_does_not_exist_cannot_be_off(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no check eccc; known are clock, container_runtime"):
        probes_of(configuration(tmp_path, not_needed={"eccc": "typo"}))


def test_what_is_off_is_not_probed(tmp_path: Path) -> None:
    settings = configuration(tmp_path, role="gpu", not_needed={"nvlink": "PCIe cards"})
    assert "nvlink" not in {probe.name for probe in probes_of(settings)}
    assert [(check.name, check.status) for check in off_checks(settings)] == [("nvlink", "off")]


def test_the_example_can_be_used() -> None:
    settings = load_configuration(Path(__file__).parents[2] / "examples" / "agent" / "agent.yaml")
    assert {"ib_links", "dcgm", "mounts"} <= {probe.name for probe in probes_of(settings)}
    assert [check.name for check in off_checks(settings)] == ["host_memory"]


# --- as a plugin of node-problem-detector -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "healthy"),
    [
        ("pass", True),
        ("warn", True),
        ("off", True),
        ("fail", False),
        ("timeout", False),
        ("error", False),
        ("missing", False),
    ],
)
def test_a_plugin_is_healthy_only_where_the_check_says_so(status: Any, *, healthy: bool) -> None:
    answer = plugin_answer([Check("ecc", "gpu", status, message="why")])
    assert answer.healthy is healthy
    assert "why" in answer.message


def test_the_plugin_s_command_ends_with_0_or_1_and_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "agent.yaml"
    path.write_text(f"cluster: c1\nrole: gpu\nstate: {tmp_path}\ndisks: [{tmp_path}, {tmp_path / 'gone'}]\n")
    with pytest.raises(SystemExit) as ended:
        main(["npd-check", "local_disk", "--config", str(path)])
    assert ended.value.code == 1
    assert capsys.readouterr().out.startswith("missing: ")


@pytest.mark.parametrize(
    ("check", "content", "code", "said"),
    [
        ("ecc", "cluster: c1\nrole: gqu\n", 1, "error: "),
        ("ekk", "cluster: c1\nrole: gpu\n", 1, "error: no check ekk on this node"),
        ("ecc", "cluster: c1\nrole: cpu\n", 0, "a node of the role cpu has no GPUs"),
    ],
)
def test_a_plugin_that_cannot_look_does_not_end_as_one_that_the_detector_takes_for_well(
    check: str, content: str, code: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "agent.yaml"
    path.write_text(content)
    with pytest.raises(SystemExit) as ended:
        main(["npd-check", check, "--config", str(path)])
    assert ended.value.code == code
    assert capsys.readouterr().out.startswith(said)


def test_rules_name_the_configuration_wherever_the_detector_is_started(tmp_path: Path) -> None:
    rules = json.loads(plugin_rules(configuration(tmp_path, role="gpu"), Path("agent.yaml")))
    assert {rule["args"][3] for rule in rules["rules"]} == {str(Path("agent.yaml").absolute())}


def test_the_rules_have_a_condition_for_every_check_and_more_patience_than_it(tmp_path: Path) -> None:
    settings = configuration(tmp_path, role="gpu")
    rules = json.loads(plugin_rules(settings, tmp_path / "agent.yaml"))
    assert {rule["args"][1] for rule in rules["rules"]} == {probe.name for probe in probes_of(settings)}
    assert {rule["condition"] for rule in rules["rules"]} == {condition["type"] for condition in rules["conditions"]}
    assert {float(rule["timeout"][:-1]) for rule in rules["rules"]} == {settings.deadline_s + 5}
    assert rules["skip_initial_status"] is True
