"""One request of the status page, answered in a process of its own: an embedded store is held for no longer."""

from __future__ import annotations

from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from faultlens.cli_options import promised
from faultlens.errors import FaultlensError, WorldError
from faultlens.kafka import load_connection
from faultlens.local_labelling import Word, label_in_store, label_on_brokers
from faultlens.local_roles import load_roles
from faultlens.settings import load_settings
from faultlens.store import Embedded, open_store, parse_dsn
from slo.pages import Asked, Page, answer, message_page
from slo.pages.asked import job_link
from slo.why import UnknownJobError
from slo.wording import printable

# How long a page waits for a replay or another command that has the store open, and how long it may take in all.
PATIENCE_S: Final = 15.0
LIMIT_S: Final = 60.0
_CONTEXT: Final = get_context("forkserver")


@dataclass(frozen=True)
class Site:
    """Where the answers are, and what a site adds to the shipped data; `brokers`: where disputes go, if anywhere."""

    store: str
    objectives: Path | None = None
    catalogue: tuple[Path, ...] = ()
    signatures: tuple[Path, ...] = ()
    brokers: str | None = None


@dataclass(frozen=True)
class Dispute:
    """A person's word on an attempt."""

    job_id: str
    attempt: int
    word: Word


def prepare(site: Site) -> None:
    """Start the process that the others are forked from, so that each begins with everything imported."""
    if isinstance(parse_dsn(site.store), Embedded):
        _CONTEXT.set_forkserver_preload([__name__])


def answered(site: Site, what: Asked | Dispute) -> Page:
    """Return the answer: from a child process for an embedded store, from here for one on a server."""
    if not isinstance(parse_dsn(site.store), Embedded):
        return _carried_out(site, what)
    ours, theirs = _CONTEXT.Pipe(duplex=False)
    child = _CONTEXT.Process(target=_child, args=(theirs, site, what), daemon=True)
    child.start()
    theirs.close()
    try:
        page = ours.recv() if ours.poll(LIMIT_S) else None
    except EOFError:
        page = None
    if page is None:
        child.kill()
    child.join()
    return page if isinstance(page, Page) else _failed("It took too long, or broke off.")


def _child(out: Connection, site: Site, what: Asked | Dispute) -> None:
    out.send(_carried_out(site, what))
    out.close()


def _carried_out(site: Site, what: Asked | Dispute) -> Page:
    try:
        return _labelled(site, what) if isinstance(what, Dispute) else _told(site, what)
    except UnknownJobError as error:
        return message_page(404, "No such job", printable(str(error)))
    except WorldError as error:
        return _failed(printable(str(error)))
    except FaultlensError as error:
        return message_page(400, "That cannot be done", printable(str(error), limit=2_000))


def _failed(said: str) -> Page:
    return message_page(503, "Try again in a moment", said)


def _told(site: Site, asked: Asked) -> Page:
    place = parse_dsn(site.store)
    if isinstance(place, Embedded) and not place.path.is_dir():
        return message_page(503, "Nothing yet", f"There is no store at {place}: `faultlens replay` makes it.")
    with open_store(site.store, patience_s=PATIENCE_S) as store:
        return answer(store, asked, promised(site.objectives))


def _labelled(site: Site, dispute: Dispute) -> Page:
    there = Page(303, location=job_link(dispute.job_id, dispute.attempt))
    if site.brokers is not None or load_settings().brokers:
        label_on_brokers(load_connection(site.brokers), dispute.job_id, dispute.attempt, dispute.word)
        return there
    roles = load_roles(site.catalogue, site.signatures, site.objectives)
    with open_store(site.store, patience_s=PATIENCE_S) as store:
        label_in_store(store, site.store, (dispute.job_id, dispute.attempt), dispute.word, roles)
    return there
