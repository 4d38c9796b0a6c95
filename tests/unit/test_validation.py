"""Tests before work: a node proves itself in every boot, and what a GPU gets wrong is told. GPUs are stand-ins here."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from faultlens.cli import app
from faultlens.clock import DAY_MS
from faultlens.events import Check, NodeFault
from producers.agent import validation
from producers.agent.active import diagnostics, disk, gpus, loopback
from producers.agent.configuration import Configuration, Validation
from producers.agent.probe import MissingError
from producers.agent.probes.sysfs import boot_id_of_this_host
from producers.agent.validation import Proof

NOW_MS = 1_795_960_000_000
WANTED = Validation(good_reports=2)
PASSED = Proof("b1", "m1", NOW_MS, passed=True)


# --- what keeps a node out of work -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tested", "good", "status", "why"),
    [
        (None, 9, "missing", "has not been tested"),
        (PASSED, 2, "pass", "tested at"),
        (PASSED, 1, "missing", "1 of 2 good reports"),
        (Proof("b0", "m1", NOW_MS, passed=True), 9, "missing", "it was restarted"),
        (Proof("b1", "m0", NOW_MS, passed=True), 9, "missing", "has not been tested"),
        (Proof("b1", "m1", NOW_MS, passed=False, bad=("ecc fail: 3",)), 9, "fail", "ecc fail: 3"),
    ],
)
def test_a_node_is_validated_by_a_passed_test_of_this_boot_and_good_reports(
    tested: Proof | None, good: int, status: str, why: str
) -> None:
    check = validation.standing(WANTED, tested, boot_id="b1", machine="m1", good_reports=good)
    assert (check.name, check.status) == ("validation", status)
    assert why in (check.message or "")


@pytest.mark.parametrize("status", ["fail", "timeout", "error", "missing"])
def test_a_test_passes_only_where_everything_is_known_to_be_well(status: Any) -> None:
    checks = [Check("gpu_count", "gpu", "pass"), Check("ecc", "gpu", "off"), Check("thermal", "cooling", "warn")]
    assert validation.judged(checks, boot_id="b", machine="m", at_ms=1).passed
    found = validation.judged([*checks, Check("nvlink", "gpu", status, message="x")], boot_id="b", machine="m", at_ms=1)
    assert (found.passed, found.bad) == (False, (f"nvlink {status}: x",))


def test_idle_nodes_are_tested_again_within_a_budget() -> None:
    def is_due(tested: Proof | None, late_ms: int = 0, boot_id: str = "b1") -> bool:
        return validation.is_due(tested, NOW_MS + late_ms, 86_400, boot_id=boot_id, machine="m1")

    assert (is_due(None), is_due(PASSED), is_due(PASSED, boot_id="b2")) == (True, False, True)
    assert (is_due(PASSED, DAY_MS - 1), is_due(PASSED, DAY_MS)) == (False, True)


def test_the_record_survives_and_a_damaged_one_is_none(tmp_path: Path) -> None:
    path = tmp_path / "state" / "validation.json"
    validation.save_tested(path, PASSED)
    assert validation.load_tested(path) == PASSED
    path.write_text("{", "utf-8")
    assert validation.load_tested(path) is None


def test_a_wrong_result_is_a_fault_of_its_gpu_and_a_missing_tool_is_none() -> None:
    checks = [
        Check("gemm_test", "gpu", "fail", 3, "compute_mismatch", "the product of round 2 is not what it must be"),
        Check("disk_test", "storage", "fail", None, "io_error"),
        Check("memory_test", "gpu", "missing"),
    ]
    configuration = Configuration(cluster="c1", node="n1")
    [event] = validation.faults(configuration, checks, boot_id="b1", at_ms=NOW_MS)
    assert isinstance(event.data, NodeFault)
    fault = event.data
    assert (fault.kind, fault.code, fault.detected_by) == ("other", "compute_mismatch", "active_test")
    assert fault.device is not None
    assert fault.device.index == 3


# --- the command -----------------------------------------------------------------------------------------


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "agent.yaml"
    state = {"cluster": "c1", "node": "n1", "role": "cpu", "state": str(tmp_path / "state"), "host_id": "m1"}
    off = {"clock": "nothing keeps the clock of a container right", "local_disk": "the disk of whoever runs the tests"}
    path.write_text(json.dumps(state | {"not_needed": off, "validation": {"good_reports": 0}}), "utf-8")
    return path


def run(*arguments: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["validate-node", *map(str, arguments)])
    return result.exit_code, result.output


def test_the_command_ends_with_0_where_the_node_may_take_work_and_1_before(config: Path, tmp_path: Path) -> None:
    assert run("--config", config, "--recorded")[0] == 1
    code, said = run("--config", config, "--json")
    assert (code, json.loads(said)["passed"]) == (0, True), said
    assert run("--config", config, "--recorded")[0] == 0
    assert run("--config", config, "--if-due") == (0, "it was tested lately\n")
    tested = validation.load_tested(tmp_path / "state" / "validation.json")
    assert tested is not None
    assert (tested.boot_id, tested.machine, tested.passed) == (boot_id_of_this_host(), "m1", True)


def test_a_gpu_node_without_a_driver_does_not_pass(config: Path) -> None:
    config.write_text(config.read_text("utf-8").replace('"cpu"', '"gpu"'), "utf-8")
    code, said = run("--config", config, "--json")
    states = {check["name"]: check["status"] for check in json.loads(said)["checks"]}
    assert code == 1
    assert {states[name] for name in ("gpu_count", "memory_test", "gemm_test", "link_test")} == {"missing"}
    assert states["disk_test"] == "pass"


# --- the tests -------------------------------------------------------------------------------------------


class Tensor(np.ndarray):
    """An array that knows on which device it is, as far as the tests ask."""

    place: str

    def __array_finalize__(self, base: Any) -> None:
        self.place = getattr(base, "place", "cpu")

    def to(self, what: Any) -> Any:
        if isinstance(what, str):
            copied = self.copy()
            copied.place = what
            if what == Torch.bad_link:
                copied.flat[0] += 1
            return copied
        return self.astype(what)

    def fill_(self, value: int) -> None:
        self[...] = value
        if self.place == Torch.bad_memory:
            self.flat[7] ^= 1

    def __matmul__(self, other: Any) -> Any:
        found = np.matmul(self, other)
        if self.place == Torch.bad_products:
            found.flat[11] += 1
        return found


class Torch:
    """What the tests use of PyTorch, on arrays, with GPUs that can be broken."""

    bad_memory = bad_products = bad_link = ""
    uint8, float32, int64 = np.uint8, np.float32, np.int64
    cuda = SimpleNamespace(
        is_available=lambda: True,
        device_count=lambda: 2,
        mem_get_info=lambda index: (4096, 8192),
        synchronize=lambda i: None,
    )

    @staticmethod
    def arange(count: int, device: str) -> Any:
        made = np.arange(min(count, 1 << 12)).view(Tensor)
        made.place = device
        return made

    @staticmethod
    def empty(size: int, dtype: Any, device: str) -> Any:
        made = np.empty(size, dtype).view(Tensor)
        made.place = device
        return made


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Torch]]:
    monkeypatch.setitem(sys.modules, "torch", Torch)
    monkeypatch.setattr(gpus, "SIZE", 70)
    monkeypatch.setattr(gpus, "ROUNDS", 2)
    yield Torch
    Torch.bad_memory = Torch.bad_products = Torch.bad_link = ""


@pytest.mark.parametrize(
    ("test", "harm", "code"),
    [
        (gpus.fill_memory, "bad_memory", "compute_mismatch"),
        (gpus.multiply, "bad_products", "compute_mismatch"),
        (gpus.copy_around, "bad_link", "link_down"),
    ],
)
def test_a_gpu_that_gets_it_wrong_fails_and_the_others_do_not(torch: Any, test: Any, harm: str, code: str) -> None:
    assert [check.status for check in test()] == ["pass"]
    setattr(torch, harm, "cuda:1")
    wrong = {(check.status, check.code) for check in test()}
    assert wrong == {("fail", code)}
    devices = {check.device for check in test() if check.name != "link_test"}
    assert devices <= {1}


def test_the_smallest_slice_of_a_gpu_has_room_left_to_read_back_what_was_written() -> None:
    assert (1 - gpus.SHARE) * (4 << 30) >= gpus.CHUNK


def test_without_pytorch_nothing_is_known_of_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingError, match="PyTorch is not installed"):
        gpus.multiply()


def test_a_disk_is_written_read_back_and_left_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "BLOCKS", 2)
    assert [check.status for check in disk.write_and_read(str(tmp_path))] == ["pass"]
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(disk, "_read", lambda path: b"something else")
    assert [check.code for check in disk.write_and_read(str(tmp_path))] == ["io_error"]


def diag(*statuses: str) -> Any:
    results = [{"gpu_id": str(n), "status": s, "warnings": [{"warning": "bad"}]} for n, s in enumerate(statuses)]
    categories = [{"category": "Hardware", "tests": [{"name": "Memory", "results": results}]}]
    return {"DCGM Diagnostic": {"test_categories": categories}}


@pytest.mark.parametrize(
    ("statuses", "told"),
    [
        (("Pass", "Pass"), [("pass", None)]),
        (("Pass", "Warn"), [("warn", None)]),
        (("Pass", "Fail"), [("fail", 1)]),
        (("Skip", "Pass"), [("pass", None)]),
    ],
)
def test_dcgm_s_diagnostics_count_by_their_answer(statuses: tuple[str, ...], told: Any) -> None:
    assert [(check.status, check.device) for check in diagnostics.judge(diag(*statuses))] == told


@pytest.mark.parametrize("answer", [{}, [], diag(), diag("Skip"), diag("Strange")])
def test_diagnostics_that_tested_nothing_are_no_pass(answer: Any) -> None:
    with pytest.raises(ValueError, match="no test that was run"):
        diagnostics.judge(answer)


@pytest.mark.parametrize(
    ("ends", "status"), [("exit 0", "pass"), ("echo no route >&2; exit 1", "fail"), ("sleep 9", "fail")]
)
def test_a_link_is_tried_with_itself_by_a_stand_in_for_the_tool(tmp_path: Path, ends: str, status: str) -> None:
    port = tmp_path / "sys" / "mlx5_0" / "ports" / "1"
    port.mkdir(parents=True)
    (port / "state").write_text("4: ACTIVE\n", "utf-8")
    tool = tmp_path / "bin" / "try"
    tool.parent.mkdir()
    tool.write_text(f"#!/bin/sh\n{ends}\n", "utf-8")
    tool.chmod(0o755)
    [check] = loopback.hear_itself("ib_links", str(tool), 1.0, str(tmp_path / "sys"))
    assert check.status == status
    with pytest.raises(MissingError, match="no active link"):
        loopback.hear_itself("efa_links", str(tool), 1.0, str(tmp_path / "sys"))
    with pytest.raises(MissingError, match="not installed"):
        loopback.hear_itself("ib_links", os.devnull + "-none", 1.0)
