"""Hypothesis strategies for whole payloads, made from the schema of their class: every value that a field can hold."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from headway.errors import DeclarationError
from headway.protobuf import FieldPlan, UnsupportedClassError, Value, plan_class
from headway.resource import ResourceType

Strategy = st.SearchStrategy[Any]
Values = Mapping[type[Any], Strategy]

# Often equal, so that two payloads have something in common, and otherwise anything: letters of every length in UTF-8,
# separators, spaces, and characters that may end a text.
_LETTERS = st.sampled_from("aB0 .,:;-_/\n\0éß漢😀")
_TEXTS = st.sampled_from(["", "a", "b"]) | st.text(_LETTERS, max_size=4)
_BYTES = st.sampled_from([b"", b"a"]) | st.binary(max_size=4)
_DOUBLES = st.floats(allow_nan=False)
_SCALARS: dict[str, Strategy] = {
    "string": _TEXTS,
    "bytes": _BYTES,
    "bool": st.booleans(),
    "float": st.floats(width=32, allow_nan=False),
    "double": _DOUBLES,
}
_TIMES = st.datetimes(
    # Hypothesis expects bounds without a time zone and adds it.
    datetime.datetime(1970, 1, 1),  # noqa: DTZ001
    datetime.datetime(2100, 1, 1),  # noqa: DTZ001
    timezones=st.just(datetime.UTC),
)
_DURATIONS = st.timedeltas(datetime.timedelta(days=-1000), datetime.timedelta(days=1000))
_MOST = 3
"""The maximum number of elements of a list and of entries of a map."""


def payloads(type: ResourceType[Any], values: Values) -> Strategy:
    """Return a strategy for payloads of a type that its hooks accept. ``values`` has strategies for message classes."""
    made = _messages(type.payload, values)
    validate = type.hooks.validate
    if validate is None:
        return made
    check = validate

    def is_valid(payload: Any) -> bool:
        try:
            check(type.new("a", payload))
        except ValueError:
            return False
        return True

    return made.filter(is_valid)


def _messages(cls: type[Any], values: Values) -> Strategy:
    if cls in values:
        return values[cls]
    try:
        plan = plan_class(cls)
    except UnsupportedClassError as error:
        raise DeclarationError(f"{error}: pass values={{{cls.__name__}: a_strategy}}") from error
    fields: dict[str, Strategy] = {}
    # The fields of each oneof: a message has at most one of them.
    groups: dict[frozenset[str], list[Strategy]] = {}
    for field in plan.fields:
        strategy = _field(field, values)
        if field.rivals:
            group = groups.setdefault(frozenset([field.name, *field.rivals]), [st.just({})])
            group.append(st.fixed_dictionaries({field.name: strategy}))
        else:
            fields[field.name] = strategy
    arms = st.tuples(*(st.one_of(*group) for group in groups.values()))
    return st.builds(_made, st.just(cls), st.fixed_dictionaries(fields), arms)


def _made(cls: type[Any], fields: dict[str, Any], arms: tuple[dict[str, Any], ...]) -> Any:
    for arm in arms:
        fields |= arm
    return cls(**fields)


def _field(field: FieldPlan, values: Values) -> Strategy:
    element = _element(field.value, values)
    if field.key is not None:
        return st.dictionaries(_element(field.key, values), element, max_size=_MOST)
    if field.shape == "repeated":
        return st.lists(element, max_size=_MOST)
    return st.none() | element if field.shape == "optional" and not field.rivals else element


def _element(value: Value, values: Values) -> Strategy:
    message = value.message
    if message is not None and value.wrapped:
        # In Python this is a datetime, a timedelta or the bare value.
        known = {"Timestamp": _TIMES, "Duration": _DURATIONS}.get(message.__name__)
        return known if known is not None else _element(plan_class(message).fields[0].value, values)
    if message is not None:
        # Deferred, because a message may hold one of its own class.
        return st.deferred(lambda: _messages(message, values))
    if value.enum is not None:
        return st.sampled_from([*value.enum.values()])
    return _SCALARS[value.kind] if value.kind in _SCALARS else _integers(value.kind)


def _integers(kind: str) -> Strategy:
    bits = 64 if kind.endswith("64") else 32
    unsigned = kind.startswith(("uint", "fixed"))
    least, most = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return st.integers(max(least, -2), 2) | st.sampled_from([least, most]) | st.integers(least, most)
