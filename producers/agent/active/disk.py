"""A disk that keeps what it is given: written, forced out, read back and compared."""

from __future__ import annotations

import os
from hashlib import blake2b
from pathlib import Path
from typing import Final

from faultlens.events import Check

BLOCK: Final = 1 << 20
BLOCKS: Final = 64


def write_and_read(directory: str) -> list[Check]:
    """Write 64 MiB, force them to the disk, drop them from memory, read them back."""
    Path(directory).mkdir(parents=True, exist_ok=True)
    path = Path(directory) / f".faultlens-disk-test-{os.getpid()}"
    try:
        written = _written(path)
        read = _read(path)
    finally:
        path.unlink(missing_ok=True)
    if read != written:
        return [Check("disk_test", "storage", "fail", None, "io_error", f"{directory} gave back other bytes")]
    return [Check("disk_test", "storage", "pass", message=f"{BLOCKS} MiB in {directory}")]


def block(number: int) -> bytes:
    """Return a block that no other one is like, and that no disk can compress away."""
    seed = blake2b(number.to_bytes(8, "big"), digest_size=64).digest()
    return b"".join(blake2b(seed + part.to_bytes(4, "big")).digest() for part in range(BLOCK // 64 // 64)) * 64


def _written(path: Path) -> bytes:
    sum_ = blake2b()
    with path.open("wb") as file:
        for number in range(BLOCKS):
            data = block(number)
            file.write(data)
            sum_.update(data)
        file.flush()
        os.fsync(file.fileno())
        # Otherwise what is read back comes from memory.
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return sum_.digest()


def _read(path: Path) -> bytes:
    sum_ = blake2b()
    with path.open("rb") as file:
        while data := file.read(BLOCK):
            sum_.update(data)
    return sum_.digest()
