"""Devices of AMD and AWS by what their tools and drivers say, as recorded from their documentation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from faultlens.events import Check
from producers.agent.configuration import Configuration, off_by_role
from producers.agent.probe import MissingError
from producers.agent.probes import amd, neuron
from producers.agent.probes.table import off_checks, probes_of


def told(checks: list[Check]) -> list[tuple[str, str | None]]:
    return [(check.status, check.code) for check in checks]


LIST = [
    {"gpu": 0, "bdf": "0000:0c:00.0", "uuid": "8cff74a1-0000-1000-80f1-2d4e6a8c0e11", "kfd_id": 12, "node_id": 2},
    {"gpu": 1, "bdf": "0000:22:00.0", "uuid": "8cff74a1-0000-1000-80f1-2d4e6a8c0e12", "kfd_id": 13, "node_id": 3},
]


def ecc(*counts: Any) -> Any:
    return [
        {"gpu": n, "ecc": {"total_correctable_count": 5, "total_uncorrectable_count": count}}
        for n, count in enumerate(counts)
    ]


def heat(*hotspots: Any) -> Any:
    def degrees(value: Any) -> Any:
        return {"value": value, "unit": "C"}

    return [
        {"gpu": n, "temperature": {"edge": "N/A", "hotspot": degrees(value), "mem": degrees(40)}}
        for n, value in enumerate(hotspots)
    ]


@pytest.mark.parametrize("wrap", [lambda gpus: gpus, lambda gpus: {"gpu_data": gpus}], ids=["rocm6", "rocm7"])
def test_amd_s_gpus_are_counted_and_named_in_both_forms_of_the_answer(wrap: Any) -> None:
    looked = amd.judge_count(wrap(LIST), 2)
    assert told(looked.checks) == [("pass", None)]
    assert looked.devices is not None
    assert [(device.index, device.pci) for device in looked.devices] == [(0, "0000:0c:00.0"), (1, "0000:22:00.0")]
    assert told(amd.judge_count(wrap(LIST), 8).checks) == [("fail", "gpu_lost")]
    assert told(amd.judge_count(wrap([]), None).checks) == [("fail", "gpu_lost")]
    assert told(amd.judge_ecc(wrap(ecc(0, 0)))) == [("pass", None)]
    assert told(amd.judge_heat(wrap(heat(60, 61)))) == [("pass", None)]


def test_an_amd_gpu_that_is_not_well_is_named() -> None:
    (check,) = amd.judge_ecc(ecc(0, 3))
    assert (check.status, check.code, getattr(check.device, "index", None)) == ("fail", "dbe", 1)
    (hot,) = amd.judge_heat(heat(105, 60))
    assert (hot.status, hot.code, getattr(hot.device, "index", None)) == ("fail", "slowdown", 0)


@pytest.mark.parametrize("answer", [{}, [], "x", ecc("N/A"), [{"gpu": 0}]])
def test_what_amd_s_tool_does_not_say_is_no_pass(answer: Any) -> None:
    with pytest.raises(ValueError, match="not in the answer"):
        amd.judge_ecc(answer)
    with pytest.raises(ValueError, match="not in the answer"):
        amd.judge_heat(answer)


def test_amd_s_tool_may_be_missing_or_babble(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="not installed"):
        amd.look_at_ecc(1.0, str(tmp_path / "none"))
    tool = tmp_path / "amd-smi"
    tool.write_text("#!/bin/sh\necho ERROR: driver not initialised\n", "utf-8")
    tool.chmod(0o755)
    with pytest.raises(ValueError, match="answered no JSON"):
        amd.look_at_ecc(5.0, str(tool))
    tool.write_text(f"#!/bin/sh\ncat <<'X'\n{json.dumps(LIST)}\nX\n", "utf-8")
    assert told(amd.look_at_count(2, 5.0, str(tool)).checks) == [("pass", None)]


def device(root: Path, number: int, memory: str = "0", sram: str = "0") -> None:
    place = root / f"neuron{number}" / "stats" / "hardware"
    place.mkdir(parents=True)
    (place / "mem_ecc_uncorrected").write_text(memory + "\n", "utf-8")
    (place / "sram_ecc_uncorrected").write_text(sram + "\n", "utf-8")


def test_neuron_devices_are_counted_by_their_driver_and_their_errors_read(tmp_path: Path) -> None:
    for number in (0, 1, 10):
        device(tmp_path, number, sram="2" if number == 10 else "0")
    (tmp_path / "power").mkdir()
    looked = neuron.look_at_count(3, str(tmp_path))
    assert told(looked.checks) == [("pass", None)]
    assert looked.devices is not None
    assert [found.index for found in looked.devices] == [0, 1, 10]
    assert told(neuron.look_at_count(16, str(tmp_path)).checks) == [("fail", "gpu_lost")]
    (check,) = neuron.look_at_ecc(str(tmp_path))
    assert (check.code, getattr(check.device, "index", None)) == ("dbe", 10)


def test_without_neuron_s_driver_or_its_counters_nothing_is_known(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="not loaded"):
        neuron.look_at_count(1, str(tmp_path / "none"))
    with pytest.raises(MissingError, match="not loaded"):
        neuron.look_at_driver(str(tmp_path / "version"))
    (tmp_path / "neuron0").mkdir()
    with pytest.raises(ValueError, match="no counters"):
        neuron.look_at_ecc(str(tmp_path))


@pytest.mark.parametrize("vendor", ["nvidia", "amd", "neuron"])
def test_every_check_of_a_gpu_is_probed_or_off_with_the_reason(vendor: Any) -> None:
    configuration = Configuration(cluster="c1", vendor=vendor)
    probed = {name for probe in probes_of(configuration) for name in probe.checks}
    off = {check.name for check in off_checks(configuration)}
    of_gpus = {"gpu_count", "driver_responds", "ecc", "nvlink", "pcie", "thermal", "power", "fabric_manager"}
    assert of_gpus <= probed | off
    assert probed & off == set()
    assert all(reason for reason in off_by_role(configuration).values())
