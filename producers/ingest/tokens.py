"""Who may speak for whom: a file of tokens' hashes, each with what its holder may speak of."""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from faultlens.codec import Event
from faultlens.topics import JOB_EVENTS, NODE_EVENTS, TYPES
from faultlens.yaml_lines import load_model

Text = Annotated[str, Field(min_length=1, max_length=200)]
# A node's agent sends two events a minute; a launcher's rank at its end a few at once.
EVENTS_A_SECOND: Final = 50.0
BURST: Final = 2_000


class Grant(BaseModel):
    """A token by its SHA-256 and what its holder may speak of. Names are patterns (`node-*`, `*`).

    Without `sources` a node's token speaks as `agent/…` and a job's as `launcher/…`: a scheduler's word weighs more.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Text
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    nodes: tuple[Text, ...] = ()
    jobs: tuple[Text, ...] = ()
    clusters: tuple[Text, ...] = ()
    sources: tuple[Text, ...] = ()
    events_a_second: Annotated[float, Field(gt=0, le=100_000)] = EVENTS_A_SECOND

    @model_validator(mode="after")
    def _speaks(self) -> Grant:
        if not (self.nodes or self.jobs or self.clusters):
            raise ValueError("speaks for nobody: name nodes, jobs or clusters")
        return self

    def refuses(self, event: Event) -> str | None:
        """Return why the event may not be told with this token; None: it may."""
        topic = TYPES[event.type].topic
        names = self.nodes if topic == NODE_EVENTS else self.jobs if topic == JOB_EVENTS else self.clusters
        if not _matches(event.subject, names):
            return f"this token does not speak for {event.subject}"
        usual = {NODE_EVENTS: ("agent/*",), JOB_EVENTS: ("launcher/*",)}.get(topic, ("*",))
        if not _matches(event.source, self.sources or usual):
            return f"this token does not speak as {event.source}"
        return None


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


class Tokens(BaseModel):
    """`tokens.yaml`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: Literal[1]
    tokens: Annotated[tuple[Grant, ...], Field(min_length=1, max_length=100_000)]

    @model_validator(mode="after")
    def _no_token_twice(self) -> Tokens:
        names: dict[str, str] = {}
        for grant in self.tokens:
            if names.setdefault(grant.sha256, grant.name) is not grant.name:
                raise ValueError(f"{grant.name!r} and {names[grant.sha256]!r} have the same token")
        return self


def load_tokens(path: Path) -> Tokens:
    """Return the tokens; ConfigurationError names file, line and what is wrong."""
    return load_model(path, Tokens, "the tokens cannot be used:")


def grant_of(tokens: Tokens, headers: Mapping[str, str]) -> Grant | None:
    """Return the grant of the bearer token in a request's headers; None: there is none, or nobody knows it."""
    kind, _, token = headers.get("Authorization", "").partition(" ")
    if kind.lower() != "bearer" or not token.strip():
        return None
    given = sha256(token.strip().encode("utf-8", "surrogateescape")).hexdigest()
    return next((grant for grant in tokens.tokens if hmac.compare_digest(grant.sha256, given)), None)


class Bucket:
    """How many events a token may still send: so many a second, and so many at once."""

    def __init__(self, a_second: float, now_s: float) -> None:
        self._a_second = a_second
        self._most = max(float(BURST), a_second)
        self._left = self._most
        self._at_s = now_s

    def takes(self, count: int, now_s: float) -> float:
        """Return 0 and take the events, or return after how many seconds they can be taken."""
        self._left = min(self._most, self._left + max(0.0, now_s - self._at_s) * self._a_second)
        self._at_s = max(self._at_s, now_s)
        if count <= self._left:
            self._left -= count
            return 0.0
        return (count - self._left) / self._a_second
