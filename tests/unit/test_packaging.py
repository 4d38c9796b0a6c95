"""Our package names are short words; they stay ours, and what is built holds all of them."""

from __future__ import annotations

import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
OURS = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]


@pytest.mark.parametrize("name", OURS)
def test_no_dependency_claims_our_name(name: str) -> None:
    # An editable install lists no files, so that nobody at all may own the name.
    assert set(packages_distributions().get(name, [])) <= {"faultlens"}


def test_every_folder_with_code_is_built_checked_and_guarded() -> None:
    folders = {init.parent.name for init in ROOT.glob("*/__init__.py")}
    tool = PROJECT["tool"]
    assert folders == set(OURS)
    assert folders == set(tool["importlinter"]["root_packages"])
    assert folders == set(tool["coverage"]["run"]["source"])
    assert folders <= set(tool["mypy"]["files"])


def test_every_folder_of_a_package_is_a_package() -> None:
    """A folder without `__init__.py` would be missing from what type checkers and import contracts look at."""
    modules = [path for name in OURS for path in (ROOT / name).rglob("*.py")]
    assert [str(path.relative_to(ROOT)) for path in modules if not (path.parent / "__init__.py").exists()] == []
