"""Where a run stands among those of its job: remembered, since accounting shows the earlier ones only for a while."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

import msgspec
from msgspec import Struct

from faultlens.clock import DAY_MS

# A run that was not seen for so long is not seen again; what is still seen is written down again once a day.
_KEPT_MS: Final = 14 * DAY_MS
# A record: the id that Slurm gave the job, and when the record says that it was submitted.
Key = tuple[str, int]


class Place(Struct, frozen=True):
    """The job's name and when it was submitted, the number of the attempt and when that was submitted."""

    job_id: str
    job_ms: int
    number: int
    run_ms: int


class _Noted(Struct, frozen=True):
    place: Place
    at_ms: int


class Shelf(Protocol):
    """Values by key, on disk."""

    def all(self) -> dict[str, bytes]: ...
    def save(self, changes: Iterable[tuple[str, bytes | None]]) -> None: ...


class Places:
    """The places of runs that are not their job's only one, by record."""

    def __init__(self, shelf: Shelf | None = None) -> None:
        self._shelf = shelf
        saved = shelf.all() if shelf is not None else {}
        self._noted = {_key(text): msgspec.json.decode(raw, type=_Noted) for text, raw in saved.items()}

    def known(self) -> dict[Key, Place]:
        """Return what is remembered."""
        return {key: noted.place for key, noted in self._noted.items()}

    def note(self, found: Mapping[Key, Place], now_ms: int) -> None:
        """Remember what was found now, and forget what has not been for long. WorldError: the disk takes nothing."""
        changes: dict[Key, _Noted | None] = {
            key: _Noted(place, now_ms) for key, place in found.items() if self._is_news(key, place, now_ms)
        }
        past = [key for key, noted in self._noted.items() if key not in found and now_ms - noted.at_ms > _KEPT_MS]
        changes |= dict.fromkeys(past)
        if changes and self._shelf is not None:
            self._shelf.save(
                (_text(key), None if one is None else msgspec.json.encode(one)) for key, one in changes.items()
            )
        for key, one in changes.items():
            if one is None:
                del self._noted[key]
            else:
                self._noted[key] = one

    def _is_news(self, key: Key, place: Place, now_ms: int) -> bool:
        noted = self._noted.get(key)
        return noted is None or noted.place != place or now_ms - noted.at_ms >= DAY_MS


def _text(key: Key) -> str:
    return f"{key[0]} {key[1]}"


def _key(text: str) -> Key:
    job_id, _, submit_ms = text.rpartition(" ")
    return job_id, int(submit_ms)
