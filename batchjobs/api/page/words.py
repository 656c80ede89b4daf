"""Values as the page says them. `static/page.js` says times in the same words."""

from __future__ import annotations

import unicodedata
from datetime import datetime

MINUTE, HOUR, DAY = 60, 3600, 86400
NOTHING = "–"

_UNITS = ((DAY, "d"), (HOUR, "h"), (MINUTE, "min"), (1, "s"))
_HIDDEN = ("Cc", "Cf", "Co", "Cs")
_JOINERS = "\u200c\u200d"
"""Which Persian, Hindi and many emoji are written with."""
_BYTES = ("bytes", "kB", "MB", "GB", "TB")


def relative(moment: datetime, now: datetime) -> str:
    """For example `3 min ago`, `in 2 h`, `now`."""
    seconds = (moment - now).total_seconds()
    size, unit = _coarse(abs(seconds))
    if not size:
        return "now"
    return f"in {size} {unit}" if seconds > 0 else f"{size} {unit} ago"


def duration(seconds: float) -> str:
    """Its two greatest units, for example `1 h 12 min`; `< 1 s`."""
    rest = round(seconds)
    words: list[str] = []
    for size, unit in _UNITS:
        count, rest = divmod(rest, size)
        if count or words:
            words.append(f"{count} {unit}" if count else "")
        if len(words) == 2:
            break
    return " ".join(filter(None, words)) or "< 1 s"


def exact(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")


def count(number: float) -> str:
    return f"{number:,.0f}"


def rate(per_second: float | None) -> str:
    """Of tokens a second: with a digit behind the point below ten."""
    if per_second is None:
        return NOTHING
    return f"{per_second:,.1f}" if 0 < per_second < 10 else f"{per_second:,.0f}"


def percent(share: float) -> str:
    """Rounded down, so that only what is whole is 100 %."""
    return f"{int(1000 * share + 1e-6) / 10:.1f} %"


def size(number: float) -> str:
    """Of bytes, for example `1.2 MB`."""
    for unit in _BYTES:
        if number < 1000 or unit == _BYTES[-1]:
            break
        number /= 1000
    return f"{number:,.0f} {unit}" if unit == "bytes" else f"{number:,.1f} {unit}"


def cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def line(text: str) -> str:
    """Of a name, what can stand in one line: spaces for what breaks it, and a sign for what would
    not be seen or would turn around what is beside it."""
    return "".join(map(_shown, " ".join(text.split())))


def plural(number: int, word: str) -> str:
    """For example `1 job`, `1,200 jobs`."""
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def _shown(letter: str) -> str:
    is_hidden = unicodedata.category(letter) in _HIDDEN and letter not in _JOINERS
    return "\N{REPLACEMENT CHARACTER}" if is_hidden else letter


def _coarse(seconds: float) -> tuple[int, str]:
    """Its greatest unit, rounded down."""
    for size, unit in _UNITS:
        if seconds >= size:
            return int(seconds // size), unit
    return 0, "s"
