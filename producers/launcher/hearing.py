"""What the training tells of itself: steps, checkpoints and who takes part; and what of that outlives an attempt."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

import msgspec
from msgspec import Struct

from faultlens.codec import Decoder, Event
from faultlens.errors import InvalidEventError
from faultlens.events import JobCheckpoint, JobProgress, JobResized, Slot
from faultlens.progress import CHECKPOINT_PATH
from faultlens.topics import TYPES
from producers.launcher import telling
from producers.launcher.identity import Identity

_FROM_TRAINING: Final = {
    name: kind for name, kind in TYPES.items() if kind.data in (JobProgress, JobCheckpoint, JobResized)
}
# Linux' own limit (PATH_MAX). What a job prints is anybody's text: more of it, or a NUL, would keep the next attempt
# from being started.
_PATH_CHARS: Final = 4_096


class _Place(Struct, frozen=True, rename={"path": CHECKPOINT_PATH}):
    path: str | None = None


class Saved(NamedTuple):
    """The last checkpoint that was saved, and where it lies, if that was said."""

    step: int
    path: str | None

    def environment(self) -> dict[str, str]:
        """Return the variables by which the next attempt finds it."""
        step = {"FAULTLENS_CHECKPOINT_STEP": str(self.step)}
        return step if self.path is None else step | {"FAULTLENS_CHECKPOINT_PATH": self.path}


class Hearing:
    """Passes on what the training of one rank tells, and remembers what others need. `told` is called with events.

    `unreadable`: lines that were no such events, or another job's.
    """

    def __init__(
        self,
        who: Identity,
        told: Callable[[Event], None],
        *,
        tells_sizes: bool,
        saved: Saved | None = None,
        kept: Callable[[Saved], None] = lambda _saved: None,
    ) -> None:
        """`tells_sizes`: whether it is this launcher that tells when the job goes on with other workers; `saved`: what
        an earlier attempt saved; `kept`: is called with each checkpoint that was saved."""
        self._who = who
        self._told = told
        self._tells_sizes = tells_sizes
        self._decode = Decoder(_FROM_TRAINING).decode
        self._slots: dict[str, Slot] = {}
        self._are_counted = False
        self._kept = kept
        self.saved = saved
        self.progress_ms: int | None = None
        self.unreadable = 0

    def begin(self) -> None:
        """Forget what is true of one attempt only."""
        self.progress_ms = None
        self._slots = {slot.node: slot for slot in self._who.allocation()}
        self._are_counted = False

    def line(self, line: bytes) -> None:
        """Take a line that `faultlens.progress` wrote; what is no such event is counted and dropped."""
        try:
            event = self._decode(line)
        except InvalidEventError:
            self.unreadable += 1
            return
        if event.subject != self._who.job_id:
            self.unreadable += 1
        elif isinstance(event.data, JobResized):
            self._resize(event, event.data)
        else:
            self.event(event, _path_of(line) if isinstance(event.data, JobCheckpoint) else None)

    def event(self, event: Event, path: str | None = None) -> None:
        """Take a step or a checkpoint."""
        if isinstance(event.data, JobCheckpoint) and event.data.ok:
            self.saved = Saved(event.data.step, path if path is not None and is_path(path) else None)
            self._kept(self.saved)
        self.progress_ms = max(self.progress_ms or 0, event.time_ms)
        self._told(event)

    def _resize(self, event: Event, said: JobResized) -> None:
        """Tell that the job goes on with other workers than before; the first word of an attempt only says how many."""
        before, self._slots = self._slots, _matched(said.allocation, self._slots)
        lost = tuple(lost_of(before, self._slots, counted=self._are_counted))
        same = self._slots == before if self._are_counted else self._slots.keys() == before.keys()
        self._are_counted = True
        if self._tells_sizes and not same:
            allocation = tuple(self._slots.values())
            self._told(telling.resized(self._who, said.attempt, event.time_ms, allocation, lost))


def is_path(text: str) -> bool:
    """Return whether a process can be told of it."""
    return "\0" not in text and len(text) <= _PATH_CHARS


def _path_of(line: bytes) -> str | None:
    try:
        return msgspec.json.decode(line, type=_Place).path
    except msgspec.DecodeError:
        return None


def _matched(said: Iterable[Slot], known: Mapping[str, Slot]) -> dict[str, Slot]:
    """Return the slots with the names and devices by which their nodes are known: a host may say its whole name.

    The devices are known where as many ranks as before are on them.
    """
    by_host = {name.partition(".")[0]: name for name in known}
    slots = {}
    for slot in said:
        name = slot.node if slot.node in known else by_host.get(slot.node.partition(".")[0], slot.node)
        before = known.get(name)
        whole = before is not None and (before.ranks is None or len(before.ranks) <= len(slot.ranks or ()))
        slots[name] = Slot(name, before.devices if before is not None and whole else None, ranks=slot.ranks)
    return slots


def lost_of(before: Mapping[str, Slot], now: Mapping[str, Slot], *, counted: bool) -> Iterable[Slot]:
    """Yield what is not there any more: whole nodes, and (where ranks were `counted`) as many ranks as are fewer.

    Ranks are numbered anew each time, so that only their number says something: those named are the last ones.
    """
    for name, slot in before.items():
        there = now.get(name)
        if there is None:
            yield slot
        elif counted and len(there.ranks or ()) < len(slot.ranks or ()):
            yield Slot(name, ranks=(slot.ranks or ())[len(there.ranks or ()) :])
