"""Objectives as data: what the fleet promises, over which period, and how fast its budget may burn."""

from faultlens.objectives.durations import iso_duration, parse_duration_ms, plain_duration
from faultlens.objectives.loader import load_objectives
from faultlens.objectives.model import Exclusion, NeverFires, Objective, Objectives, Scope, Tier, Unit
from faultlens.objectives.windows import Window

__all__ = [
    "Exclusion",
    "NeverFires",
    "Objective",
    "Objectives",
    "Scope",
    "Tier",
    "Unit",
    "Window",
    "iso_duration",
    "load_objectives",
    "parse_duration_ms",
    "plain_duration",
]
