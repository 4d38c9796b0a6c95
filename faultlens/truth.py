"""What is known to have made attempts fail, and to have been wrong with machines: lines of JSON."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from faultlens.errors import UsageError
from faultlens.events import CauseClass, Data, Moment


class Truth(Data, frozen=True):
    """The true cause of one failure, or of one loss (`loss`) that an attempt survived.

    `decidable` says whether somebody who sees every delivered event, and nothing else, could tell the class;
    `why` says in words what happened and what gives it away. Without `node` no machine is to blame.
    """

    job_id: str
    attempt: int
    cause_class: CauseClass = msgspec.field(name="class")
    code: str
    decidable: bool
    why: str
    ended_at: Moment
    started: bool
    loss: int | None = None
    node: str | None = None
    device_index: int | None = None


class Breakage(Data, frozen=True):
    """Something that was truly wrong with a machine, seen or not: one line of breakages.jsonl.

    `over_at` None: it was never repaired.
    """

    node: str
    code: str
    began_at: Moment
    over_at: Moment | None = None
    device_index: int | None = None


_ENCODER: Final = msgspec.json.Encoder()
_TRUTHS: Final = msgspec.json.Decoder(Truth)
_BREAKAGES: Final = msgspec.json.Decoder(Breakage)
_Line = TypeVar("_Line")


def truth_line(truth: Truth | Breakage) -> bytes:
    """Return the truth as one line of JSON, with its line end."""
    return _ENCODER.encode(truth) + b"\n"


def read_truths(path: Path) -> Iterator[Truth]:
    """Yield the truths of a file, one a line; UsageError names the line that is none."""
    return _lines(path, _TRUTHS)


def read_breakages(path: Path) -> Iterator[Breakage]:
    """Yield what was wrong with machines, one a line; UsageError names the line that does not say so."""
    return _lines(path, _BREAKAGES)


def _lines(path: Path, decoder: msgspec.json.Decoder[_Line]) -> Iterator[_Line]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                yield decoder.decode(line)
            except msgspec.DecodeError as error:
                raise UsageError(f"{path}:{number}: not a line of truth: {error}") from None
