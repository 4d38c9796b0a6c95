"""The kernel's small files: one value each."""

from __future__ import annotations

from pathlib import Path
from typing import Final

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def boot_id_of_this_host() -> str:
    """Return the kernel's id of this boot."""
    return BOOT_ID.read_text("ascii").strip()


def text_of(path: Path) -> str:
    """Return a file's text without blanks around it; nothing where it cannot be read."""
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
