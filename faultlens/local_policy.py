"""The remediation policy of an installation."""

from __future__ import annotations

from pathlib import Path

from faultlens.settings import load_settings
from streams.remediation import Policy, load_policy


def decided_by(path: Path | None) -> Policy:
    """Return the remediation policy with a site's own: that of `path`, else the one that the settings name."""
    return load_policy(path or load_settings().policy)
