"""Durations as people and the contract write them (`28d`, `PT1H`), in whole milliseconds."""

from __future__ import annotations

import re
from typing import Final

from faultlens.clock import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS

_UNIT_MS: Final = {"s": SECOND_MS, "m": MINUTE_MS, "h": HOUR_MS, "d": DAY_MS, "w": 7 * DAY_MS}
_WORDS_MS: Final = {"hour": HOUR_MS, "day": DAY_MS, "week": 7 * DAY_MS}
_PLAIN: Final = re.compile(r"(\d{1,6})([smhdw])")
_ISO: Final = re.compile(r"P(?:(\d{1,6})W)?(?:(\d{1,6})D)?(?:T(?:(\d{1,6})H)?(?:(\d{1,6})M)?(?:(\d{1,6})S)?)?")


def parse_duration_ms(text: str) -> int:
    """Return `90s`, `5m`, `1h`, `28d`, `4w`, `week` or an ISO 8601 duration (`P28D`, `PT1H`) in milliseconds.

    ValueError says what is accepted. Durations are longer than nothing.
    """
    word = text.strip()
    if word in _WORDS_MS:
        return _WORDS_MS[word]
    total = 0
    if plain := _PLAIN.fullmatch(word):
        total = int(plain[1]) * _UNIT_MS[plain[2]]
    elif iso := _ISO.fullmatch(word):
        total = sum(int(part or 0) * _UNIT_MS[unit] for part, unit in zip(iso.groups(), "wdhms", strict=True))
    if total <= 0:
        raise ValueError(f"not a duration: {text!r} (write 5m, 1h, 28d, 4w, week or P28D)")
    return total


def plain_duration(duration_ms: int) -> str:
    """Return a duration of whole seconds as people write it: `5m`, `1h`, `1d`; in the largest unit that is exact."""
    unit = next((unit for unit in "dhm" if duration_ms and duration_ms % _UNIT_MS[unit] == 0), "s")
    return f"{duration_ms // _UNIT_MS[unit]}{unit}"


def iso_duration(duration_ms: int) -> str:
    """Return a duration of whole seconds as ISO 8601 writes it: `P28D`, `PT1H`, `PT5M`; `P1DT12H` where mixed."""
    days, rest = divmod(duration_ms // SECOND_MS, 86_400)
    hours, rest = divmod(rest, 3_600)
    minutes, seconds = divmod(rest, 60)
    parts = zip((hours, minutes, seconds), "HMS", strict=True)
    of_day = "".join(f"{amount}{unit}" for amount, unit in parts if amount)
    date = f"{days}D" if days else ""
    return f"P{date}T{of_day}" if of_day else f"P{date or 'T0S'}"
