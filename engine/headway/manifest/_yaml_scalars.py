"""Determine the kind of a YAML scalar by the rules of YAML 1.1 in PyYAML, and its value if it is unambiguous."""

from __future__ import annotations

import re
from typing import Any

import yaml
from yaml.resolver import Resolver

from headway.manifest._nodes import Kind, Place, Scalar

TAG = "tag:yaml.org,2002:"

_KINDS: dict[str, Kind] = {
    f"{TAG}null": "nothing",
    f"{TAG}bool": "a boolean",
    f"{TAG}int": "a whole number",
    f"{TAG}float": "a number",
    f"{TAG}timestamp": "a date",
    f"{TAG}str": "text",
    # `<<` and `=` are text as values. As a key, `<<` is rejected when a map is read.
    f"{TAG}merge": "text",
    f"{TAG}value": "text",
}
# Without `012` (octal), `1:30` (ninety) and `1_000`, which other YAML parsers interpret differently.
_WHOLE = re.compile(r"[-+]?(0|[1-9][0-9]*|0x[0-9a-fA-F]+)\Z")
_DECIMAL = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?\Z")
_ENDLESS = {".inf": "inf", "+.inf": "inf", "-.inf": "-inf", ".nan": "nan"}
# Longer numbers are always out of range, and Python refuses to parse very long ones.
_LONGEST_NUMBER = 400

# Any, because the methods are untyped in PyYAML's stubs.
_RESOLVER: Any = Resolver()


def scalar_kind(event: Any) -> Kind | None:
    """Return the kind of a scalar, or None if its tag requires another kind."""
    implied: str = _RESOLVER.resolve(yaml.ScalarNode, event.value, (True, False))
    if event.tag is None:
        if not event.implicit[0]:
            return "text"
        # `1e3` and `08` are text in YAML 1.1, but people read them as numbers.
        return "a number" if _KINDS[implied] == "text" and decimal(event.value) is not None else _KINDS[implied]
    if event.tag in ("!", f"{TAG}str"):
        return "text"
    return _KINDS[implied] if event.tag == implied else None


def scalar_of(place: Place, kind: Kind, event: Any) -> Scalar:
    """Return the scalar for an event of a known kind."""
    text: str = event.value
    return Scalar(place, kind, text, _value(kind, text), quoted=event.tag is not None or not event.implicit[0])


def _value(kind: Kind, text: str) -> bool | int | float | str | None:
    if kind == "text":
        return text
    if kind == "a boolean":
        return text.lower() in ("yes", "true", "on")
    if kind == "a whole number":
        return int(text, 0) if _WHOLE.match(text) and len(text) < _LONGEST_NUMBER else None
    return decimal(text) if kind == "a number" else None


def decimal(text: str) -> float | None:
    """Return the decimal number in a text, or None."""
    endless = _ENDLESS.get(text.lower())
    return float(endless or text) if endless or _DECIMAL.match(text) else None
