"""One request, one answer: which page is meant, and what the store has to say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from faultlens.causes import CAUSE_CLASSES, CAUSES, title_of
from faultlens.clock import DAY_MS
from faultlens.objectives import Objectives
from slo.failures import ALL, EVER, newest
from slo.labels import held_of_job
from slo.labels_text import held_words
from slo.pages import grids, objectives
from slo.pages.asked import Asked, Page, job_link, link, node_link
from slo.pages.render import message_page, page
from slo.queries import Reader, ask
from slo.recompute import Extent, View, extent
from slo.report.collect import view_of
from slo.status import standings
from slo.why import UnknownJobError, story_of
from slo.why.story import Story
from slo.why.text import ROLES, advice, certainty_lines, cost_lines
from slo.why.text import answer as answer_words
from slo.wording import minute, printable

ROWS: Final = 50
LATELY_MS: Final = DAY_MS

Answer = Callable[[Reader, Asked, Objectives, Extent], Page]


def answer(reader: Reader, asked: Asked, promised: Objectives) -> Page:
    """Return the page that is asked for: 404 where there is no such page, job or node."""
    known = extent(reader)
    if known is None:
        return message_page(200, "Nothing yet", "The store is empty: no replay and no sink wrote to it.")
    path = "/objectives" if asked.path.startswith("/objectives/") else asked.path
    answers: dict[str, Answer] = {
        "/": _status,
        "/objectives": _objective,
        "/failures": _failures,
        "/job": _job,
        "/node": _node,
        "/search": _search,
    }
    if path not in answers:
        return message_page(404, "No such page", f"There is nothing at {printable(asked.path, limit=100)}.")
    return answers[path](reader, asked, promised, known)


def _view(asked: Asked, known: Extent) -> View:
    cluster = asked.word("cluster")
    return view_of(known, cluster=cluster if cluster in known.clusters else "")


def _status(reader: Reader, asked: Asked, promised: Objectives, known: Extent) -> Page:
    view = _view(asked, known)
    lately = {
        **ALL,
        "cluster": view.cluster,
        "from": known.to_ms - LATELY_MS,
        "to": known.to_ms + 1,
        "limit": ROWS + 1,
    }
    return page(
        "status.html.j2",
        asked,
        title="GPU fleet",
        as_of=minute(known.to_ms),
        clusters=[(name, link("/", cluster=name), name == view.cluster) for name in known.clusters],
        tiles=objectives.tiles(standings(reader, view, promised), view.cluster),
        failures=grids.failures(ask(reader, "page_failures", lately), ROWS, caption="Failures of the last day"),
        findings=grids.findings(ask(reader, "page_findings", lately), ROWS),
        incidents=grids.incidents(ask(reader, "page_incidents", lately), ROWS),
    )


def _objective(reader: Reader, asked: Asked, promised: Objectives, known: Extent) -> Page:
    name = asked.path.removeprefix("/objectives/")
    view = _view(asked, known)
    found = [standing for standing in standings(reader, view, promised) if standing.objective.name == name]
    if not found:
        return message_page(404, "No such objective", f"No objective is called {printable(name, limit=100)}.")
    standing = found[0]
    return page(
        "objective.html.j2",
        asked,
        title=standing.objective.title,
        as_of=minute(known.to_ms),
        tile=objectives.tiles([standing], view.cluster)[0],
        promise=standing.objective.promise,
        lines=objectives.lines(standing),
        shares=objectives.shares(standing),
        worst=_worst(reader, standing.view, standing.window_ms),
    )


def _worst(reader: Reader, view: View, window_ms: int) -> list[tuple[str, str, int]]:
    params = view.params(**{"from": view.as_of_ms - window_ms, "to": view.as_of_ms + 1})
    return [(row["node"], node_link(row["node"]), row["failures"]) for row in ask(reader, "worst_nodes", params)[:10]]


def _failures(reader: Reader, asked: Asked, promised: Objectives, known: Extent) -> Page:
    narrowed = {name: asked.word(name) for name in ALL}
    rows = newest(reader, narrowed, limit=4 * ROWS + 1)
    said = ", ".join(f"{name} {printable(value, limit=100)}" for name, value in narrowed.items() if value)
    return page(
        "failures.html.j2",
        asked,
        title="Failures",
        as_of=minute(known.to_ms),
        said=said or "of every kind",
        failures=grids.failures(rows, 4 * ROWS),
    )


def _job(reader: Reader, asked: Asked, promised: Objectives, known: Extent) -> Page:
    number = asked.word("attempt")
    try:
        story = _story(reader, asked.word("id"), int(number) if number.isdigit() else None)
    except UnknownJobError as error:
        similar = [(name, job_link(name)) for name in error.similar]
        said = f"{printable(asked.word('id'), limit=100)}: {printable(str(error))}."
        return message_page(404, "No such job", said, similar)
    return page(
        "job.html.j2",
        asked,
        title=f"{story.job_id}, attempt {story.attempt}",
        as_of=minute(known.to_ms),
        story=story,
        said=answer_words(story),
        certainty=certainty_lines(story),
        advice="" if story.verdict is None else advice(story.verdict),
        cost=cost_lines(story),
        evidence=_evidence(story),
        attempts=[(line, job_link(story.job_id, line.attempt)) for line in story.attempts[-20:]],
        labels=[(label, held_words(label)) for label in held_of_job(reader, story.job_id, story.attempt)],
        tails=_tails(reader, asked, story),
        classes=CAUSE_CLASSES,
        codes=[(code, title_of(code)) for code in CAUSES],
    )


def _story(reader: Reader, job_id: str, attempt: int | None) -> Story:
    """Return the story of a job; who types `1234+1` into an address has asked for `1234 1`."""
    try:
        return story_of(reader, job_id, attempt)
    except UnknownJobError:
        if " " not in job_id:
            raise
        return story_of(reader, job_id.replace(" ", "+"), attempt)


def _evidence(story: Story) -> list[tuple[str, list[Any]]]:
    roles = [*ROLES, *sorted({line.role for line in story.evidence} - ROLES.keys())]
    by_role = ((ROLES.get(role, role), [line for line in story.evidence if line.role == role]) for role in roles)
    return [(words, found) for words, found in by_role if found]


def _tails(reader: Reader, asked: Asked, story: Story) -> Sequence[Mapping[str, Any]]:
    if not asked.manners.log_tails:
        return []
    return ask(reader, "page_log_tails", {"job": story.job_id, "attempt": story.attempt, "limit": 8})


def _node(reader: Reader, asked: Asked, promised: Objectives, known: Extent) -> Page:
    name = asked.word("name")
    described = ask(reader, "page_node", {"node": name})
    mine = {**ALL, **EVER, "node": name, "limit": ROWS + 1}
    states = ask(reader, "page_node_states", mine)
    if not described and not states:
        return message_page(404, "No such node", f"No node is called {printable(name, limit=100)}.")
    return page(
        "node.html.j2",
        asked,
        title=name,
        as_of=minute(known.to_ms),
        node=described[0] if described else {},
        states=grids.states(states, ROWS),
        failures=grids.failures(ask(reader, "page_failures", mine), ROWS, caption="Failures that it is to blame for"),
        faults=grids.faults(ask(reader, "page_node_faults", mine), ROWS),
        findings=grids.findings(ask(reader, "page_findings", mine), ROWS),
        incidents=grids.incidents(ask(reader, "page_incidents", mine), ROWS),
        commands=grids.commands(ask(reader, "page_commands", mine), ROWS),
    )


def _search(reader: Reader, asked: Asked, promised: Objectives, known: Extent) -> Page:
    text = asked.word("q")
    rows = ask(reader, "page_search", {"text": text, "limit": ROWS}) if text else []
    exact = [row for row in rows if row["name"] == text]
    if len(exact) == 1:
        name = exact[0]["name"]
        return Page(303, location=job_link(name) if exact[0]["kind"] == "job" else node_link(name))
    return page("search.html.j2", asked, title="Search", as_of=minute(known.to_ms), found=grids.found(rows, text))
