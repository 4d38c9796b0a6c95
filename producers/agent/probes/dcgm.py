"""What DCGM's health watches say. The tool's exit status says nothing, and a watch that is not set watches nothing."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from typing import Any, Final

from faultlens.events import Check, CheckStatus
from producers.agent.probe import MissingError

MAX_OUTPUT_BYTES: Final = 1 << 20
_STATUS: Final[Mapping[str, CheckStatus]] = {"healthy": "pass", "warning": "warn", "failure": "fail"}


def look_at_health(program: str, timeout_s: float) -> list[Check]:
    """Ask `dcgmi` for the health of all GPUs. MissingError: it is not installed, or no watch is set."""
    path = shutil.which(program)
    if path is None:
        raise MissingError(f"{program} is not installed")
    if not watches(said(path, timeout_s, "health", "--fetch", "--json")):
        raise MissingError(f"no health watch is set: run {program} health --set a")
    return judge(said(path, timeout_s, "health", "--check", "--json"))


def said(path: str, timeout_s: float, *arguments: str) -> Any:
    """Return what `dcgmi` answers in JSON. ValueError: it answers something else."""
    command = [path, *arguments]
    done = subprocess.run(command, capture_output=True, timeout=timeout_s, check=False, stdin=subprocess.DEVNULL)  # noqa: S603
    output = done.stdout[:MAX_OUTPUT_BYTES]
    try:
        return json.loads(output)
    except ValueError:
        told = (done.stderr or output)[:200].decode("utf-8", "replace").strip()
        raise ValueError(f"{' '.join(arguments)} answered no JSON (exit status {done.returncode}): {told}") from None


def watches(answer: Any) -> bool:
    """Return whether any watch is set, by what `health --fetch` answers."""
    return any(str(value).strip().lower() in ("on", "true", "yes") for value in _values(answer))


def judge(answer: Any) -> list[Check]:
    """Return the check of what `health --check` answers. ValueError: it is not what DCGM is known to answer."""
    body = answer.get("body") if isinstance(answer, dict) else None
    overall = body.get("Overall Health") if isinstance(body, dict) else None
    word = str(overall.get("value") if isinstance(overall, dict) else overall).lower()
    if word not in _STATUS:
        raise ValueError(f"no “Overall Health” that is known in the answer: {word[:40]!r}")
    told = "; ".join(_errors(overall))[:400] if isinstance(overall, dict) else ""
    return [Check("dcgm", "gpu", _STATUS[word], message=told or None)]


def _errors(node: Any) -> Iterator[str]:
    """Yield the words of every `Errors` entry below a node of the answer."""
    if isinstance(node, dict):
        for name, value in node.items():
            if name == "Errors":
                yield from (" ".join(str(word).split()) for word in _values(value))
            else:
                yield from _errors(value)
    elif isinstance(node, list):
        for value in node:
            yield from _errors(value)


def _values(node: Any) -> Iterator[str]:
    """Yield every plain value of an answer."""
    if isinstance(node, dict):
        for value in node.values():
            yield from _values(value)
    elif isinstance(node, list):
        for value in node:
            yield from _values(value)
    elif node is not None:
        yield str(node)
