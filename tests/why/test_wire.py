"""Answers of other processes: nothing is lost on the way, except what cannot be shown."""

from __future__ import annotations

import dataclasses
import typing
from typing import Any

import pytest

from headway._gen.headway.observe import v1 as observe_pb
from headway.protobuf import decode, encode
from headway.why import cleaned

CLASSES = [getattr(observe_pb, name) for name in observe_pb.__all__ if not name.endswith(("Request", "Response"))]


def filled(cls: Any) -> Any:
    """Return an instance with a value of its own in each field."""
    hints = typing.get_type_hints(cls)
    return cls(**{each.name: _value(hints[each.name], each.name) for each in dataclasses.fields(cls)})


def _value(hint: Any, name: str) -> Any:
    arguments = [each for each in typing.get_args(hint) if each is not type(None)]
    if typing.get_origin(hint) is list:
        return [_value(arguments[0], name), _value(arguments[0], f"{name}2")]
    if arguments:
        return _value(arguments[0], name)
    if dataclasses.is_dataclass(hint):
        return filled(hint)
    if name == "type":
        # A resource without a possible type is unknown.
        return "group.version.Type"
    return {str: name, int: len(name), float: len(name) + 0.5, bool: True}[hint]


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_answer_survives_the_wire(cls: Any) -> None:
    answer = filled(cls)
    assert cleaned(decode(cls, encode(answer))) == answer


def test_unknown_field_of_another_process_is_dropped() -> None:
    """A viewer would get it otherwise."""
    sent = encode(observe_pb.StuckItem("staff/teams")) + b"\xfa\x3e\x03new"
    assert encode(cleaned(decode(observe_pb.StuckItem, sent))) == encode(observe_pb.StuckItem("staff/teams"))
