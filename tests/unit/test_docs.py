"""What is written for people agrees with what it speaks of."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import unquote

import pytest

from faultlens.cli import VERBS
from faultlens.local import Places, replay
from faultlens.local_roles import load_roles
from faultlens.recordings import Recording
from streams.attribution import load_precision
from streams.attribution.listing import page
from streams.attribution.rules import RULES, name_of

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
# A path of this repository as it stands between backquotes; NNNN stands for any number.
PATH = re.compile(r"`((?:faultlens|producers|streams|sinks|slo|actuators|tests|docs|bench|examples)/[\w./*-]*)`")
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")
COMMAND = re.compile(r"\bfaultlens ([a-z][a-z-]*)\b")


def test_the_list_of_rules_is_that_of_the_code() -> None:
    written = (ROOT / "docs" / "attribution.md").read_text("utf-8")
    assert written == page(load_precision()), "run `make docs`"


def test_every_rule_is_listed_in_its_order() -> None:
    names = re.findall(r"^\| \d+ \| \[`(\w+)`\]", page(load_precision()), re.MULTILINE)
    assert names == [name_of(rule) for rule in RULES]


@pytest.mark.parametrize("document", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_file_that_a_page_names_is_there(document: Path) -> None:
    text = document.read_text("utf-8")
    named = [path for path in PATH.findall(text) if not any(ROOT.glob(path.rstrip("/").replace("NNNN_name", "*")))]
    links = [link for link in LINK.findall(text) if "://" not in link]
    broken = [link for link in links if not (document.parent / unquote(link)).exists()]
    assert (named, broken) == ([], [])


@pytest.mark.parametrize("document", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_that_a_page_shows_is_there(document: Path) -> None:
    """A command stands in backquotes or in a block of code; elsewhere `faultlens says` is a sentence."""
    text = document.read_text("utf-8")
    shown = re.findall(r"^(?: {4}|\$ ).*|`[^`\n]+`", text, re.MULTILINE)
    verbs = {verb for line in shown for verb in COMMAND.findall(line)}
    assert verbs - set(VERBS) == set()


def test_the_story_that_the_architecture_tells_is_what_happens(tmp_path: Path) -> None:
    replay([Recording(str(ROOT / "examples" / "one-fault.jsonl"))], load_roles(), Places(tmp_path))
    said = [json.loads(line)["data"] for line in (tmp_path / "attributions.jsonl").read_text("utf-8").splitlines()]
    first, final = said
    assert (first["status"], final["status"]) == ("provisional", "final")
    assert (final["cause"]["class"], final["cause"]["code"], final["basis"]) == (
        "hardware",
        "gpu.off_bus",
        "established",
    )
    assert (final["culprit"]["node"], final["culprit"]["device"]) == ("node-0042", {"index": 5})
    assert (final["rule"], final["retry"]["advice"]) == ("device_fault_on_allocated_gpu", "retry_elsewhere")
    states = [json.loads(line)["data"]["state"] for line in (tmp_path / "node-states.jsonl").read_text().splitlines()]
    assert states == ["available", "degraded"]
    assert not (tmp_path / "dead-letters.jsonl").exists()
