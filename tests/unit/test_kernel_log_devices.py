"""The list of a node's GPUs, in the forms that people have it in."""

import json
from pathlib import Path

import pytest
import yaml

from faultlens.errors import ConfigurationError
from faultlens.events import DeviceRef
from producers.kernel_log.devices import FILE_BYTES_LIMIT, Gpu, Told, device_ref, read_gpus

ROWS: list[dict[str, str | int | None]] = [
    {"index": 0, "pci": "00000000:1B:00.0", "uuid": "GPU-aa", "serial": "1650123456789"},
    {"index": 1, "pci": "00000000:9B:00.0", "uuid": "GPU-bb", "serial": None},
]
CSV = (
    "index, pci.bus_id, uuid, serial\n0, 00000000:1B:00.0, GPU-aa, 1650123456789\n1, 00000000:9B:00.0, GPU-bb, [N/A]\n"
)


def written(folder: Path, text: str) -> Path:
    path = folder / "gpus"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "text",
    [
        CSV,
        "\ufeff" + CSV,
        CSV.replace("pci.bus_id", "pci_bus_id").replace("uuid", "gpu_uuid", 1),
        json.dumps(ROWS),
        json.dumps({"gpus": ROWS}, indent=2),
        yaml.safe_dump(ROWS),
        yaml.safe_dump({"devices": ROWS}),
        json.dumps([ROWS[0] | {"serial": 1650123456789}, ROWS[1] | {"serial": 0}]),
    ],
)
def test_every_form_gives_the_same_gpus(tmp_path: Path, text: str) -> None:
    assert read_gpus(written(tmp_path, text)) == {
        "0000:1b:00.0": Gpu(index=0, pci="00000000:1B:00.0", uuid="GPU-aa", serial="1650123456789"),
        "0000:9b:00.0": Gpu(index=1, pci="00000000:9B:00.0", uuid="GPU-bb"),
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("index, uuid\n0, GPU-aa\n", "2: pci: Field required"),
        ("index, pci.bus_id\nzero, 00000000:1B:00.0\n", "2: index: Input should be a valid integer"),
        ("index, pci.bus_id\n", "no GPUs; expected columns index, pci.bus_id, uuid, serial"),
        ("", "no GPUs"),
        ("[{", "neither CSV nor JSON nor YAML"),
        ("node: n1\n", "1: expected a list of GPUs"),
        ("[1, 2]", "1: expected a list of GPUs"),
        ("x" * (FILE_BYTES_LIMIT + 1), "more than the limit"),
    ],
)
def test_a_list_that_cannot_be_used_is_told_with_where_and_why(tmp_path: Path, text: str, said: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigurationError) as caught:
        read_gpus(path)
    assert str(caught.value).startswith(str(path))
    assert said in str(caught.value)


def test_a_list_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        read_gpus(tmp_path / "none")


def test_a_given_list_is_completed_by_the_driver_and_never_contradicted() -> None:
    uuid = "GPU-509665ad-1111-2222-3333-444455556666"
    told = Told({"0000:9b:00.0": Gpu(index=4, pci="9b:00.0", serial="S1")})
    told = told.after(f"NVRM: GPU at PCI:0000:9b:00: {uuid}").after("NVRM: GPU Board Serial Number: S2")
    assert device_ref("0000:9b:00.0", None, told.gpus) == DeviceRef(index=4, uuid=uuid, pci="0000:9b:00.0", serial="S1")


def test_a_serial_number_before_any_gpu_is_nobodys() -> None:
    assert Told({}).after("NVRM: GPU Board Serial Number: S2").gpus == {}


def test_an_unknown_address_is_still_an_address() -> None:
    assert device_ref("0000:9b:00.0", 3, {}) == DeviceRef(pci="0000:9b:00.0", link=3)
    assert device_ref(None, "ib0", {}) == DeviceRef(link="ib0")
    assert device_ref(None, None, {}) is None
