"""Hypothesis strategies for payloads, made from the schema of their class."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import strategies as st

from headway.errors import DeclarationError
from headway.protobuf import FieldPlan, UnsupportedClassError, Value, plan_class
from headway.resource import ResourceType, did_you_mean

Strategy = st.SearchStrategy[Any]
Values = Mapping[type[Any], Strategy]

_MOST = 3
"""The maximum number of elements of a list and of entries of a map."""


@dataclasses.dataclass(frozen=True, slots=True)
class Scalars:
    """Strategies for the values of fields that hold no message, by their kind in the schema."""

    integers: Callable[[str], Strategy]
    others: Mapping[str, Strategy]
    times: Strategy
    durations: Strategy


def _integers(kind: str) -> Strategy:
    bits = 64 if kind.endswith("64") else 32
    unsigned = kind.startswith(("uint", "fixed"))
    least, most = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return st.integers(max(least, -2), 2) | st.sampled_from([least, most]) | st.integers(least, most)


# Often equal, so that two payloads have something in common, and otherwise anything: letters of every length in UTF-8,
# separators, spaces, and characters that may end a text.
_LETTERS = st.sampled_from("aB0 .,:;-_/\n\0éß漢😀")
ALL_VALUES = Scalars(
    integers=_integers,
    others={
        "string": st.sampled_from(["", "a", "b"]) | st.text(_LETTERS, max_size=4),
        "bytes": st.sampled_from([b"", b"a"]) | st.binary(max_size=4),
        "bool": st.booleans(),
        "float": st.floats(width=32, allow_nan=False),
        "double": st.floats(allow_nan=False),
    },
    times=st.datetimes(
        # Hypothesis expects bounds without a time zone and adds it.
        datetime.datetime(1970, 1, 1),  # noqa: DTZ001
        datetime.datetime(2100, 1, 1),  # noqa: DTZ001
        timezones=st.just(datetime.UTC),
    ),
    durations=st.timedeltas(datetime.timedelta(days=-1000), datetime.timedelta(days=1000)),
)
"""Every value that a field can hold."""

_HALVES = st.sampled_from([0.0, 0.5, 1.0])
FEW_VALUES = Scalars(
    integers=lambda _: st.integers(0, 3),
    others={
        "string": st.sampled_from(["", "a", "b", "c"]),
        "bytes": st.sampled_from([b"", b"a", b"b"]),
        "bool": st.booleans(),
        "float": _HALVES,
        "double": _HALVES,
    },
    times=st.sampled_from([datetime.datetime(2000, 1, day, tzinfo=datetime.UTC) for day in (1, 2, 3)]),
    durations=st.sampled_from([datetime.timedelta(seconds=each) for each in range(3)]),
)
"""A few values of each kind, so that payloads are often equal."""


def payloads(
    type: ResourceType[Any],
    scalars: Scalars,
    *,
    fields: Mapping[str, Strategy] | None = None,
    values: Values | None = None,
) -> Strategy:
    """Return a strategy for payloads of a type that its hooks accept.

    Args:
        scalars: the values of fields.
        fields: strategies for fields of the payload, by name.
        values: strategies for message classes.

    Raises:
        DeclarationError: if the payload has no such field, or a class is of no supported form.
    """
    made = _Schema(scalars, values or {}).messages(type.payload, fields or {})
    check = type.hooks.validate
    if check is None:
        return made

    def is_valid(payload: Any) -> bool:
        try:
            check(type.new("a", payload))
        except ValueError:
            return False
        return True

    return made.filter(is_valid)


class _Schema:
    """Makes the strategies for message classes, fields and elements."""

    def __init__(self, scalars: Scalars, values: Values) -> None:
        self._scalars = scalars
        self._values = values

    def messages(self, cls: type[Any], given: Mapping[str, Strategy]) -> Strategy:
        if cls in self._values:
            return self._values[cls]
        try:
            plan = plan_class(cls)
        except UnsupportedClassError as error:
            raise DeclarationError(f"{error}: pass values={{{cls.__name__}: a_strategy}}") from error
        for name in given:
            if name not in plan.names:
                hint = did_you_mean(name, plan.names)
                raise DeclarationError(f"{cls.__name__} has no field {name!r}{hint}: it has {', '.join(plan.names)}")
        fields: dict[str, Strategy] = {}
        # The fields of each oneof: a message has at most one of them.
        groups: dict[frozenset[str], list[Strategy]] = {}
        for field in plan.fields:
            strategy = given[field.name] if field.name in given else self._field(field)
            if field.rivals:
                group = groups.setdefault(frozenset([field.name, *field.rivals]), [st.just({})])
                group.append(st.fixed_dictionaries({field.name: strategy}))
            else:
                fields[field.name] = strategy
        arms = st.tuples(*(st.one_of(*group) for group in groups.values()))
        return st.builds(_made, st.just(cls), st.fixed_dictionaries(fields), arms)

    def _field(self, field: FieldPlan) -> Strategy:
        element = self._element(field.value)
        if field.key is not None:
            return st.dictionaries(self._element(field.key), element, max_size=_MOST)
        if field.shape == "repeated":
            return st.lists(element, max_size=_MOST)
        return st.none() | element if field.shape == "optional" and not field.rivals else element

    def _element(self, value: Value) -> Strategy:
        message, scalars = value.message, self._scalars
        if message is not None and value.wrapped:
            # In Python this is a datetime, a timedelta or the bare value.
            known = {"Timestamp": scalars.times, "Duration": scalars.durations}.get(message.__name__)
            return known if known is not None else self._element(plan_class(message).fields[0].value)
        if message is not None:
            # Deferred, because a message may hold one of its own class.
            return st.deferred(lambda: self.messages(message, {}))
        if value.enum is not None:
            return st.sampled_from([*value.enum.values()])
        return scalars.others[value.kind] if value.kind in scalars.others else scalars.integers(value.kind)


def _made(cls: type[Any], fields: dict[str, Any], arms: tuple[dict[str, Any], ...]) -> Any:
    for arm in arms:
        fields |= arm
    return cls(**fields)
