"""What probes make of what they see, on trees of files and answers as the real ones give them."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from faultlens.events import Check, DeviceRef
from producers.agent.configuration import Links
from producers.agent.instance_types import expected_links
from producers.agent.probe import MissingError
from producers.agent.probes import dcgm, links, nvidia, storage, system
from producers.agent.probes.storage import Space
from producers.agent.state import Memory, started


def told(check: Check) -> tuple[str, str | None]:
    return check.status, check.code


# --- disks and mounts --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spaces", "status", "code"),
    [
        ([Space("/", 0.5, 0.1, writable=True)], "pass", None),
        ([Space("/", 0.93, 0.1, writable=True)], "warn", "full"),
        ([Space("/", 0.5, 0.99, writable=True)], "fail", "full"),
        ([Space("/", 0.99, 0.1, writable=True), Space("/data", 0.1, 0.1, writable=False)], "fail", "read_only_fs"),
    ],
)
def test_the_worst_disk_decides(spaces: list[Space], status: str, code: str | None) -> None:
    assert told(storage.judge_disks(spaces)) == (status, code)


def test_a_disk_that_is_not_there_is_missing_and_this_one_is_seen(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="is not there"):
        storage.look_at_disks([str(tmp_path / "none")])
    (check,) = storage.look_at_disks([str(tmp_path)])
    assert check.name == "local_disk"


def test_the_mount_table_is_read_with_its_escapes() -> None:
    table = "server:/home /home\\040of\\040all nfs4 rw 0 0\n/dev/sda1 / ext4 rw 0 0\nbroken\n"
    assert storage.parse_mounts(table) == {"/home of all": "nfs4", "/": "ext4"}
    assert storage.is_networked("fuse.juicefs")
    assert not storage.is_networked("ext4")


def test_a_mount_that_does_not_answer_is_named_while_the_others_do() -> None:
    hangs = Event()

    def ask(path: str) -> None:
        if path == "/scratch":
            hangs.wait()
        if path == "/private":
            raise PermissionError(errno.EACCES, "Permission denied")
        if path == "/gone":
            raise OSError(errno.ESTALE, "Stale file handle")

    paths = ["/home", "/scratch", "/gone", "/private"]
    assert storage.unwell(paths, ask, 0.2) == (["/scratch"], {"/gone": "Stale file handle"})
    hangs.set()
    assert told(storage.judge_mounts([], ["/scratch"], {})) == ("timeout", "mount_hung")
    assert told(storage.judge_mounts(["/scratch"], [], {})) == ("fail", "not_mounted")
    assert told(storage.judge_mounts([], [], {})) == ("pass", None)


def test_a_mount_whose_server_is_gone_does_not_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stale(path: str) -> None:
        raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")

    monkeypatch.setattr(os, "statvfs", stale)
    table = tmp_path / "mounts"
    for line, expected, found in (
        ("server:/home /home nfs4 rw 0 0", [], ("fail", "stale")),
        ("store /data fuse.juicefs rw 0 0", ["/data"], ("fail", "stale")),
        ("ann@laptop: /home/ann/laptop fuse.sshfs rw 0 0", [], ("pass", None)),
    ):
        table.write_text(f"{line}\n", "utf-8")
        [check] = storage.look_at_mounts(expected, table)
        assert told(check) == found


def test_an_expected_mount_that_is_not_in_the_table_fails(tmp_path: Path) -> None:
    table = tmp_path / "mounts"
    table.write_text("proc /proc proc rw 0 0\n")
    (check,) = storage.look_at_mounts(["/scratch"], table)
    assert told(check) == ("fail", "not_mounted")


# --- the host ------------------------------------------------------------------------------------------------


def test_the_clock_of_this_machine_can_be_asked() -> None:
    (check,) = system.look_at_clock()
    assert check.status in ("pass", "warn")


def test_uncorrectable_errors_since_boot_fail_the_host_s_memory(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="EDAC"):
        system.look_at_memory(tmp_path)
    for number, count in enumerate((0, 2)):
        controller = tmp_path / f"mc{number}"
        controller.mkdir()
        (controller / "ue_count").write_text(f"{count}\n")
        (controller / "ce_count").write_text("7\n")
    (check,) = system.look_at_memory(tmp_path)
    assert told(check) == ("fail", "uncorrectable")
    assert check.message == "uncorrectable errors since boot: mc1: 2"


def test_a_service_is_looked_for_among_the_processes_by_the_name_that_the_kernel_cuts(tmp_path: Path) -> None:
    (tmp_path / "17").mkdir()
    (tmp_path / "17" / "comm").write_text("nv-fabricmanage\n")
    (tmp_path / "self").mkdir()
    (check,) = system.look_for_services("fabric_manager", "driver", ["nv-fabricmanager"], tmp_path)
    assert told(check) == ("pass", None)
    (check,) = system.look_for_services("container_runtime", "runtime", ["containerd", "dockerd"], tmp_path)
    assert told(check) == ("fail", "not_running")


# --- links -----------------------------------------------------------------------------------------------------


def port(
    root: Path, device: str, state: str = "4: ACTIVE", rate: str = "400 Gb/sec (4X NDR)", vendor: str = "0x15b3"
) -> None:
    place = root / device / "ports" / "1"
    place.mkdir(parents=True)
    (root / device / "device").mkdir()
    (root / device / "device" / "vendor").write_text(vendor + "\n")
    (place / "state").write_text(state + "\n")
    (place / "phys_state").write_text("5: LinkUp\n")
    (place / "rate").write_text(rate + "\n")


def test_links_are_counted_by_kind_and_judged_by_state_and_rate(tmp_path: Path) -> None:
    port(tmp_path, "mlx5_0")
    port(tmp_path, "mlx5_1", state="1: DOWN")
    port(tmp_path, "mlx5_2", rate="200 Gb/sec (4X HDR)")
    port(tmp_path, "rdmap0", vendor="0x1d0f", rate="100 Gb/sec (4X EDR)")
    checks = links.look_at_links("ib_links", 3, 400.0, directory=tmp_path).checks
    assert [(check.device, *told(check)) for check in checks] == [
        ("mlx5_1/1", "fail", "link_down"),
        ("mlx5_2/1", "fail", "link_degraded"),
    ]
    (well,) = links.look_at_links("efa_links", 1, None, directory=tmp_path).checks
    assert told(well) == ("pass", None)
    assert told(links.look_at_links("efa_links", 4, None, directory=tmp_path).checks[-1]) == ("fail", "links_missing")


def test_without_a_number_to_expect_links_are_an_error_and_without_drivers_missing(tmp_path: Path) -> None:
    port(tmp_path, "mlx5_0")
    looked = links.look_at_links("ib_links", None, None, directory=tmp_path)
    assert [told(check) for check in looked.checks] == [("error", None)]
    assert looked.links == {"ib_links": 1}
    with pytest.raises(MissingError, match="RDMA"):
        links.look_at_links("ib_links", 1, None, directory=tmp_path / "none")


def test_links_that_an_earlier_boot_had_are_missed_though_nobody_said_how_many_there_should_be(tmp_path: Path) -> None:
    port(tmp_path, "mlx5_0")
    (check,) = links.look_at_links("ib_links", None, None, 2, tmp_path).checks
    assert told(check) == ("fail", "links_missing")
    memory = started(Memory("b1", 0, links={"ib_links": 8}), 1, boot_id="b2", boot_ms=0)
    assert memory.links_before == {"ib_links": 8}
    assert started(memory, 2, boot_id="b3", boot_ms=0).links_before == {"ib_links": 8}


@pytest.mark.parametrize(
    ("wanted", "instance_type", "expected"),
    [
        (Links(), "p5.48xlarge", (32, 100.0)),
        (Links(expected=30), "p5.48xlarge", (30, 100.0)),
        (Links(), "nobody.knows", (None, None)),
        (Links(), "Standard_ND96isr_H100_v5", (None, None)),
    ],
)
def test_how_many_links_there_should_be_is_known_by_the_type_of_the_machine(
    wanted: Links, instance_type: str, expected: tuple[int | None, float | None]
) -> None:
    found = expected_links("efa_links", wanted, instance_type)
    assert (found.expected, found.gbit_s) == expected


# --- GPUs, by a stand-in for the management library: there is none on a machine that tests ------------------------


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"NVML error {value}")
        self.value = value


def library(**of: Any) -> Any:
    """Return a stand-in that answers like NVML for two GPUs, each call as given (a value, or a value by GPU)."""
    answers = {
        "nvmlDeviceGetRemappedRows": (0, 0, 0, 0),
        "nvmlDeviceGetTotalEccErrors": 0,
        "nvmlDeviceGetNvLinkState": 1,
        "nvmlDeviceGetCurrPcieLinkWidth": 16,
        "nvmlDeviceGetMaxPcieLinkWidth": 16,
        "nvmlDeviceGetCurrentClocksEventReasons": 0,
        "nvmlDeviceGetTemperature": 91,
        "nvmlDeviceGetSerial": b"S1",
    } | of

    def call(name: str) -> Any:
        def answer(handle: int, *_: object) -> Any:
            value = answers[name]
            value = value[handle] if isinstance(value, dict) else value
            if isinstance(value, NVMLError):
                raise value
            return value

        return answer

    return SimpleNamespace(
        NVMLError=NVMLError,
        NVML_ERROR_NOT_SUPPORTED=3,
        NVML_ERROR_INVALID_ARGUMENT=2,
        NVML_MEMORY_ERROR_TYPE_UNCORRECTED=1,
        NVML_VOLATILE_ECC=0,
        NVML_TEMPERATURE_GPU=0,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetUUID=lambda handle: f"GPU-{handle}",
        nvmlDeviceGetPciInfo=lambda handle: SimpleNamespace(busId=f"00000000:{handle + 1:02X}:00.0"),
        **{name: call(name) for name in answers},
    )


@pytest.mark.parametrize("check", ["ecc", "nvlink", "pcie", "thermal", "power"])
def test_gpus_that_are_well_pass(check: str) -> None:
    assert [told(found) for found in nvidia.check_each(check, library())] == [("pass", None)]


@pytest.mark.parametrize(
    ("check", "answers", "code"),
    [
        ("ecc", {"nvmlDeviceGetRemappedRows": {0: (0, 0, 0, 0), 1: (0, 1, 0, 1)}}, "remap_failed"),
        ("ecc", {"nvmlDeviceGetRemappedRows": {0: (0, 0, 0, 0), 1: (0, 1, 1, 0)}}, "remap_pending"),
        ("ecc", {"nvmlDeviceGetTotalEccErrors": {0: 0, 1: 3}}, "dbe"),
        ("pcie", {"nvmlDeviceGetCurrPcieLinkWidth": {0: 16, 1: 8}}, "link_degraded"),
        ("thermal", {"nvmlDeviceGetCurrentClocksEventReasons": {0: 0, 1: nvidia.HARDWARE_THERMAL}}, "slowdown"),
        ("power", {"nvmlDeviceGetCurrentClocksEventReasons": {0: 0, 1: nvidia.POWER_BRAKE}}, "brake"),
    ],
)
def test_a_gpu_that_is_not_well_is_named(check: str, answers: dict[str, Any], code: str) -> None:
    (found,) = nvidia.check_each(check, library(**answers))
    assert told(found) == ("fail", code)
    assert found.device == DeviceRef(index=1, uuid="GPU-1", pci="0000:02:00.0", serial="S1")


def test_what_a_gpu_does_not_have_is_not_held_against_it_and_any_other_error_is_the_probe_s() -> None:
    lacks = library(nvmlDeviceGetRemappedRows=NVMLError(3), nvmlDeviceGetTotalEccErrors=NVMLError(3))
    assert [told(found) for found in nvidia.check_each("ecc", lacks)] == [("pass", None)]
    with pytest.raises(NVMLError, match="999"):
        nvidia.check_each("ecc", library(nvmlDeviceGetTotalEccErrors=NVMLError(999)))


@pytest.mark.parametrize(("seen", "on_bus", "expected", "status"), [
    (8, 8, 8, "pass"), (8, 8, None, "pass"), (7, 8, None, "fail"), (7, 7, 8, "fail"), (0, 0, None, "fail"),
])  # fmt: skip
def test_a_gpu_is_lost_when_the_bus_shows_it_or_it_was_promised(
    seen: int, on_bus: int, expected: int | None, status: str
) -> None:
    assert nvidia.judge_count(seen, on_bus, expected).status == status


def test_gpus_on_the_bus_are_told_from_other_devices(tmp_path: Path) -> None:
    for name, vendor, kind in (
        ("a", "0x10de", "0x030200"), ("b", "0x10de", "0x068000"), ("c", "0x1002", "0x030200"),
    ):  # fmt: skip
        (tmp_path / name).mkdir()
        (tmp_path / name / "vendor").write_text(vendor)
        (tmp_path / name / "class").write_text(kind)
    assert nvidia.count_on_bus(tmp_path) == 1


# --- DCGM, by a stand-in for its program ---------------------------------------------------------------------------


def program(tmp_path: Path, fetch: str, check: str) -> str:
    path = tmp_path / "dcgmi"
    path.write_text(
        f"#!/bin/sh\ncase $2 in --fetch) cat <<'F'\n{fetch}\nF\n;; --check) cat <<'C'\n{check}\nC\n;; esac\n"
    )
    path.chmod(0o755)
    return str(path)


def health(overall: str, *errors: str) -> str:
    children = {f"GPU {number}": {"children": {"Errors": {"value": error}}} for number, error in enumerate(errors)}
    return json.dumps({"body": {"Overall Health": {"value": overall, "children": children}}})


SET = json.dumps({"body": {"PCIe": {"value": "On"}, "Memory": {"value": "Off"}}})


@pytest.mark.parametrize(("overall", "status"), [("Healthy", "pass"), ("Warning", "warn"), ("Failure", "fail")])
def test_dcgm_s_word_counts_and_not_its_exit_status(tmp_path: Path, overall: str, status: str) -> None:
    (check,) = dcgm.look_at_health(program(tmp_path, SET, health(overall, "XID 79 detected")), 10)
    assert check.status == status
    assert check.message == "XID 79 detected"


@pytest.mark.parametrize("answer", ["", "Error: unable to connect", "[]", '{"body": {}}', health("Splendid")])
def test_dcgm_s_garbage_is_the_probe_s_error(tmp_path: Path, answer: str) -> None:
    with pytest.raises(ValueError, match=r"answered no JSON|no “Overall Health”"):
        dcgm.look_at_health(program(tmp_path, SET, answer), 10)


def test_without_dcgm_or_without_a_watch_nothing_is_known(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="not installed"):
        dcgm.look_at_health(str(tmp_path / "none"), 10)
    unset = json.dumps({"body": {"PCIe": {"value": "Off"}}})
    with pytest.raises(MissingError, match="no health watch is set"):
        dcgm.look_at_health(program(tmp_path, unset, health("Healthy")), 10)
