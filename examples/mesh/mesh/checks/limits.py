"""The rules for durations, patterns and shares, and for what this mesh leaves out."""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import re2

from catalog.checks.faults import Faults
from headway.resource import quoted

LONGEST_PATTERN: Final = 1024
"""The most characters of a pattern. Each request is compared with the whole of it."""
LARGEST_PROGRAM: Final = 1000
"""The most steps of a compiled pattern."""
LONGEST: Final = datetime.timedelta(days=36_500)
"""The longest duration: a proxy takes at most 292 years."""
_LONGEST_HEADER: Final = 16_384
_HEADER = re.compile(r":?[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z", re.ASCII)
_HIGHEST_SHARE: Final = (1 << 32) - 1
_OPTIONS = re2.Options()
_OPTIONS.log_errors = False
# Latin-1: an Envoy compares bytes.
_OPTIONS.encoding = type(_OPTIONS.encoding)(2)


def duration(path: str, value: datetime.timedelta | None) -> Faults:
    """A duration that is not negative, and not longer than a proxy can take, is required, if there is one."""
    if value is not None and value < datetime.timedelta():
        yield f"{path} {value.total_seconds()}s must be >= 0s"
    elif value is not None and value > LONGEST:
        yield f"{path} {value.total_seconds():.0f}s must be at most {LONGEST.total_seconds():.0f}s, which is 100 years"


def pattern(path: str, value: str) -> Faults:
    """A pattern that a proxy can compile is required."""
    if not value:
        yield f"{path} is empty: give a pattern, such as '/v[0-9]+/.*'"
    elif len(value) > LONGEST_PATTERN:
        yield f"{path} has {len(value)} characters: a pattern has at most {LONGEST_PATTERN}"
    elif problem := _problem(value):
        yield f"{path} {quoted(value)} is not a pattern of RE2: {problem}"


def is_pattern(value: str) -> bool:
    """Return True if a proxy can compile a pattern."""
    return not any(pattern("", value))


@lru_cache(maxsize=256)
def _problem(value: str) -> str:
    try:
        size = re2.compile(value.encode(), _OPTIONS).programsize
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
    if size > LARGEST_PROGRAM:
        return f"it takes {size} steps, and may take {LARGEST_PROGRAM}: use fewer repeats"
    return ""


def header_name(path: str, value: str, *, is_changed: bool = False) -> Faults:
    """The name of a header is required. The parts of a request's first line and the host cannot be changed."""
    if len(value) > _LONGEST_HEADER or not _HEADER.match(value):
        yield f"{path} {quoted(value)} is not the name of a header, such as 'x-version'"
    elif is_changed and (value.startswith(":") or value.lower() == "host"):
        yield f"{path} {quoted(value)} cannot be changed: use another header, such as 'x-version'"


def header_value(path: str, value: str) -> Faults:
    """A value that a header can have is required."""
    # A proxy gets each percent sign twice.
    if len(value.encode()) + value.count("%") > _LONGEST_HEADER or not {"\0", "\r", "\n"}.isdisjoint(value):
        yield f"{path} {quoted(value)} is not the value of a header: use one line of at most {_LONGEST_HEADER} bytes"


def shares(path: str, weights: Sequence[int]) -> Faults:
    """Weights of which a proxy can make shares are required, if there are several."""
    if len(weights) > 1 and not 1 <= sum(weights) <= _HIGHEST_SHARE:
        yield f"{path}: the weights have the sum {sum(weights)}, which must be from 1 to {_HIGHEST_SHARE}"


def absent(path: str, value: object) -> Faults:
    """Nothing is allowed here: this mesh has no such feature."""
    # A message with default values is present, so only None and empty scalars are absent.
    if value is not None and value != "" and value != 0 and value != []:
        yield f"{path} is not supported: leave it out"
