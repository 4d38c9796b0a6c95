"""Who is told of which verdict, in which words, how often at most: routes are data, what is due is reckoned here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from jinja2 import StrictUndefined, TemplateError
from jinja2.sandbox import SandboxedEnvironment
from msgspec import Struct
from msgspec.structs import replace
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from faultlens.causes import title_of
from faultlens.clock import HOUR_MS
from slo.wording import printable

WAITING_LIMIT: Final = 500
TEXT_LIMIT: Final = 4_000
_WORDS: Final = 400
# What a name of a user may be made of where it becomes part of an address.
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_TEMPLATES: Final = SandboxedEnvironment(undefined=StrictUndefined, autoescape=False)
USUAL_SUBJECT: Final = "{{ job }}/{{ attempt }} failed: {{ class }}"
USUAL_TEXT: Final = (
    "{{ job }} (attempt {{ attempt }}) failed. Whose fault: {{ class }}, {{ title }}"
    "{% if node %} on {{ node }}{% endif %} ({{ basis }}).\n{{ summary }}\n"
    "What to do: {{ advice }}{% if avoid %}, away from {{ avoid }}{% endif %}."
)


def _template(text: str) -> str:
    try:
        _TEMPLATES.from_string(text).render(**_EXAMPLE)
    except TemplateError as error:
        raise ValueError(f"no template: {error} (known: {', '.join(sorted(_EXAMPLE))})") from None
    return text


Template = Annotated[str, Field(max_length=2_000), AfterValidator(_template)]


class Route(BaseModel):
    """Who is told of what. What is not named is not asked after; `{user}` in `to` is the job's owner."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,40}$")
    to: str = Field(min_length=1, max_length=1_000)
    classes: frozenset[Literal["hardware", "driver", "platform", "user"]] = frozenset()
    codes: tuple[str, ...] = ()
    clusters: frozenset[str] = frozenset()
    teams: frozenset[str] = frozenset()
    better_than_assumed: bool = False
    per_hour: int = Field(default=30, ge=1, le=1_000)
    subject: Template = USUAL_SUBJECT
    text: Template = USUAL_TEXT

    def wants(self, verdict: Mapping[str, Any]) -> bool:
        """Whether a verdict is one to be told of."""
        code = f"{verdict['code']}."
        return (
            (not self.classes or verdict["class"] in self.classes)
            and (not self.codes or any(code.startswith(f"{wanted}.") for wanted in self.codes))
            and (not self.clusters or verdict["cluster"] in self.clusters)
            and (not self.teams or verdict["team"] in self.teams)
            and not (self.better_than_assumed and verdict["basis"] == "assumed")
        )


class Routes(BaseModel):
    """A file of routes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    routes: tuple[Route, ...] = Field(min_length=1, max_length=100)


class Notice(Struct, frozen=True):
    """One message to one address."""

    to: str
    subject: str
    text: str


class Line(Struct, frozen=True):
    """What waits for a route, when it was last used within the hour, and how much was left out since."""

    waiting: tuple[Notice, ...] = ()
    sent_ms: tuple[int, ...] = ()
    left_out: int = 0


class Cursor(Struct, frozen=True):
    """The last verdict that was looked at."""

    after: int = 0
    job: str = ""
    attempt: int = 0
    loss: int = 0
    revision: int = 0


def cursor_of(verdict: Mapping[str, Any]) -> Cursor:
    """Return the place of a verdict in the order in which they were said."""
    return Cursor(verdict["said_ms"], *(verdict[name] for name in ("job_id", "attempt", "loss", "revision")))


def queued(line: Line, route: Route, verdicts: Iterable[Mapping[str, Any]]) -> Line:
    """Return the line with what the route is to be told of; what it cannot hold, or send to nobody, is left out."""
    waiting, left_out = list(line.waiting), line.left_out
    for verdict in verdicts:
        if not route.wants(verdict):
            continue
        to = _address(route.to, verdict["user"])
        if to is None or len(waiting) >= WAITING_LIMIT:
            left_out += 1
        else:
            waiting.append(Notice(to, _filled(route.subject, verdict), _filled(route.text, verdict)))
    return replace(line, waiting=tuple(waiting), left_out=left_out)


def next_notice(line: Line, route: Route, now_ms: int) -> Notice | None:
    """Return what may be sent now; None: nothing waits, or the hour is full."""
    lately = [at_ms for at_ms in line.sent_ms if at_ms > now_ms - HOUR_MS]
    if not line.waiting or len(lately) >= route.per_hour:
        return None
    notice = line.waiting[0]
    more = f"\n({line.left_out} more were not sent.)" if line.left_out else ""
    return replace(notice, text=notice.text + more)


def sent(line: Line, now_ms: int) -> Line:
    """Return the line after its first notice was taken."""
    lately = tuple(at_ms for at_ms in line.sent_ms if at_ms > now_ms - HOUR_MS)
    return Line(line.waiting[1:], (*lately, now_ms), 0)


def _address(to: str, user: str) -> str | None:
    if "{user}" not in to:
        return to
    return to.replace("{user}", user) if _PLAIN_NAME.fullmatch(user) else None


def _filled(template: str, verdict: Mapping[str, Any]) -> str:
    """Return the words; text of others stays text: no control characters, and a limit."""
    known = {name: printable(str(value), limit=_WORDS) for name, value in _words(verdict).items()}
    return _TEMPLATES.from_string(template).render(**known)[:TEXT_LIMIT]


def _words(verdict: Mapping[str, Any]) -> dict[str, object]:
    avoid: Sequence[str] = verdict["exclude_nodes"]
    return {
        "job": verdict["job_id"],
        "attempt": verdict["attempt"],
        "loss": verdict["loss"] or "",
        "status": verdict["status"],
        "cluster": verdict["cluster"],
        "class": verdict["class"],
        "code": verdict["code"],
        "title": title_of(verdict["code"]),
        "summary": verdict["summary"],
        "basis": verdict["basis"],
        "node": verdict["node"],
        "advice": str(verdict["advice"]).replace("_", " "),
        "avoid": ", ".join(avoid),
        "user": verdict["user"],
        "team": verdict["team"],
    }


_EXAMPLE: Final = _words(
    {
        **dict.fromkeys(
            ("job_id", "status", "cluster", "class", "summary", "basis", "node", "advice", "user", "team"), "x"
        ),
        "code": "gpu.off_bus",
        "attempt": 1,
        "loss": 0,
        "exclude_nodes": (),
    }
)
