"""A check as a plugin of node-problem-detector, whose protocol fails open: all that is not 0 or 1 counts as healthy."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from faultlens.events import Check
from producers.agent.configuration import Configuration
from producers.agent.probes.table import probes_of
from producers.agent.reporting import UNHEALTHY

# The plugin's own time beyond its probe's deadline: starting, and the probes' server.
_MARGIN_S: Final = 5
_OUTPUT_CHARS: Final = 80


class Answer(NamedTuple):
    """What a plugin says: whether all is well, and why not."""

    healthy: bool
    message: str


def plugin_answer(checks: Sequence[Check]) -> Answer:
    """Return the answer that checks come to; what is not known is a problem, and the message says which way."""
    bad = [check for check in checks if check.status in UNHEALTHY]
    if not bad:
        return Answer(True, "; ".join(check.message or f"{check.name} is well" for check in checks))
    return Answer(False, "; ".join(f"{check.status}: {check.message or check.code or check.name}" for check in bad))


def plugin_trouble(why: str) -> Answer:
    """Return the answer where the check cannot be made at all: that is no sign of health."""
    return Answer(False, f"error: {' '.join(why.split())}")


def plugin_rules(configuration: Configuration, path: Path) -> str:
    """Return node-problem-detector's custom plugin configuration: a permanent condition for each check of this node."""
    probes = probes_of(configuration)
    deadline_s = max((probe.deadline_s for probe in probes), default=10.0)
    document: dict[str, Any] = {
        "plugin": "custom",
        "pluginConfig": {
            "invoke_interval": f"{configuration.interval_s:g}s",
            "timeout": f"{deadline_s + _MARGIN_S + 1:g}s",
            "max_output_length": _OUTPUT_CHARS,
            "concurrency": 3,
            "enable_message_change_based_condition_update": True,
        },
        "source": "faultlens",
        "skip_initial_status": True,
        "metricsReporting": True,
        "conditions": [
            {"type": condition_of(p.name), "reason": f"{condition_of(p.name)}IsWell", "message": f"{p.name} is well"}
            for p in probes
        ],
        "rules": [
            {
                "type": "permanent",
                "condition": condition_of(probe.name),
                "reason": f"{condition_of(probe.name)}Found",
                "path": "faultlens",
                "args": ["npd-check", probe.name, "--config", str(path.absolute())],
                "timeout": f"{probe.deadline_s + _MARGIN_S:g}s",
            }
            for probe in probes
        ],
    }
    return json.dumps(document, indent=2) + "\n"


def condition_of(check: str) -> str:
    """Return the node condition of a check: `local_disk` is `LocalDiskProblem`."""
    return "".join(part.capitalize() for part in check.split("_")) + "Problem"
