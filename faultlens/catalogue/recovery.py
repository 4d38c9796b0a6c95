"""Xid 154: the recovery step that the driver announces, and how it overrides what the catalogue says."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Field

from faultlens.catalogue.judgement import ACTION_HINTS, ActionHint

# `... GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)`: what it is now stands last.
_STEP: Final = re.compile(r"(?:0x([0-9a-f]{1,4})\s*)?\(([^()]{1,60})\)")
_MESSAGE_LIMIT: Final = 2000
_SEVERITY: Final[Mapping[str, int]] = {hint: rank for rank, hint in enumerate(ACTION_HINTS)}


class RecoveryStep(BaseModel):
    """A step that the driver can announce."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    number: int = Field(ge=0, le=99)
    texts: tuple[str, ...] = Field(min_length=1)
    action_hint: ActionHint
    jobs_may_finish: bool
    meaning: str = Field(min_length=3, max_length=400)


class RecoveryFile(BaseModel):
    """`nvidia_recovery.yaml`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    window_s: int = Field(ge=1, le=600)
    actions: Mapping[str, RecoveryStep] = Field(min_length=1)


class AnnouncedAction(Struct, frozen=True, gc=False):
    """A recovery step that a driver announced; `name` is the sub-code of Xid 154."""

    name: str
    action_hint: ActionHint
    jobs_may_finish: bool
    """Work on the GPU may end by itself first."""
    meaning: str


class Announcement(Struct, frozen=True, gc=False):
    """An announced step and when: milliseconds since the epoch."""

    at_ms: int
    action: AnnouncedAction


class Recovery:
    """The steps that Xid 154 can announce."""

    def __init__(self, file: RecoveryFile) -> None:
        self.window_ms = file.window_s * 1000
        self.actions: Mapping[str, AnnouncedAction] = {
            name: AnnouncedAction(name, step.action_hint, step.jobs_may_finish, step.meaning)
            for name, step in file.actions.items()
        }
        self._by_text = {
            text: self.actions[name] for name, step in file.actions.items() for text in (*step.texts, str(step.number))
        }

    def announced_action(self, subcode_or_message: str | None) -> AnnouncedAction | None:
        """The step that a sub-code, NVML's number or a raw line of Xid 154 announces; None when it names none known.

        A line says from what to what the step changed: the last one counts, by its words, else by its number.
        """
        if not subcode_or_message:
            return None
        text = subcode_or_message[-_MESSAGE_LIMIT:].strip().lower()
        if text in self.actions:
            return self.actions[text]
        steps = _STEP.findall(text)
        if not steps:
            return self._by_text.get(text)
        number, words = steps[-1]
        known = self._by_text.get(words.strip())
        return known if known is not None or not number else self._by_text.get(str(int(number, 16)))


def effective_action(
    own: ActionHint, at_ms: int, announcements: Iterable[Announcement], *, window_ms: int
) -> ActionHint:
    """The action hint for a fault at `at_ms`, given what Xid 154 announced for the same device.

    The last announcement within the window of the fault, before or after it, wins over the catalogue, be it milder
    or harder; of several at one moment the hardest. Outside the window the catalogue's own hint stands.
    """
    near = [a for a in announcements if abs(a.at_ms - at_ms) <= window_ms]
    if not near:
        return own
    last = max(near, key=lambda a: (a.at_ms, _SEVERITY[a.action.action_hint]))
    return last.action.action_hint
