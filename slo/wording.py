"""How figures and untrusted words are written for people, in terminals and reports alike."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping
from typing import Final

from faultlens.clock import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, moment_of

MINUS: Final = "\N{MINUS SIGN}"
NOTHING: Final = "\N{EN DASH}"
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def printable(text: str, *, limit: int = 400) -> str:
    r"""Return text that a terminal only prints: control and formatting characters are written as `\x1b`, `\u202e`.

    What passes the limit is cut, and said to be.
    """
    shown = "".join(_shown(character) for character in text[:limit])
    return f"{shown} … ({len(text) - limit} more characters)" if len(text) > limit else shown


def _shown(character: str) -> str:
    if unicodedata.category(character) not in _HIDDEN:
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def percent(ratio: float | None, *, digits: int = 1) -> str:
    """Return a ratio as a percentage; a dash for nothing. What is not whole is never rounded up to 100 %."""
    if ratio is None:
        return NOTHING
    if math.isinf(ratio):
        return f"{MINUS}∞ %" if ratio < 0 else "∞ %"
    shown = ratio * 100
    step: float = 10**-digits
    if shown < 100 and round(shown, digits) >= 100:
        shown = 100 - step
    if shown > 0 and round(shown, digits) == 0:
        return f"< {step:.{digits}f} %"
    return f"{shown:.{digits}f} %".replace("-", MINUS)


def digits_for(target: float) -> int:
    """Return how many decimals of a percentage a target deserves: 1 for 90 %, 2 for 99.5 %, 3 for 99.95 %."""
    return max(1, min(4, round(-math.log10(1 - target)))) if target < 1 else 1


def share_of_budget(left: float | None) -> str:
    """Return what is left of a budget, or how many times it was used up."""
    if left is None or left >= 0:
        return percent(left, digits=0)
    return f"used {1 - left:,.1f}x" if not math.isinf(left) else "used up"


def target_percent(target: float) -> str:
    """Return a target as people write it: `99.95 %`, `90 %`."""
    return f"{target * 100:.8g} %"


def points(difference: float, *, digits: int = 1) -> str:
    """Return a difference of two ratios in percentage points, with its sign."""
    return f"{signed(difference * 100, digits=digits)} points"


def signed(value: float, *, digits: int = 0) -> str:
    """Return a number with its sign; nothing has none."""
    text = f"{abs(value):,.{digits}f}"
    if not float(text.replace(",", "")):
        return f"±{text}"
    return f"{MINUS if value < 0 else '+'}{text}"


def whole_hours(gpu_ms: int) -> str:
    """Return GPU-milliseconds in GPU-hours, with as many decimals as such an amount deserves."""
    hours = gpu_ms / HOUR_MS
    if abs(hours) >= 1_000:
        return f"{hours:,.0f}"
    if gpu_ms and abs(hours) < 0.05:
        return f"{hours:.3f}" if abs(hours) >= 0.0005 else "< 0.001"
    return f"{hours:,.1f}"


def tenths_that_add_up(parts: Mapping[str, int]) -> dict[str, int]:
    """Return GPU-milliseconds in tenths of GPU-hours that add up to the rounded sum: the largest remainders go up."""
    unit = HOUR_MS // 10
    total = round(sum(parts.values()) / unit)
    down = {name: amount // unit for name, amount in parts.items()}
    missing = total - sum(down.values())
    by_remainder = sorted(parts, key=lambda name: (-(parts[name] % unit), name))
    return {name: down[name] + (name in by_remainder[:missing]) for name in parts}


def of_tenths(tenths: int) -> str:
    """Return tenths of hours as hours: 12345 -> `1,234.5`."""
    return f"{tenths / 10:,.1f}"


def duration(span_ms: float) -> str:
    """Return a span of time in its two largest units: `2 d 4 h`, `15 min`, `12 s`."""
    if math.isinf(span_ms):
        return "never"
    left = round(span_ms)
    if left < SECOND_MS:
        return f"{left} ms"
    units = (("d", DAY_MS), ("h", HOUR_MS), ("min", MINUTE_MS), ("s", SECOND_MS))
    first = next(index for index, (_, size) in enumerate(units) if left >= size)
    parts = []
    for name, size in units[first : first + 2]:
        amount, left = divmod(left, size)
        if amount:
            parts.append(f"{amount} {name}")
    return " ".join(parts)


def day(at_ms: int) -> str:
    """Return the day of a moment in UTC: `Mon 16 Nov`."""
    moment = moment_of(at_ms)
    return f"{moment:%a} {moment.day} {moment:%b}"


def minute(at_ms: int) -> str:
    """Return a moment in UTC to the minute."""
    return f"{moment_of(at_ms):%Y-%m-%d %H:%M} UTC"


def many(count: int, one: str, more: str | None = None) -> str:
    """Return a count with its noun: `1 failure`, `12 failures`."""
    return f"{count:,} {one if count == 1 else more or one + 's'}"


def listed(words: list[str]) -> str:
    """Return words as a sentence lists them: `a, b and c`."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
