"""The faults of a resource: all are found before a write is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Final, TypeVar

from headway import Resource

Faults = Iterator[str]
"""Sentences, each of which begins with the path of a field."""

_MOST: Final = 20
"""The number of faults that an error lists. A payload may have as many as it has fields."""

R = TypeVar("R", bound=Resource[Any])


def refusing(faults: Callable[[R], Iterable[str]]) -> Callable[[R], None]:
    """Return a validate hook that refuses a resource if ``faults`` yields anything."""

    def validate(resource: R) -> None:
        found = list(islice(faults(resource), _MOST + 1))
        if len(found) > _MOST:
            found[_MOST] = f"and more than these {_MOST}"
        if found:
            raise ValueError("; ".join(found))

    return validate
