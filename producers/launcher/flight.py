"""PyTorch's flight recorder: which ranks never came to the collective that the others wait in."""

from __future__ import annotations

import os
import pickle
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

# A dump holds the last few thousand collectives of one rank; what is larger is none.
DUMP_BYTES: Final = 64 << 20
DUMPS: Final = 4_096
SUSPECTS: Final = 64
# PyTorch's names: first the present one, then that of versions up to 2.8; and where a dump can be asked for.
_PLACES: Final = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_PIPES: Final = ("TORCH_FR_DUMP_PIPE_FILE", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE")
# Of more missing dumps than this share it is not known whether the ranks are absent or only their files elsewhere.
_MISSING_SHARE: Final = 8
_WHOLE: Final = re.compile(r"\d+$")


class Entry(NamedTuple):
    """A collective in a dump: of which group, its number there, and whether this rank has it behind itself."""

    group: str
    number: int
    is_done: bool


def place_of(environment: Mapping[str, str]) -> str | None:
    """Return how the files of dumps begin; None: the flight recorder is not configured."""
    return next((environment[name] for name in _PLACES if environment.get(name)), None)


def ask_for_dumps(environment: Mapping[str, str], ranks: int) -> int:
    """Ask every rank's process for a dump, by the pipes that are there; return how many were asked."""
    prefix = next((environment[name] for name in _PIPES if environment.get(name)), None)
    asked = 0
    for rank in range(min(ranks, DUMPS)) if prefix is not None else ():
        try:
            pipe = os.open(f"{prefix}{rank}.pipe", os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            continue  # nobody reads it, or it is elsewhere
        try:
            asked += os.write(pipe, b"1\n") > 0
        except OSError:
            continue
        finally:
            os.close(pipe)
    return asked


def read_dumps(prefix: str) -> dict[int, list[Entry]]:
    """Return the collectives of each rank whose dump can be read."""
    place = Path(prefix)
    found: dict[int, list[Entry]] = {}
    for path in sorted(place.parent.glob(f"{place.name}*"))[:DUMPS]:
        rank = _WHOLE.search(path.name)
        if rank is None or path.name != f"{place.name}{rank[0]}":
            continue
        try:
            if path.stat().st_size <= DUMP_BYTES:
                with path.open("rb") as file:
                    found[int(rank[0])] = list(_entries(_Plain(file).load()))
        except (OSError, ValueError, EOFError, pickle.UnpicklingError, KeyError, TypeError, AttributeError, IndexError):
            continue
    return found


class _Plain(pickle.Unpickler):
    """Reads plain values only: a dump is a file that anybody may have written."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"a dump holds no {module}.{name}")


def _entries(dump: Any) -> Iterator[Entry]:
    for entry in dump["entries"] if isinstance(dump, dict) else ():
        if entry.get("is_p2p"):
            continue
        group = entry.get("process_group") or ("", "")
        number = entry.get("collective_seq_id", entry.get("seq_id"))
        if isinstance(number, int):
            yield Entry(str(group[0]), number, entry.get("state") == "completed")


def suspects(dumps: Mapping[int, list[Entry]], ranks: int) -> tuple[int, ...]:
    """Return the ranks that are absent from the stuck collective, by the group in which most others wait.

    A rank is absent that has not come to the collective in which others of its group wait, or (where nearly all ranks
    left a dump) that left none. Those that wait are cascades.
    """
    missing = [rank for rank in range(ranks) if rank not in dumps]
    absent: Counter[int] = Counter()
    for group in {entry.group for entries in dumps.values() for entry in entries}:
        reached = {rank: _last(entries, group) for rank, entries in dumps.items()}
        known = {rank: last for rank, last in reached.items() if last is not None}
        furthest = max(known.values(), key=lambda last: last.number).number
        waiting = sum(last.number == furthest and not last.is_done for last in known.values())
        behind = [rank for rank, last in known.items() if last.number < furthest]
        if waiting:
            absent.update(dict.fromkeys(behind, waiting))
    if not absent and dumps and missing and len(missing) * _MISSING_SHARE <= ranks:
        absent.update(dict.fromkeys(missing, 1))
    most = max(absent.values(), default=0)
    return tuple(sorted(rank for rank, weight in absent.items() if weight == most))[:SUSPECTS]


def _last(entries: list[Entry], group: str) -> Entry | None:
    return max((entry for entry in entries if entry.group == group), key=lambda entry: entry.number, default=None)
