"""YAML that people wrote: every mistake is named with its line."""

from pathlib import Path

import pytest
from pydantic import BaseModel

from faultlens.yaml_lines import FILE_BYTES_LIMIT, YamlProblemError, read_yaml, validate


class Item(BaseModel):
    name: str
    size: int


class Shelf(BaseModel):
    title: str
    items: list[Item]


GOOD = """\
title: tools
items:
  - name: saw
    size: 3
  - name: axe
    size: 4
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "file.yaml"


def test_a_good_file_becomes_the_model(path: Path) -> None:
    path.write_text(GOOD)
    found = validate(read_yaml(path), Shelf)
    assert isinstance(found, Shelf)
    assert [item.size for item in found.items] == [3, 4]


def test_every_problem_is_named_with_the_line_it_stands_on(path: Path) -> None:
    path.write_text(GOOD.replace("size: 3", "size: much").replace("    size: 4\n", ""))
    found = validate(read_yaml(path), Shelf)
    assert isinstance(found, list)
    assert [(problem.line, problem.text.split(":")[0]) for problem in found] == [
        (4, "items.0.size"),
        (5, "items.1.size"),
    ]
    assert str(found[0]).startswith(f"{path}:4: items.0.size: ")


def test_a_place_that_is_not_there_is_named_by_the_nearest_that_is(path: Path) -> None:
    path.write_text(GOOD)
    document = read_yaml(path)
    assert document.line(("items", 1, "colour")) == 5
    assert document.line(("items", 9)) == 3
    assert document.line(()) == 1


@pytest.mark.parametrize(
    ("text", "line", "complaint"),
    [
        ("a: 1\nb: ]\n", 2, "not YAML"),
        ("a: 1\nb: 2\na: 3\n", 3, "key 'a' is given twice"),
        ("x:\n  - {k: 1, k: 2}\n", 2, "key 'k' is given twice"),
        ("", 0, "the file is empty"),
        ("# only a comment\n", 0, "the file is empty"),
        ("? [a, b]\n: 1\n", 1, "not YAML: found unhashable key"),
        ("a: !!python/object:os.system {}\n", 1, "not YAML: could not determine a constructor"),
        ("a: \x00\n", 1, "not YAML"),
    ],
)
def test_a_text_that_cannot_be_used_is_refused_with_its_line(path: Path, text: str, line: int, complaint: str) -> None:
    path.write_text(text)
    with pytest.raises(YamlProblemError) as refused:
        read_yaml(path)
    assert refused.value.problem.line == line
    assert complaint in refused.value.problem.text


def test_bytes_that_are_no_text_are_refused(path: Path) -> None:
    path.write_bytes(b"a: \xff\xfe\n")
    with pytest.raises(YamlProblemError, match="not YAML"):
        read_yaml(path)


def test_a_file_that_is_not_there_is_named(path: Path) -> None:
    with pytest.raises(YamlProblemError, match="cannot be read: No such file"):
        read_yaml(path)


def test_a_file_beyond_the_limit_is_not_read_into_values(path: Path) -> None:
    path.write_text("a: " + "x" * FILE_BYTES_LIMIT)
    with pytest.raises(YamlProblemError, match="more than the limit"):
        read_yaml(path)


def test_an_alias_that_leads_to_itself_ends(path: Path) -> None:
    path.write_text("a: &a [*a]\n")
    assert read_yaml(path).line(("a",)) == 1


def test_nested_aliases_are_looked_at_once_each(path: Path) -> None:
    lines = ["a0: &a0 {x: 1}"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 40)]
    path.write_text("\n".join(lines))
    assert read_yaml(path).line(("a39",)) == 40


@pytest.mark.parametrize(("text", "kind"), [("- name: saw\n- name: axe\n", "a list"), ("saw\n", "a single value")])
def test_what_is_no_mapping_is_told_so_in_the_words_of_yaml(text: str, kind: str, path: Path) -> None:
    path.write_text(text)
    found = validate(read_yaml(path), Shelf)
    assert isinstance(found, list)
    assert [str(problem) for problem in found] == [f"{path}:1: is {kind}; a mapping is expected, as in `key: value`"]
