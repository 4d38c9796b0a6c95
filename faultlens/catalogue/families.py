"""Which GPU families there are, and which generation's meaning of a code holds for each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

_FamilyName = Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Za-z0-9]{0,19}$")]
_GenerationName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,29}$")]

# Agents send `H100`, others what the driver prints, such as `NVIDIA H100 80GB HBM3`.
_WORD: Final = re.compile(r"[A-Za-z0-9]+")
_TEXT_LIMIT: Final = 200


class Generation(BaseModel):
    """Families for which a vendor gives the codes the same meaning."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    vendor: Literal["nvidia", "amd", "aws"]
    nvidia_column: str | None = None
    families: tuple[_FamilyName, ...] = Field(min_length=1)
    note: str | None = None


class FamiliesFile(BaseModel):
    """`families.yaml`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    generations: Mapping[_GenerationName, Generation] = Field(min_length=1)

    @model_validator(mode="after")
    def _no_family_twice(self) -> FamiliesFile:
        seen: set[str] = set()
        for generation in self.generations.values():
            repeated = {family.upper() for family in generation.families} & seen
            if repeated:
                raise ValueError(f"in two generations: {', '.join(sorted(repeated))}")
            seen.update(family.upper() for family in generation.families)
        return self


class Families:
    """The known families, by name and generation."""

    def __init__(self, generations: Mapping[str, Generation]) -> None:
        self.generations = generations
        self._by_upper = {family.upper(): family for family in _members(generations.values())}

    def canonical(self, text: str | None) -> str | None:
        """The known family that a text names (`NVIDIA H100 80GB HBM3` is `H100`), or None."""
        if text is None:
            return None
        for word in _WORD.findall(text[:_TEXT_LIMIT]):
            family = self._by_upper.get(word.upper())
            if family is not None:
                return family
        return None

    def expand(self, names: Iterable[str]) -> frozenset[str]:
        """The families behind names of families, generations and vendors. Raises `KeyError` with an unknown name."""
        found: set[str] = set()
        for name in names:
            of_vendor = self.of_vendor(name)
            if name in self.generations:
                found.update(self.generations[name].families)
            elif of_vendor:
                found.update(of_vendor)
            elif name.upper() in self._by_upper:
                found.add(self._by_upper[name.upper()])
            else:
                raise KeyError(name)
        return frozenset(found)

    def of_vendor(self, vendor: str) -> tuple[str, ...]:
        """A vendor's families, oldest generation first."""
        return tuple(_members(g for g in self.generations.values() if g.vendor == vendor))

    def vendor_of(self, family: str) -> str:
        """The vendor of a known family. Raises `KeyError` with an unknown one."""
        for generation in self.generations.values():
            if family in generation.families:
                return generation.vendor
        raise KeyError(family)

    def all(self) -> tuple[str, ...]:
        """Every known family."""
        return tuple(self._by_upper.values())

    def short(self, families: Iterable[str]) -> str:
        """Families in few words: whole vendors and generations by their names, the others by their own."""
        left = set(families)
        words = []
        vendors = {generation.vendor: self.of_vendor(generation.vendor) for generation in self.generations.values()}
        for name, members in [*vendors.items(), *((n, g.families) for n, g in self.generations.items())]:
            if left.issuperset(members):
                words.append(name)
                left -= set(members)
        return ", ".join([*words, *sorted(left)])

    def names(self) -> list[str]:
        """Every word that may stand where a catalogue entry names families."""
        return [*dict.fromkeys(g.vendor for g in self.generations.values()), *self.generations, *self.all()]


def _members(generations: Iterable[Generation]) -> Iterable[str]:
    return (family for generation in generations for family in generation.families)
