"""The URL of a store in an SQLite file: its path, and how much history it keeps."""

from __future__ import annotations

from typing import NamedTuple

from headway.base import Delay, Positive, value_problem
from headway.errors import InvalidArgument
from headway.storage._log import MAX_BYTES


class SqliteUrl(NamedTuple):
    """The parts of a URL.

    Attributes:
        max_changes: the maximum number of changes kept as history.
        max_age: their maximum age in seconds.
        max_bytes: the maximum number of their bytes.
    """

    path: str
    max_changes: int = 100_000
    max_age: float = 3600.0
    max_bytes: int = MAX_BYTES


def parse_url(url: str) -> SqliteUrl | None:
    """Return the parts of a URL, or None if it has another scheme. Raises InvalidArgument for invalid options."""
    scheme, _, rest = url.partition(":")
    path, question, options = rest.partition("?")
    if scheme != "sqlite" or not path:
        return None
    if path.startswith("//"):
        # As a path, it would begin at the root of the file system, where the URLs of other libraries do not.
        raise InvalidArgument(
            f"{url!r}: sqlite: is followed by the path itself, such as sqlite:staff.db or sqlite:/var/lib/staff.db"
        )
    parsed = SqliteUrl(path)
    given: set[str] = set()
    for option in options.split("&") if question else ():
        name, _, text = option.partition("=")
        if name not in _NUMBERS or name in given:
            raise InvalidArgument(
                f"{url!r}: {'duplicate' if name in given else 'unknown'} option {name!r}; known are "
                "max_changes, max_age and max_bytes, as in sqlite:staff.db?max_changes=50000&max_age=7200"
            )
        given.add(name)
        try:
            value = _NUMBERS[name](text)
        except ValueError:
            value = text  # `check_history` raises the error.
        parsed = parsed._replace(**{name: value})
    check_history(parsed.max_changes, parsed.max_age, parsed.max_bytes)
    return parsed


_NUMBERS = {"max_changes": int, "max_age": float, "max_bytes": int}


def check_history(max_changes: object, max_age: object, max_bytes: object) -> None:
    """Raise InvalidArgument for invalid bounds of history."""
    given = ("max_changes", Positive, max_changes), ("max_age", Delay, max_age), ("max_bytes", Positive, max_bytes)
    for field in given:
        if problem := value_problem(*field):
            raise InvalidArgument(problem)
