"""What a rule answers: cause, basis, culprit, and which observations it rests on."""

from __future__ import annotations

from msgspec import Struct

from faultlens.causes import class_of
from faultlens.events import Advice, Basis, CauseClass, DeviceRef, EvidenceItem
from faultlens.internal import Observation


class Finding(Struct, frozen=True):
    """A rule's answer. `roots` are the observations it rests on, `items` further evidence in words.

    `established` needs a root: an observation in `roots` or an item with the role `root`. `said_class` is the class
    that a person named; else it follows from the code.
    """

    code: str
    basis: Basis
    summary: str
    node: str | None = None
    device: DeviceRef | None = None
    rank: int | None = None
    roots: tuple[Observation, ...] = ()
    items: tuple[EvidenceItem, ...] = ()
    advice: Advice | None = None
    said_class: CauseClass | None = None

    @property
    def cause_class(self) -> CauseClass:
        """Whom the failure is charged to."""
        return self.said_class or class_of(self.code)
