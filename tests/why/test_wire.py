"""Answers of other processes: nothing is lost on the way, except what cannot be shown."""

from __future__ import annotations

import dataclasses
import json
import math
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


def test_time_and_type_that_cannot_be_shown_are_unknown() -> None:
    touched = [observe_pb.Touched("get", observe_pb.Ref("staff.Team", name="core"), 7)]
    why = observe_pb.Why(at=math.nan, stored=observe_pb.Stored(owner=observe_pb.Ref("Team")))
    why.controllers = [
        observe_pb.ControllerWhy(
            "staff/teams", since=-1e12, until=math.inf, reconciles=[observe_pb.PastReconcile(1.5, reads=touched)]
        )
    ]
    [part] = cleaned(why).controllers
    assert (cleaned(why).at, part.since, part.until, part.reconciles[0].at) == (0.0, 0.0, 0.0, 1.5)
    assert cleaned(why).stored == observe_pb.Stored()
    assert part.reconciles[0].reads == [observe_pb.Touched("get", None, 7)]


def test_unknown_field_of_another_process_is_dropped() -> None:
    """A viewer would get it otherwise."""
    sent = encode(observe_pb.StuckItem("staff/teams")) + b"\xfa\x3e\x03new"
    assert encode(cleaned(decode(observe_pb.StuckItem, sent))) == encode(observe_pb.StuckItem("staff/teams"))


def test_answer_is_json() -> None:
    assert json.loads(json.dumps(dataclasses.asdict(filled(observe_pb.Why))))["resource"]["name"] == "name"
