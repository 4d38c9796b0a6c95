"""YAML that people wrote, read so that an error can name the line."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from faultlens.errors import ConfigurationError

# Far above any file a person keeps; a mistaken path must not fill the memory.
FILE_BYTES_LIMIT: Final = 2 << 20

Location = Sequence[int | str]
_Model = TypeVar("_Model", bound=BaseModel)
_Read = TypeVar("_Read")


class Problem(NamedTuple):
    """What is wrong, where: `str()` gives `file:line: text`, and `file: text` for line 0, a file as a whole."""

    path: Path
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}" if self.line else f"{self.path}: {self.text}"


class YamlProblemError(ValueError):
    """A file that is no YAML document; `problem` says where and why."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


class YamlDocument:
    """One document of a file: its plain values (`data`) and the line of each."""

    def __init__(self, path: Path, root: yaml.Node, data: Any) -> None:
        self.path = path
        self._root = root
        self.data = data

    def line(self, location: Location) -> int:
        """The line, from 1, of the deepest part of `location` that the document has."""
        node = self._root
        for part in location:
            child = _child(node, part)
            if child is None:
                break
            node = child
        return int(node.start_mark.line) + 1

    def problem(self, location: Location, text: str) -> Problem:
        """A problem at a place of this document."""
        return Problem(self.path, self.line(location), text)

    def problems_of(self, error: ValidationError) -> list[Problem]:
        """Each complaint of a pydantic model about the document."""
        if not isinstance(self.data, dict):
            kind = "a list" if isinstance(self.data, list) else "a single value"
            return [self.problem((), f"is {kind}; a mapping is expected, as in `key: value`")]
        return [self.problem(found["loc"], f"{_dotted(found['loc'])}: {found['msg']}") for found in error.errors()]


def read_yaml(path: Path) -> YamlDocument:
    """Reads one document. Raises `YamlProblemError`: unreadable, too large, empty, no YAML, a key given twice."""
    return _read(path, _document)


def read_yaml_documents(path: Path) -> list[YamlDocument]:
    """Reads the documents of a file, which `---` parts. Raises `YamlProblemError` as `read_yaml` does."""
    return _read(path, _documents)


def _read(path: Path, read: Callable[[Path, bytes], _Read]) -> _Read:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise YamlProblemError(Problem(path, 0, f"cannot be read: {error.strerror}")) from error
    if len(raw) > FILE_BYTES_LIMIT:
        raise YamlProblemError(Problem(path, 0, f"{len(raw)} bytes are more than the limit of {FILE_BYTES_LIMIT}"))
    try:
        return read(path, raw)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise YamlProblemError(Problem(path, line, f"not YAML: {error.problem}")) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise YamlProblemError(Problem(path, 1, f"not YAML: {error}")) from error


def _document(path: Path, raw: bytes) -> YamlDocument:
    root = yaml.compose(raw, Loader=yaml.CSafeLoader)
    if root is None:
        raise YamlProblemError(Problem(path, 0, "the file is empty"))
    return _of_node(path, root)


def _documents(path: Path, raw: bytes) -> list[YamlDocument]:
    found = [_of_node(path, root) for root in yaml.compose_all(raw, Loader=yaml.CSafeLoader)]
    documents = [document for document in found if document.data is not None]
    if not documents:
        raise YamlProblemError(Problem(path, 0, "the file is empty"))
    return documents


def _of_node(path: Path, root: yaml.Node) -> YamlDocument:
    _refuse_repeated_keys(path, root)
    return YamlDocument(path, root, yaml.constructor.SafeConstructor().construct_document(root))


def validate(document: YamlDocument, model: type[_Model]) -> _Model | list[Problem]:
    """The document as `model`, or every problem it has with it."""
    try:
        return model.model_validate(document.data)
    except ValidationError as error:
        return document.problems_of(error)


def load_model(path: Path, model: type[_Model], what: str = "") -> _Model:
    """The document at `path` as `model`. ConfigurationError: every problem with file and line, below `what`."""
    try:
        found = validate(read_yaml(path), model)
    except YamlProblemError as error:
        raise ConfigurationError(str(error)) from None
    if isinstance(found, list):
        raise ConfigurationError("\n".join([*filter(None, [what]), *map(str, found)]))
    return found


def compiles(pattern: str) -> str:
    """The pattern itself; ValueError if it is no regular expression. For models, as a validator."""
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"no regular expression: {error}") from None
    return pattern


def _refuse_repeated_keys(path: Path, root: yaml.Node) -> None:
    """Of a key given twice YAML keeps the last one silently: half of what was written would not count."""
    pending = [root]
    visited: set[int] = set()  # an alias leads to the same node again, perhaps to itself
    while pending:
        node = pending.pop()
        if id(node) in visited:
            continue
        visited.add(id(node))
        if isinstance(node, yaml.MappingNode):
            _refuse_repeated_keys_of(path, node)
            pending.extend(value for _, value in node.value)
        elif isinstance(node, yaml.SequenceNode):
            pending.extend(node.value)


def _refuse_repeated_keys_of(path: Path, mapping: yaml.MappingNode) -> None:
    seen: set[str] = set()
    for key, _ in mapping.value:
        word = str(key.value)
        if word in seen:
            line = int(key.start_mark.line) + 1
            raise YamlProblemError(Problem(path, line, f"key {word!r} is given twice"))
        seen.add(word)


def _child(node: yaml.Node, part: int | str) -> yaml.Node | None:
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int):
        return node.value[part] if part < len(node.value) else None
    if isinstance(node, yaml.MappingNode):
        return next((value for key, value in node.value if key.value == str(part)), None)
    return None


def _dotted(location: Location) -> str:
    return ".".join(str(part) for part in location) or "document"
