"""Answers as messages: each class has a message of the same name and fields, and nothing is lost on the way."""

from __future__ import annotations

import dataclasses
import typing
from typing import Any

import pytest

from headway._gen.headway.observe import v1 as observe_pb
from headway.protobuf import decode, encode
from headway.why import from_message
from headway.why.answers import _answer, _lists, to_message

CLASSES = [
    each
    for name, each in (vars(_answer) | vars(_lists)).items()
    if dataclasses.is_dataclass(each) and isinstance(each, type) and name == each.__name__
]


def filled(cls: Any, depth: int = 0) -> Any:
    """Return an instance with a value of its own in each field."""
    hints = typing.get_type_hints(cls)
    return cls(**{each.name: _value(hints[each.name], each.name, depth) for each in dataclasses.fields(cls)})


def _value(hint: Any, name: str, depth: int) -> Any:
    arguments = [each for each in typing.get_args(hint) if each not in (type(None), ...)]
    if typing.get_origin(hint) is tuple:
        return (_value(arguments[0], name, depth + 1), _value(arguments[0], f"{name}2", depth + 1))
    if arguments:
        return _value(arguments[0], name, depth)
    if dataclasses.is_dataclass(hint):
        return filled(hint, depth + 1)
    if name == "type":
        # A resource without a possible type is unknown.
        return "group.version.Type"
    return {str: name, int: len(name), float: len(name) + 0.5, bool: True}[hint]


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_answer_survives_the_wire(cls: Any) -> None:
    answer = filled(cls)
    message = to_message(answer)
    assert type(message).__name__ == cls.__name__
    assert from_message(cls, decode(type(message), encode(message))) == answer


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_message_has_the_fields_of_its_class(cls: Any) -> None:
    message = getattr(observe_pb, cls.__name__)
    assert [each.name for each in dataclasses.fields(message)] == [each.name for each in dataclasses.fields(cls)]


def test_answer_is_json() -> None:
    import json

    assert json.loads(json.dumps(filled(_answer.Why).as_object()))["resource"]["name"] == "name"
