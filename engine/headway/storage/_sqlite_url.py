"""What a url says of a store in an SQLite file: ``sqlite:PATH``, or ``sqlite:PATH?max_changes=N&max_age=SECONDS``."""

from __future__ import annotations

import math
from typing import NamedTuple

from headway.errors import InvalidArgument

SCHEME = "sqlite"


class SqliteUrl(NamedTuple):
    """A url's parts.

    Attributes:
        max_changes: how many changes of history are kept.
        max_age: for how many seconds.
    """

    path: str
    max_changes: int = 100_000
    max_age: float = 3600.0


def parse_url(url: str) -> SqliteUrl | None:
    """The parts of a url; None when it is of another scheme. Raises InvalidArgument for what can't be meant."""
    scheme, _, rest = url.partition(":")
    path, question, options = rest.partition("?")
    if scheme != SCHEME or not path:
        return None
    parsed = SqliteUrl(path)
    given: set[str] = set()
    for option in options.split("&") if question else ():
        name, _, text = option.partition("=")
        if name not in _NUMBERS or name in given:
            raise InvalidArgument(
                f"{url!r}: {name!r} {'is given twice' if name in given else 'is no option of it'}; known are "
                "max_changes and max_age, as in sqlite:staff.db?max_changes=50000&max_age=7200"
            )
        given.add(name)
        try:
            value = _NUMBERS[name](text)
        except ValueError:
            value = text  # What is wrong with it, `check_history` says.
        parsed = parsed._replace(**{name: value})
    check_history(parsed.max_changes, parsed.max_age)
    return parsed


_NUMBERS = {"max_changes": int, "max_age": float}


def check_history(max_changes: object, max_age: object) -> None:
    """Raise InvalidArgument for bounds that history can't have."""
    if isinstance(max_changes, bool) or not isinstance(max_changes, int) or max_changes < 1:
        raise InvalidArgument(f"max_changes={max_changes!r} must be a whole number of changes, 1 or more")
    if isinstance(max_age, bool) or not isinstance(max_age, int | float) or not 0 < max_age < math.inf:
        raise InvalidArgument(f"max_age={max_age!r} must be a number of seconds above 0")
