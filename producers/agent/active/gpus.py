"""Tests of GPUs through PyTorch: memory that keeps a pattern, products that are known, copies between GPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from faultlens.events import Check
from producers.agent.probe import MissingError

# Alternating bits both ways, and all of them: stuck and coupled cells show under one of the three.
PATTERNS: Final = (0x55, 0xAA, 0xFF)
# Of the memory that is free, so that what else is there stays.
SHARE: Final = 0.9
# To compare one takes as much again, of what is left: the smallest slice of a GPU (MIG) has 5 GB.
CHUNK: Final = 1 << 28
SIZE: Final = 4096
ROUNDS: Final = 8


def torch() -> Any:
    """Return PyTorch with GPUs that it can use. MissingError: there is none, or they cannot be used."""
    try:
        import torch as found  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415 - only some nodes have it
    except ImportError:
        raise MissingError("PyTorch is not installed, and DCGM's diagnostics are not configured") from None
    if not found.cuda.is_available():
        raise MissingError("PyTorch sees no GPU")
    return found


def _each(name: str, test: Callable[[Any, int], str | None], code: str) -> list[Check]:
    """Return a failure for each GPU that a test says something of, or one check that passes."""
    library = torch()
    count = library.cuda.device_count()
    told = [(index, wrong) for index in range(count) if (wrong := test(library, index)) is not None]
    failures = [Check(name, "gpu", "fail", index, code, wrong) for index, wrong in told]
    return failures or [Check(name, "gpu", "pass", message=f"{count} GPUs")]


def fill_memory() -> list[Check]:
    """Fill the free memory of each GPU with patterns and read it back."""
    return _each("memory_test", _memory, "compute_mismatch")


def _memory(library: Any, index: int) -> str | None:
    free, _ = library.cuda.mem_get_info(index)
    room = int(free * SHARE)
    chunks = [library.empty(size, dtype=library.uint8, device=f"cuda:{index}") for size in _sizes(room)]
    for pattern in PATTERNS:
        for chunk in chunks:
            chunk.fill_(pattern)
        library.cuda.synchronize(index)
        wrong = sum(int((chunk != pattern).sum().item()) for chunk in chunks)
        if wrong:
            return f"{wrong} of {room} bytes lost the pattern {pattern:#x}"
    return None


def _sizes(room: int) -> Iterator[int]:
    while room > 0:
        yield min(room, CHUNK)
        room -= CHUNK


def multiply() -> list[Check]:
    """Multiply matrices of small whole numbers, whose products are exact, on each GPU again and again."""
    return _each("gemm_test", _product, "compute_mismatch")


def _product(library: Any, index: int) -> str | None:
    device = f"cuda:{index}"
    numbers = library.arange(SIZE, device=device)
    left = ((numbers[:, None] + numbers[None, :]) % 7).to(library.float32)
    right = ((numbers[:, None] * 3 + numbers[None, :]) % 5).to(library.float32)
    # Every row of `left` repeats after 7 rows and every column of `right` after 5: so does what must come out.
    for number in range(ROUNDS):
        found = left @ right
        rows, columns = SIZE // 7 * 7, SIZE // 5 * 5
        same = (found[:rows].reshape(-1, 7, SIZE) == found[:7][None]).all().item()
        same = same and (found[:, :columns].reshape(SIZE, -1, 5) == found[:, :5][:, None]).all().item()
        corner = found[:7, :5].to("cpu")
        if not same or not (corner == _expected(library, left[:7], right[:, :5])).all().item():
            return f"the product of round {number} is not what it must be"
    return None


def _expected(library: Any, left: Any, right: Any) -> Any:
    """Return a small product by the host's processor, in whole numbers."""
    exact = left.to("cpu").to(library.int64) @ right.to("cpu").to(library.int64)
    return exact.to(library.float32)


def copy_around() -> list[Check]:
    """Copy a pattern from each GPU to the next, and compare."""
    library = torch()
    count = library.cuda.device_count()
    pairs = [(index, (index + 1) % count) for index in range(count)] if count > 1 else []
    told = [(pair, wrong) for pair in pairs if (wrong := _copied(library, *pair)) is not None]
    failures = [Check("link_test", "gpu", "fail", pair[0], "link_down", wrong) for pair, wrong in told]
    return failures or [Check("link_test", "gpu", "pass", message=f"{len(pairs)} copies")]


def _copied(library: Any, source: int, target: int) -> str | None:
    numbers = (library.arange(1 << 24, device=f"cuda:{source}") % 251).to(library.uint8)
    there = numbers.to(f"cuda:{target}")
    if not (there.to(f"cuda:{source}") == numbers).all().item():
        return f"what was copied from GPU {source} to GPU {target} is not the same there"
    return None
