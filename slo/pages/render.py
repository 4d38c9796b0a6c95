"""The pages' HTML: no script, one style sheet, everything escaped."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from slo.pages.asked import Asked, Page
from slo.wording import minute, printable


def page(template: str, asked: Asked, *, status: int = 200, **shown: Any) -> Page:
    """Return a page; control characters of what others wrote are escaped too."""
    html = _environment().get_template(template).render(asked=asked, minute=minute, **shown)
    return Page(status, "\n".join(printable(line, limit=len(line)) for line in html.split("\n")))


def message_page(status: int, title: str, said: str, similar: Sequence[tuple[str, str]] = ()) -> Page:
    """Return a page that says one thing, and where else to look."""
    return page("message.html.j2", Asked(""), status=status, title=title, as_of="", said=said, similar=similar)


def style() -> str:
    """Return the style sheet."""
    return _environment().get_template("pages.css").render()


@cache
def _environment() -> Environment:
    return Environment(
        loader=ChoiceLoader([PackageLoader("slo.pages"), PackageLoader("slo.report")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
