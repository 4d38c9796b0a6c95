"""Charts as inline SVG: no script, no font, no request; colours come from the page's style sheet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from markupsafe import Markup, escape

ROW: Final = 30
BAR: Final = 16
CHARACTER: Final = 6.7
"""Width of a character at the charts' 12 px, generous, so that texts do not meet."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A labelled bar: `start` is where it begins on the value axis, `tone` the style class that colours it."""

    label: str
    value: float
    note: str
    tone: str
    start: float = 0.0


@dataclass(frozen=True, slots=True)
class Column:
    """A column of stacked parts: (tone, value) from the bottom."""

    label: str
    parts: Sequence[tuple[str, float]]

    @property
    def height(self) -> float:
        """The sum of its parts."""
        return sum(value for _, value in self.parts)


@dataclass(frozen=True, slots=True)
class Frame:
    """What a chart is called and says in words, how wide it is, and an id that is its own on the page."""

    id: str
    title: str
    words: str
    width: int


@dataclass(slots=True)
class _Canvas:
    frame: Frame
    height: float = 0
    marks: list[Markup] = field(default_factory=list)

    def text(self, x: float, y: float, words: str, *, style: str = "label", anchor: str = "start") -> None:
        self.marks.append(
            Markup('<text class="{}" x="{}" y="{}" text-anchor="{}">{}</text>').format(
                style, _n(x), _n(y), anchor, words
            )
        )

    def box(self, x: float, y: float, width: float, height: float, tone: str) -> None:
        self.marks.append(
            Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}"/>').format(
                tone, _n(x), _n(y), _n(width), _n(height)
            )
        )

    def line(self, x: float, y: float, to_x: float, to_y: float) -> None:
        self.marks.append(
            Markup('<line class="grid" x1="{}" y1="{}" x2="{}" y2="{}"/>').format(_n(x), _n(y), _n(to_x), _n(to_y))
        )

    def drawn(self, *, style: str = "chart", fit: str = "xMinYMin") -> Markup:
        name, width, height = escape(self.frame.id), self.frame.width, _n(self.height)
        head = Markup(
            '<svg class="{5}" role="img" viewBox="0 0 {1} {2}" width="{1}" height="{2}" preserveAspectRatio="{6}" '
            'aria-labelledby="{0}-title {0}-desc"><title id="{0}-title">{3}</title><desc id="{0}-desc">{4}</desc>'
        ).format(name, width, height, self.frame.title, self.frame.words, style, fit)
        return head + Markup("").join(self.marks) + Markup("</svg>")


def _n(value: float) -> str:
    """Return a coordinate without noise: the same figures are the same bytes."""
    return f"{value:.1f}".rstrip("0").rstrip(".")


def bars(frame: Frame, rows: Sequence[Bar]) -> Markup:
    """Draw horizontal bars, one below the other; on a narrow frame each label stands above its bar."""
    canvas = _Canvas(frame)
    narrow = frame.width < 560
    left = 0.0 if narrow else min(260.0, max((len(row.label) for row in rows), default=0) * CHARACTER + 12)
    noted = max((len(row.note) for row in rows), default=0) * CHARACTER + 10
    scale = (frame.width - left - noted) / (max((row.start + row.value for row in rows), default=0) or 1)
    step = ROW + 14 if narrow else ROW
    for index, row in enumerate(rows):
        top = index * step + (16 if narrow else 0)
        label = _fit(row.label, frame.width if narrow else left)
        canvas.text(0, top - 4 if narrow else top + BAR - 3, label)
        x = left + row.start * scale
        width = max(1.0, row.value * scale) if row.value else 0.0
        canvas.box(x, top, width, BAR, row.tone)
        _note(canvas, row.note, from_x=x, to_x=x + width, y=top + BAR - 3)
    canvas.height = len(rows) * step
    return canvas.drawn()


def _note(canvas: _Canvas, words: str, *, from_x: float, to_x: float, y: float) -> None:
    """Write the note behind the bar, or before it where the bar ends at the right border."""
    if to_x + 6 + len(words) * CHARACTER <= canvas.frame.width:
        canvas.text(to_x + 6, y, words, style="value")
    else:
        canvas.text(from_x - 6, y, words, style="value", anchor="end")


def _fit(words: str, width: float) -> str:
    room = int(width / CHARACTER)
    return words if len(words) <= room else words[: max(1, room - 1)] + "…"


def columns(frame: Frame, data: Sequence[Column], *, height: int = 200) -> Markup:
    """Draw stacked columns over a grid of whole numbers, each with its sum on top."""
    canvas = _Canvas(frame, height + 44.0)
    ticks = whole_ticks(max((column.height for column in data), default=0))
    left, base = len(f"{ticks[-1]:,}") * CHARACTER + 10, height + 18.0
    scale = height / ticks[-1]
    for tick in ticks:
        canvas.line(left, base - tick * scale, frame.width, base - tick * scale)
        canvas.text(left - 6, base - tick * scale + 4, f"{tick:,}", style="tick", anchor="end")
    slot = (frame.width - left) / max(1, len(data))
    every = math.ceil(max((len(c.label) for c in data), default=1) * CHARACTER / slot)
    for index, column in enumerate(data):
        middle, top = left + (index + 0.5) * slot, base
        for tone, value in column.parts:
            if value:
                top -= value * scale
                canvas.box(middle - slot * 0.3, top, slot * 0.6, value * scale, tone)
        if column.height and slot > 22:
            canvas.text(middle, top - 5, f"{column.height:,.0f}", style="value", anchor="middle")
        if index % every == 0:
            canvas.text(middle, base + 18, column.label, style="tick", anchor="middle")
    return canvas.drawn()


def whole_ticks(highest: float) -> list[int]:
    """Return up to six round whole numbers from 0 to at least `highest`."""
    step = 1
    while step * 5 < highest:
        step = _next_round(step)
    return list(range(0, max(1, math.ceil(highest / step)) * step + 1, step))


def _next_round(step: int) -> int:
    """1, 2, 5, 10, 20, 50 …"""
    leading = int(str(step)[0])
    return step * 5 // 2 if leading == 2 else step * 2


def meter(frame: Frame, share: float | None) -> Markup:
    """Draw how much of a budget is left: from nothing to all, empty when it is overspent or unknown."""
    canvas = _Canvas(frame, 8)
    canvas.box(0, 0, frame.width, 8, "track")
    left = min(1.0, max(0.0, share or 0.0))
    if left:
        canvas.box(0, 0, frame.width * left, 8, "left-low" if left < 0.25 else "left-good")
    return canvas.drawn(style="meter", fit="none")
