"""Say what a YAML scalar is: YAML 1.1's opinion, as PyYAML has it, and its value where that is beyond doubt."""

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
    # `<<` and `=`: as a key the first is refused by who reads maps, as a value both are text.
    f"{TAG}merge": "text",
    f"{TAG}value": "text",
}
# No `012` (octal), no `1:30` (ninety) and no `1_000`: other readers of YAML take them for other things.
_WHOLE = re.compile(r"[-+]?(0|[1-9][0-9]*|0x[0-9a-fA-F]+)\Z")
_DECIMAL = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?\Z")
_ENDLESS = {".inf": "inf", "+.inf": "inf", "-.inf": "-inf", ".nan": "nan"}
# Longer numbers are out of every range, and Python refuses to read very long ones.
_LONGEST_NUMBER = 400

# PyYAML's stubs leave its methods untyped.
_RESOLVER: Any = Resolver()


def scalar_kind(event: Any) -> Kind | None:
    """What a scalar's event is, or None where its tag asks for something that it can't be."""
    implied: str = _RESOLVER.resolve(yaml.ScalarNode, event.value, (True, False))
    if event.tag is None:
        if not event.implicit[0]:
            return "text"
        # `1e3` and `08` are text to YAML 1.1, and numbers to everyone who reads them.
        return "a number" if _KINDS[implied] == "text" and decimal(event.value) is not None else _KINDS[implied]
    if event.tag in ("!", f"{TAG}str"):
        return "text"
    return _KINDS[implied] if event.tag == implied else None


def scalar_of(place: Place, kind: Kind, event: Any) -> Scalar:
    """The scalar of an event, once its kind is known."""
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
    """The number that a text is, in decimal, or None."""
    endless = _ENDLESS.get(text.lower())
    return float(endless or text) if endless or _DECIMAL.match(text) else None
