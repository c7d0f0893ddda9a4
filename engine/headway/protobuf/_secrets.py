"""Secret fields of messages: which they are, a copy of a message without their values, and texts without them. Pure.

This is the only place that knows how a secret is redacted. Everything that shows a message to a person goes through
`redacted`, and every text that may quote one through `without_secrets`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from headway.protobuf._codec import Payload, copy_message
from headway.protobuf._declared import DeclaredMessage

REDACTED = "(redacted)"
"""What stands in place of the value of a secret."""

REDACTED_CHANGED = "(redacted, changed)"
"""What stands in place of a secret that differs from the one that it is compared with."""

_SHORTEST = 4
"""The length from which on a secret is removed from a text. A shorter one would take ordinary words apart."""

_LEAST_BEGINNING = 32
"""The length from which on the beginning of a secret is removed from a text that has cut off the rest."""

P = TypeVar("P", bound=Payload)
Path = tuple[Any, ...]
Mark = Callable[[Path, Any], str]
"""A function that returns what to show in place of a secret, by its path and value."""


def holds_secrets(cls: Any) -> bool:
    """Return True if a message of the class, or one that it contains, may have a secret field."""
    if not (isinstance(cls, type) and issubclass(cls, DeclaredMessage)):
        # A generated class has no secrets, and cannot contain a declared one.
        return False
    # A class is asked again for each message, so each keeps its own answer.
    known: bool | None = cls.__dict__.get("_holds_secrets")
    if known is None:
        known = any(_has_secret(each) for each in _reached(cls))
        cls._holds_secrets = known
    return known


def secret_fields(cls: Any) -> frozenset[str]:
    """Return the names of the secret fields of one class."""
    if not (isinstance(cls, type) and issubclass(cls, DeclaredMessage)):
        return frozenset()
    return frozenset(name for name, each in cls._declaration.fields.items() if each.secret)


def _has_secret(cls: type[DeclaredMessage]) -> bool:
    return any(each.secret for each in cls._declaration.fields.values())


def _reached(cls: type[DeclaredMessage]) -> Iterator[type[DeclaredMessage]]:
    seen, waiting = {cls}, [cls]
    while waiting:
        each = waiting.pop()
        yield each
        for name, field in each._declaration.fields.items():
            held = each._declaration.python(field.element, each, name)
            if issubclass(held, DeclaredMessage) and held not in seen:
                seen.add(held)
                waiting.append(held)


def redacted(message: P, mark: Mark = lambda _path, _value: REDACTED) -> P:
    """Return a copy of a message without the values of its secrets, or the message itself if it can have none.

    Texts and bytes become `REDACTED`, also in lists and as values of maps. An empty or absent value stays as it is.
    """
    if not holds_secrets(type(message)):
        return message
    made = copy_message(message)
    for holder, name, path in _secrets(made, ()):
        _replace(holder, name, path, mark)
    return made


def _replace(holder: Any, name: str, path: Path, mark: Mark) -> None:
    def shown(value: Any, path: Path) -> Any:
        if not value:
            return value
        text = mark(path, value)
        return text.encode() if isinstance(value, bytes) else text

    value = getattr(holder, name)
    if isinstance(value, list):
        value = [shown(each, (*path, place)) for place, each in enumerate(value)]
    elif isinstance(value, dict):
        value = {key: shown(each, (*path, key)) for key, each in value.items()}
    else:
        value = shown(value, path)
    setattr(holder, name, value)


def secret_values(message: Any) -> dict[Path, Any]:
    """Return the values of the secrets of a message that are set, by their paths."""
    values: dict[Path, Any] = {}
    if holds_secrets(type(message)):
        for holder, name, path in _secrets(message, ()):
            for where, value in _elements(getattr(holder, name), path):
                if value and isinstance(value, str | bytes):
                    values[where] = value
    return values


def _secrets(message: Any, path: Path) -> Iterator[tuple[Any, str, Path]]:
    """Yield the secret fields of a message and of those that it contains: the message, the field and its path."""
    for name, field in message._declaration.fields.items():
        where = (*path, name)
        if field.secret:
            yield message, name, where
            continue
        for at, value in _elements(getattr(message, name), where):
            if isinstance(value, DeclaredMessage) and holds_secrets(type(value)):
                yield from _secrets(value, at)


def _elements(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, list):
        yield from (((*path, place), each) for place, each in enumerate(value))
    elif isinstance(value, dict):
        yield from (((*path, key), each) for key, each in value.items())
    else:
        yield path, value


def without_secrets(text: str, values: Iterable[Any]) -> str:
    """Return a text without these values of secrets.

    They are found as they are, and as `repr`, `ascii` and JSON write them, also encoded in UTF-8. Of long ones, at
    least 32 characters, a beginning is found too: Python cuts off what it quotes. Values with fewer than four
    characters stay.
    """
    found = {spelling for value in values for spelling in _spellings(value)}
    # The longest first, because one may be part of another.
    for each in sorted(found, key=len, reverse=True):
        if len(each) >= _SHORTEST:
            text = text.replace(each, REDACTED)
    for each in found:
        if len(each) > _LEAST_BEGINNING:
            text = _without_beginnings(text, each)
    return text


def _without_beginnings(text: str, secret: str) -> str:
    # One pass: a text may be as long as a resource, and have as many beginnings as fit.
    kept: list[str] = []
    end = 0
    while (at := text.find(secret[:_LEAST_BEGINNING], end)) >= 0:
        kept += text[end:at], REDACTED
        end, same = at + _LEAST_BEGINNING, _LEAST_BEGINNING
        while text[end : end + 1] == secret[same : same + 1] != "":
            end, same = end + 1, same + 1
    return "".join([*kept, text[end:]])


def _spellings(value: Any) -> Iterator[str]:
    plain = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    raw = value if isinstance(value, bytes) else plain.encode(errors="surrogatepass")
    yield plain
    yield from (repr(plain)[1:-1], ascii(plain)[1:-1], repr(raw)[2:-1], json.dumps(plain)[1:-1])


# For `repr`, of every declared message.
DeclaredMessage._shown = staticmethod(redacted)
