"""House limits that no linter has a rule for; CONTRIBUTING.md says why."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("faultlens", "producers", "streams", "sinks", "slo", "actuators")
OURS = (*PACKAGES, "tests", "bench")
MODULES = sorted(file for folder in OURS for file in (ROOT / folder).rglob("*.py"))
FUNCTION_LINES_MAX = 50
MODULE_LINES_MAX = 400
PARAMETERS_MAX = 7
# The contract's declarations stand in one place, however many they are.
ONE_TABLE = {ROOT / "faultlens" / "events.py"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(tree: ast.AST) -> Iterator[Function]:
    """Yield every function and method."""
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def lines_of(node: Function | ast.ClassDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def parameters_of(function: Function) -> int:
    """Count the parameters that a caller thinks of."""
    names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
    return len([name for name in names if name not in ("self", "cls")])


def is_command(function: Function) -> bool:
    """Return whether each parameter is an option of a command, which its help lists one by one."""
    arguments = (*function.args.args, *function.args.kwonlyargs)
    return any(
        "typer." in ast.unparse(a.annotation) or "Option" in ast.unparse(a.annotation)
        for a in arguments
        if a.annotation
    )


@pytest.mark.parametrize("module", MODULES, ids=lambda module: str(module.relative_to(ROOT)))
def test_a_module_is_small_and_says_what_it_is_for(module: Path) -> None:
    source = module.read_text("utf-8")
    tree = ast.parse(source)
    assert len(source.splitlines()) <= MODULE_LINES_MAX or module in ONE_TABLE, "split it: one idea a module"
    assert ast.get_docstring(tree), "begin it with a line that says what it is for"
    long = {f.name: lines_of(f) for f in functions(tree) if lines_of(f) > FUNCTION_LINES_MAX}
    assert long == {}, "nobody sees them at once"


@pytest.mark.parametrize("package", PACKAGES)
def test_functions_take_few_parameters(package: str) -> None:
    wide = {
        f"{module.relative_to(ROOT)}:{f.lineno} {f.name}": parameters_of(f)
        for module in (ROOT / package).rglob("*.py")
        for f in functions(ast.parse(module.read_text("utf-8")))
        if parameters_of(f) > PARAMETERS_MAX and not is_command(f)
    }
    assert wide == {}, "put what belongs together into a class of its own"


@pytest.mark.parametrize("package", PACKAGES)
def test_what_is_public_says_what_it_returns_and_in_which_units(package: str) -> None:
    silent = [
        f"{module.relative_to(ROOT)}:{node.lineno} {node.name}"
        for module in (ROOT / package).rglob("*.py")
        for node in public(ast.parse(module.read_text("utf-8")))
        if not ast.get_docstring(node)
    ]
    assert silent == []


def public(tree: ast.Module) -> Iterator[Function | ast.ClassDef]:
    """Yield the module's public functions and classes, and the public methods of those."""
    for node in tree.body:
        if isinstance(node, Function | ast.ClassDef) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef) and not is_protocol(node):
                yield from (m for m in node.body if isinstance(m, Function) and not m.name.startswith("_"))


def is_protocol(node: ast.ClassDef) -> bool:
    """Return whether the class says in its own docstring what its methods promise."""
    return any(ast.unparse(base) == "Protocol" for base in node.bases)


@pytest.mark.parametrize("package", PACKAGES)
def test_no_class_has_several_parents(package: str) -> None:
    """What is shared is composed or passed; a parameter of the type is no parent."""
    several = [
        f"{module.relative_to(ROOT)}:{node.lineno} {node.name}"
        for module in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(module.read_text("utf-8")))
        if isinstance(node, ast.ClassDef) and len([base for base in node.bases if not is_generic(base)]) > 1
    ]
    assert several == []


def is_generic(base: ast.expr) -> bool:
    """Return whether a base only names the class's type parameters."""
    return ast.unparse(base).startswith(("Generic[", "Protocol"))


def test_nothing_is_left_for_later() -> None:
    words = ("TO" + "DO", "FIX" + "ME", "XX" + "X")
    found = [
        f"{module.relative_to(ROOT)}:{number}"
        for module in MODULES
        for number, line in enumerate(module.read_text("utf-8").splitlines(), 1)
        if any(word in line for word in words)
    ]
    assert found == []
