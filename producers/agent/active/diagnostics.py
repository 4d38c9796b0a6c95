"""DCGM's own diagnostics: `dcgmi diag`, whose answer counts and not its exit status."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

from faultlens.events import Check, CheckStatus
from producers.agent.probe import MissingError
from producers.agent.probes.dcgm import said

_STATUS: dict[str, CheckStatus] = {"pass": "pass", "skip": "pass", "warn": "warn", "fail": "fail"}


def diagnose(program: str, level: int, timeout_s: float) -> list[Check]:
    """Run DCGM's diagnostics. MissingError: it is not installed."""
    path = shutil.which(program)
    if path is None:
        raise MissingError(f"{program} is not installed")
    return judge(said(path, timeout_s, "diag", "-r", str(level), "--json"))


def judge(answer: Any) -> list[Check]:
    """Return the check of what `diag --json` answers. ValueError: no test in it that was run."""
    results = list(_results(answer))
    words = [_STATUS.get(str(result.get("status", "")).lower()) for _, result in results]
    if not results or None in words or all(str(r.get("status", "")).lower() == "skip" for _, r in results):
        raise ValueError("no test that was run is in the answer")
    failed = [(name, result) for name, result in results if str(result["status"]).lower() == "fail"]
    if not failed:
        return [Check("dcgm_diag", "gpu", "warn" if "warn" in words else "pass", message=f"{len(results)} results")]
    return [
        Check("dcgm_diag", "gpu", "fail", _gpu(result), "diagnostic_failed", f"{name}: {_why(result)}"[:400])
        for name, result in failed
    ]


def _results(answer: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each test's name with each of its results, as versions 3 and 4 nest them."""
    top = answer.get("DCGM Diagnostic") or answer.get("DCGM GPU Diagnostic") if isinstance(answer, dict) else None
    for category in (top or {}).get("test_categories", []):
        for test in category.get("tests", []):
            for result in test.get("results", []):
                yield str(test.get("name", "?")), result


def _gpu(result: dict[str, Any]) -> int | None:
    text = str(result.get("gpu_id", result.get("gpu_ids", result.get("entity_id", ""))))
    return int(text) if text.isdecimal() else None


def _why(result: dict[str, Any]) -> str:
    warnings = result.get("warnings") or result.get("info") or ""
    listed = warnings if isinstance(warnings, list) else [warnings]
    return "; ".join(str(w.get("warning", w) if isinstance(w, dict) else w) for w in listed) or "failed"
