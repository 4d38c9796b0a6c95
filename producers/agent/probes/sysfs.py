"""The kernel's small files: one value each."""

from __future__ import annotations

from pathlib import Path


def text_of(path: Path) -> str:
    """Return a file's text without blanks around it; nothing where it cannot be read."""
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
