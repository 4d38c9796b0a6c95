"""What is asked of the status page, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlencode

NAME_LIMIT: Final = 300


@dataclass(frozen=True)
class Manners:
    """What the page may show and take: the last lines of logs, and disputes."""

    log_tails: bool = False
    disputes: bool = True


@dataclass(frozen=True)
class Asked:
    """A request: its path, its parameters, and who asks (empty: nobody said)."""

    path: str
    params: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    manners: Manners = Manners()

    def word(self, name: str) -> str:
        """Return a parameter, empty where there is none; what is too long to be a name is cut."""
        return self.params.get(name, "").strip()[:NAME_LIMIT]


@dataclass(frozen=True)
class Page:
    """An answer: an HTTP status and either a page or where to go instead."""

    status: int
    html: str = ""
    location: str = ""


def link(path: str, **params: str | int | None) -> str:
    """Return the address of a page, with what is not empty."""
    given = {name: value for name, value in params.items() if value not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path


def job_link(job_id: str, attempt: int | None = None) -> str:
    """Return the address of a job's page."""
    return link("/job", id=job_id, attempt=attempt)


def node_link(node: str) -> str:
    """Return the address of a node's page."""
    return link("/node", name=node)
