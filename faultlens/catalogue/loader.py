"""Reads the catalogue: the shipped files, and a site's own laid over them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from pydantic import BaseModel

from faultlens.catalogue import integrity
from faultlens.catalogue.assemble import Key, assemble, assemble_site, complete
from faultlens.catalogue.families import Families, FamiliesFile
from faultlens.catalogue.judgement import Judgement
from faultlens.catalogue.lookup import Catalogue, Reading, Site
from faultlens.catalogue.model import CatalogueFile, SiteFile
from faultlens.catalogue.nvlink5 import DecodeFile
from faultlens.catalogue.others import Others
from faultlens.catalogue.recovery import Recovery, RecoveryFile
from faultlens.catalogue.shelf import Patch, Placed, Shelf
from faultlens.errors import ConfigurationError
from faultlens.yaml_lines import Problem, YamlProblemError, read_yaml, validate

SHIPPED_DIRECTORY: Final = Path(__file__).parent / "data"
FAMILIES_FILE: Final = "families.yaml"
RECOVERY_FILE: Final = "nvidia_recovery.yaml"
OTHERS_FILE: Final = "others.yaml"
DECODE_FILE: Final = "nvidia_nvlink5_decode.yaml"
_NO_ENTRIES: Final = frozenset({FAMILIES_FILE, RECOVERY_FILE, OTHERS_FILE, DECODE_FILE})

SITE_FILES_LIMIT: Final = 100
PROBLEMS_SHOWN: Final = 50

_Model = TypeVar("_Model", bound=BaseModel)


class CatalogueError(ConfigurationError):
    """The catalogue cannot be used; the message lists every problem with file and line."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems: tuple[Problem, ...] = tuple(problems)
        shown = [str(problem) for problem in self.problems[:PROBLEMS_SHOWN]]
        hidden = len(self.problems) - len(shown)
        more = [f"and {hidden} more"] if hidden else []
        super().__init__("\n".join(["the fault catalogue cannot be used:", *shown, *more]))


def load_catalogue(site_dirs: Sequence[Path] = (), *, shipped_dir: Path = SHIPPED_DIRECTORY) -> Catalogue:
    """The shipped catalogue with each site directory laid over it, the later over the earlier.

    Raises `CatalogueError` with every problem: unknown words, gaps, overlaps, a site's entry without reason and date.
    """
    ours = _shipped(shipped_dir)
    problems: list[Problem] = []
    site: list[Shelf[Patch]] = []
    digest = hashlib.sha256()
    for directory in site_dirs:
        shelf, found = _site_shelf(directory, ours, digest)
        site.append(shelf)
        problems += found
    if problems:
        raise CatalogueError(problems)
    laid_over = Site(tuple(site), digest.hexdigest()[:8] if site else "")
    return Catalogue(
        families=ours.families, shipped=ours.shelf, reading=ours.reading, others=ours.others, site=laid_over
    )


@cache  # the files of the package do not change while it runs
def load_families() -> Families:
    """The shipped GPU families alone, for who only needs their names. Raises `CatalogueError`."""
    return _families(SHIPPED_DIRECTORY)


def _families(directory: Path) -> Families:
    return Families(_read(directory / FAMILIES_FILE, FamiliesFile).generations)


class _Shipped(NamedTuple):
    families: Families
    reading: Reading
    others: Others
    shelf: Shelf[Judgement]


@lru_cache(maxsize=1)  # the files of the package do not change while it runs
def _shipped(directory: Path) -> _Shipped:
    families = _families(directory)
    reading = Reading(
        recovery=Recovery(_read(directory / RECOVERY_FILE, RecoveryFile)),
        nvlink5=_read(directory / DECODE_FILE, DecodeFile),
    )
    others = _read(directory / OTHERS_FILE, Others)
    shelf = _shipped_shelf(directory, families)
    problems = integrity.unknown_subcodes(shelf, reading.nvlink5.subcodes(), directory / DECODE_FILE)
    if problems:
        raise CatalogueError(problems)
    return _Shipped(families, reading, others, shelf)


def _read(path: Path, model: type[_Model]) -> _Model:
    try:
        found = validate(read_yaml(path), model)
    except YamlProblemError as error:
        raise CatalogueError([error.problem]) from None
    if isinstance(found, list):
        raise CatalogueError(found)
    return found


def _shipped_shelf(directory: Path, families: Families) -> Shelf[Judgement]:
    entries: list[tuple[Key, Placed[Judgement]]] = []
    problems: list[Problem] = []
    for path in sorted(directory.glob("*.yaml")):
        if path.name in _NO_ENTRIES:
            continue
        try:
            document = read_yaml(path)
        except YamlProblemError as error:
            problems.append(error.problem)
            continue
        file = validate(document, CatalogueFile)
        if isinstance(file, list):
            problems += file
            continue
        assembled = assemble(document, file, families)
        entries += assembled.entries
        problems += assembled.problems
    shelf = Shelf(entries)
    problems += integrity.overlaps(shelf)
    # Whatever is missing because a file could not be read is no problem of its own.
    if not problems:
        problems += [
            *integrity.gaps(shelf, families, directory),
            *integrity.defaults(shelf, directory),
            *integrity.references(shelf),
        ]
    if problems:
        raise CatalogueError(problems)
    return shelf


def _site_shelf(directory: Path, ours: _Shipped, digest: hashlib._Hash) -> tuple[Shelf[Patch], list[Problem]]:
    paths = sorted(directory.glob("*.yaml")) if directory.is_dir() else []
    if not 0 < len(paths) <= SITE_FILES_LIMIT:
        text = f"holds {len(paths)} catalogue files (*.yaml), expected 1 to {SITE_FILES_LIMIT}: give their directory"
        return Shelf(), [Problem(directory, 1, text)]
    entries: list[tuple[Key, Placed[Patch]]] = []
    problems: list[Problem] = []
    for path in paths:
        try:
            document = read_yaml(path)
        except YamlProblemError as error:
            problems.append(error.problem)
            continue
        digest.update(path.read_bytes())
        file = validate(document, SiteFile)
        if isinstance(file, list):
            problems += file
            continue
        assembled = assemble_site(document, file, ours.families)
        entries += assembled.entries
        problems += assembled.problems
    shelf = Shelf(entries)
    return shelf, [*problems, *integrity.overlaps(shelf), *_site_problems(shelf, ours.shelf)]


def _site_problems(shelf: Shelf[Patch], shipped: Shelf[Judgement]) -> list[Problem]:
    problems: list[Problem] = []
    for (kind, code), entries in shelf.items():
        for entry in entries:
            texts = integrity.patch_references(shipped, entry.content)
            missing = complete(entry.content)
            if (kind, code) not in shipped and missing:
                texts.append(f"{kind} {code} is not in our catalogue: say {', '.join(missing)} too")
            problems += [Problem(entry.where.path, entry.where.line, text) for text in texts]
    return problems
