"""The tests of GPUs by a real PyTorch, whose every device is the processor: what they ask for is there and is right.

PYTHONPATH=/path/to/site-packages/with/torch .venv/bin/pytest tests/contract/test_pytorch.py
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from producers.agent.active import gpus

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")
ROOM = 3 << 20


class Devices:
    """PyTorch with two devices, each of which is the processor. `harm`: is called with what was written to the second
    one, before that is read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.harm: Callable[[Any], None] = lambda tensor: None
        self.cuda = self
        self._written: list[Any] = []
        self._moved, self._multiplied = torch.Tensor.to, torch.Tensor.__matmul__
        # Functions, not methods of ours: they are to be called with the tensor first.
        monkeypatch.setattr(torch.Tensor, "to", lambda tensor, *what, **how: self._to(tensor, *what, **how))  # noqa: PLW0108
        monkeypatch.setattr(torch.Tensor, "__matmul__", lambda left, right: self._product_of(left, right))  # noqa: PLW0108
        self._place = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    def is_available(self) -> bool:
        return True

    def device_count(self) -> int:
        return 2

    def mem_get_info(self, index: int) -> tuple[int, int]:
        return ROOM, 2 * ROOM

    def empty(self, size: int, *, dtype: Any, device: str) -> Any:
        self._place = device
        self._written.append(torch.empty(size, dtype=dtype))
        return self._written[-1]

    def arange(self, count: int, *, device: str) -> Any:
        self._place = device
        return torch.arange(min(count, 1 << 16))

    def synchronize(self, index: int) -> None:
        if index == 1:
            self.harm(self._written[-1])

    def _to(self, tensor: Any, what: Any, *more: Any, **named: Any) -> Any:
        if not isinstance(what, str) or not what.startswith("cuda:"):
            return self._moved(tensor, what, *more, **named)
        copied = tensor.clone()
        if what == "cuda:1":
            self.harm(copied)
        return copied

    def _product_of(self, left: Any, right: Any) -> Any:
        found = self._multiplied(left, right)
        if self._place == "cuda:1" and found.dtype == torch.float32:
            self.harm(found)
        return found


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> Devices:
    made = Devices(monkeypatch)
    monkeypatch.setitem(sys.modules, "torch", made)
    monkeypatch.setattr(gpus, "SIZE", 512)
    monkeypatch.setattr(gpus, "CHUNK", 1 << 20)
    return made


@pytest.mark.parametrize("test", [gpus.fill_memory, gpus.multiply, gpus.copy_around])
def test_devices_that_are_right_pass(devices: Devices, test: Any) -> None:
    assert [check.status for check in test()] == ["pass"]


@pytest.mark.parametrize(
    ("test", "code", "device"),
    [
        (gpus.fill_memory, "compute_mismatch", 1),
        (gpus.multiply, "compute_mismatch", 1),
        (gpus.copy_around, "link_down", 0),
    ],
)
def test_one_bit_that_is_wrong_is_a_failure_of_its_device(devices: Devices, test: Any, code: str, device: int) -> None:
    def flip_a_bit(tensor: Any) -> None:
        flat = tensor.view(-1)
        flat[flat.numel() * 2 // 3] += 1

    devices.harm = flip_a_bit
    wrong = [(check.status, check.code, check.device) for check in test()]
    assert wrong[0] == ("fail", code, device)
    assert test is gpus.copy_around or len(wrong) == 1
