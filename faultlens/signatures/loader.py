"""Reads signatures from YAML: the shipped ones, and a site's own from directories."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from pydantic import BaseModel

from faultlens.errors import ConfigurationError
from faultlens.signatures.entries import Manifest, SignatureFile
from faultlens.signatures.matcher import SignatureSet
from faultlens.signatures.model import Signature
from faultlens.yaml_lines import Problem, YamlDocument, YamlProblemError, read_yaml, validate

SHIPPED_DIRECTORY: Final = Path(__file__).parent / "data"
MANIFEST_FILE: Final = "manifest.yaml"
NEXT_STEPS_FILE: Final = "next_steps.yaml"
_NO_SIGNATURES: Final = frozenset({MANIFEST_FILE, NEXT_STEPS_FILE})

SIGNATURES_LIMIT: Final = 2000
FILES_LIMIT: Final = 200
PROBLEMS_SHOWN: Final = 50

_Model = TypeVar("_Model", bound=BaseModel)


class SignatureError(ConfigurationError):
    """The signatures cannot be used; the message lists every problem with file and line."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems: tuple[Problem, ...] = tuple(problems)
        shown = [str(problem) for problem in self.problems[:PROBLEMS_SHOWN]]
        hidden = len(self.problems) - len(shown)
        more = [f"and {hidden} more"] if hidden else []
        super().__init__("\n".join(["the signatures cannot be used:", *shown, *more]))


def load_signatures(site_dirs: Sequence[Path] = ()) -> SignatureSet:
    """The shipped signatures, and those of the site, which replace shipped or earlier ones of the same id.

    Raises `SignatureError`. The version names the shipped version and, where a site adds its own, a digest of
    what it added.
    """
    merged = {signature.id: signature for signature in read_directory(SHIPPED_DIRECTORY)}
    site: dict[str, Signature] = {}
    for directory in site_dirs:
        site |= {signature.id: signature for signature in read_directory(directory, site=True)}
    merged |= site
    if len(merged) > SIGNATURES_LIMIT:
        text = f"{len(merged)} signatures are more than the limit of {SIGNATURES_LIMIT}: remove some"
        raise SignatureError([Problem(site_dirs[-1] if site_dirs else SHIPPED_DIRECTORY, 1, text)])
    return SignatureSet(merged.values(), version=_version(site.values()))


def compile_signatures(signatures: Iterable[Signature], *, version: str) -> SignatureSet:
    """A set of given signatures, for tools and tests that bring their own. Raises `PatternError`."""
    return SignatureSet(signatures, version=version)


def read_directory(directory: Path, *, site: bool = False) -> list[Signature]:
    """All signatures of the directory's `*.yaml` files, in the order of file names. Raises `SignatureError`."""
    paths = sorted(path for path in directory.glob("*.yaml") if site or path.name not in _NO_SIGNATURES)
    if not 0 < len(paths) <= FILES_LIMIT:
        text = f"holds {len(paths)} signature files (*.yaml), expected 1 to {FILES_LIMIT}: give their directory"
        raise SignatureError([Problem(directory, 1, text)])
    shelf = _Shelf(site=site)
    for path in paths:
        shelf.add_file(path)
    if shelf.problems:
        raise SignatureError(shelf.problems)
    return list(shelf.signatures.values())


class _Shelf:
    """The signatures of one directory, and everything that is wrong with them."""

    def __init__(self, *, site: bool) -> None:
        self.signatures: dict[str, Signature] = {}
        self.problems: list[Problem] = []
        self._site = site

    def add_file(self, path: Path) -> None:
        document, file = _read(path, SignatureFile)
        for index, entry in enumerate(file.signatures):
            complaints = list(entry.complaints(site=self._site))
            if entry.id in self.signatures:
                complaints.append("this id is given twice: rename one of them")
            location = ("signatures", index)
            self.problems += [document.problem(location, f"{entry.id}: {text}") for text in complaints]
            if not complaints:
                self.signatures[entry.id] = entry.signature(file.origin)


def _read(path: Path, model: type[_Model]) -> tuple[YamlDocument, _Model]:
    try:
        document = read_yaml(path)
    except YamlProblemError as error:
        raise SignatureError([error.problem]) from None
    found = validate(document, model)
    if isinstance(found, list):
        raise SignatureError(found)
    return document, found


def _version(site: Iterable[Signature]) -> str:
    _, manifest = _read(SHIPPED_DIRECTORY / MANIFEST_FILE, Manifest)
    added = sorted(repr(signature) for signature in site)
    if not added:
        return f"signatures {manifest.version}"
    digest = hashlib.sha256("\n".join(added).encode()).hexdigest()[:8]
    return f"signatures {manifest.version}+site.{digest}"
