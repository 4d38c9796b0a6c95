"""A person's word on why a job failed, into the pipeline: to the brokers, or to where a store's replays ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from faultlens.causes import MOST_GENERAL, CauseClass, class_of, is_known
from faultlens.clock import wall_ms
from faultlens.codec import Event, event_of, stable_id
from faultlens.errors import UsageError
from faultlens.events import DeviceRef, JobLabelled
from faultlens.kafka import Connection
from faultlens.local import Places, say
from faultlens.local_publishing import publish
from faultlens.local_state import state_path
from faultlens.store import Store
from sinks.hours import AddingUp
from sinks.migrate import migrate
from sinks.writer import StoreWriter
from slo.why import Story, story_of
from streams.runtime.records import Role

WHY_LIMIT = 2_000


@dataclass(frozen=True)
class Word:
    """What somebody says the cause was. `why` is for people; `node` and `device` are whom it is to be charged to."""

    cause_class: CauseClass
    code: str
    by: str
    why: str = ""
    loss: int | None = None
    node: str | None = None
    device: int | None = None


@dataclass(frozen=True)
class Labelled:
    """The attempt's story before the label and after it."""

    before: Story
    after: Story


def word_of(cause_class: str | None, code: str | None, *, by: str, why: str) -> Word:
    """Return the word for a class, a code or both; UsageError names what there is.

    A code belongs to a class, but a person may charge it to another. A class alone is said by its most general code.
    """
    if code is not None and not is_known(code):
        raise UsageError(f"--code {code}: no such cause (`faultlens catalogue list` and docs/attribution.md list them)")
    if cause_class is not None and cause_class not in MOST_GENERAL:
        raise UsageError(f"--class {cause_class}: expected one of {', '.join(MOST_GENERAL)}")
    if cause_class is None and code is None:
        raise UsageError("say whose fault it was by --class, or what it was by --code")
    if len(why) > WHY_LIMIT:
        raise UsageError(f"--why: longer than {WHY_LIMIT:,} characters")
    charged: CauseClass = next((name for name in MOST_GENERAL if name == cause_class), class_of(code or "app"))
    return Word(charged, code or MOST_GENERAL[charged], by, why)


def label_in_store(store: Store, dsn: str, said: tuple[str, int | None], word: Word, roles: Sequence[Role]) -> Labelled:
    """Label an attempt (job and number, None: the last that failed) at the end of what was replayed into the store.

    Verdict, ledger and objectives follow as from any other event. Raises UnknownJobError; UsageError where the store
    was not filled by a replay.
    """
    migrate(store)
    before = story_of(store, *said)
    data = _data(before.job_id, before.attempt, word)
    whole = AddingUp(store)
    with StoreWriter(whole) as writer:
        say(lambda at_ms: _event(data, at_ms), roles, Places(store=writer, state=state_path(dsn)))
    whole.settle()
    return Labelled(before, story_of(store, before.job_id, before.attempt))


def label_on_brokers(connection: Connection, job_id: str, attempt: int, word: Word) -> None:
    """Send the label to the brokers and wait until they have it; WorldError if they do not take it."""
    publish(connection, _event(_data(job_id, attempt, word), wall_ms()))


def _data(job_id: str, attempt: int, word: Word) -> JobLabelled:
    device = None if word.device is None else DeviceRef(index=word.device)
    return JobLabelled(
        job_id,
        attempt,
        word.cause_class,
        word.code,
        word.by,
        loss=word.loss,
        node=word.node,
        device=device,
        why=word.why or None,
    )


def _event(data: JobLabelled, at_ms: int) -> Event:
    # The day's own time makes two equal words two events: the first may have been taken back in between.
    id_ = stable_id("label", data.job_id, data.attempt, data.loss or 0, data.cause_class, data.code, data.by, wall_ms())
    return event_of(data, source=f"operator/{data.by}", id_=id_, time_ms=at_ms, recorded_ms=at_ms)
