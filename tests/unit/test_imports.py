"""Who may import whom: the contracts of pyproject.toml hold, and every breach would be noticed."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PACKAGES = PROJECT["tool"]["importlinter"]["root_packages"]
CONTRACTS = {contract["id"]: contract["name"] for contract in PROJECT["tool"]["importlinter"]["contracts"]}

# What must not be imported there, by contract.
BREACHES = {
    "packages": ("sinks/rows.py", "import slo.intervals"),
    "core": ("streams/samples.py", "import socket"),
    "clock": ("streams/findings.py", "import time"),
    "live": ("streams/weighing.py", "import streams.live.changelog"),
    "faust": ("sinks/batch.py", "import faust"),
    "driver": ("slo/measure.py", "import clickhouse_connect"),
    "kubernetes": ("producers/kubernetes/runs.py", "import kubernetes_asyncio"),
    "progress": ("faultlens/progress.py", "import msgspec"),
}


def lint(directory: Path) -> subprocess.CompletedProcess[str]:
    command: list[str | Path] = [Path(sys.executable).with_name("lint-imports"), "--no-logo", "--no-cache"]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=120, check=False)


def test_the_contracts_are_kept() -> None:
    done = lint(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_there_is_a_breach_for_every_contract() -> None:
    assert set(BREACHES) == set(CONTRACTS)


@pytest.fixture(scope="module")
def breached(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return what is said of a copy of the project in which every contract is broken."""
    copy = tmp_path_factory.mktemp("breached")
    shutil.copy(ROOT / "pyproject.toml", copy)
    for package in PACKAGES:
        shutil.copytree(ROOT / package, copy / package, ignore=shutil.ignore_patterns("__pycache__", "data", "*.sql"))
    for path, statement in BREACHES.values():
        source = copy / path
        source.write_text(source.read_text("utf-8") + f"\n{statement}\n", "utf-8")
    return lint(copy).stdout


@pytest.mark.parametrize("contract", BREACHES)
def test_a_breach_is_noticed(breached: str, contract: str) -> None:
    assert f"{CONTRACTS[contract]} BROKEN" in breached


# --- the composition root ------------------------------------------------------------------------------

ROOT_MODULE = ("faultlens.cli", "faultlens.local")
PARTS = tuple(package for package in PACKAGES if package != "faultlens")


def imported(source: str) -> set[str]:
    """Return the names of all modules that the source imports, also within functions."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def misplaced(module: str, source: str) -> list[str]:
    """Return what a module imports that only the composition root may put together."""
    if module.startswith(ROOT_MODULE):
        return []
    own = module.partition(".")[0]
    return sorted(
        name
        for name in imported(source)
        if name.startswith(ROOT_MODULE) or (own == "faultlens" and name.partition(".")[0] in PARTS)
    )


@pytest.mark.parametrize("package", PACKAGES)
def test_only_the_composition_root_puts_the_packages_together(package: str) -> None:
    modules = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in (ROOT / package).rglob("*.py")}
    found = {name: misplaced(name, path.read_text("utf-8")) for name, path in modules.items()}
    assert {name: names for name, names in found.items() if names} == {}


@pytest.mark.parametrize(
    ("module", "source", "names"),
    [
        ("faultlens.codec", "def f():\n    import sinks.rows", ["sinks.rows"]),
        ("faultlens.codec", "from slo import wording", ["slo", "slo.wording"]),
        ("streams.samples", "from faultlens import local_roles", ["faultlens.local_roles"]),
        ("streams.samples", "from faultlens import clock\nimport streams.context", []),
        ("faultlens.cli_answers", "from slo import wording", []),
    ],
)
def test_a_misplaced_import_is_found(module: str, source: str, names: list[str]) -> None:
    assert misplaced(module, source) == names
