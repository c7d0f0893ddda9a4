"""Times and durations as texts. No I/O."""

from __future__ import annotations

import datetime


def when_text(at: float, now: float) -> str:
    """Return a time of day in UTC, and how far it is from now. Times of other days have their date."""
    if not at:
        return "an unknown time"
    try:
        moment = datetime.datetime.fromtimestamp(at, datetime.UTC)
    except (OverflowError, ValueError, OSError):
        # A reconciler may ask for its next call after any number of seconds, such as by a wrong unit.
        return "a time after the year 9999" if at > now else "an unknown time"
    form = "%H:%M:%S" if abs(now - at) < 43_200 else "%Y-%m-%d %H:%M:%S"
    distance = seconds_text(abs(now - at))
    return f"{moment:{form}} ({f'in {distance}' if at > now else f'{distance} ago'})"


def seconds_text(seconds: float) -> str:
    """Return a duration, rounded to its unit."""
    if seconds < 0.001:
        return "< 1 ms"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
