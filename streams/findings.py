"""Findings."""
from __future__ import annotations
def pending_names_lost_capacity(reason: str, message: str | None) -> bool:
    """Temporary."""
    text = f"{reason} {message or ''}".lower()
    return any(word in text for word in ("taint", "unhealthy", "unexpectedadmission", "failed binding", "cannot allocate all claims"))
