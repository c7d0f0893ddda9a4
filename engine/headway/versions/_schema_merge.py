"""Merge the schemas of all programs of a store into one record of a type. Pure.

The record describes each place of the payload, whichever class a program gives it. Two fields that hold one class in
one program can hold two classes in the next. So a message of the record stands for a stored and a declared message at
the same place. There are only so many such pairs, so a message can contain itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headway._gen.headway.types import v1 as types_pb
from headway.protobuf import copy_message, encode
from headway.versions._schema import HELD, Schema

_Pair = tuple[int | None, int | None]
"""The indices of a stored and a declared message, or enum, of one place. None if a schema lacks the place."""
_Fields = Mapping[int, types_pb.Field]


def merge_schemas(stored: Schema, declared: Schema) -> Schema:
    """Return the stored schema, updated with a program's schema that `compare_schemas` has accepted.

    Fields that the program lacks are kept, so that no later program can reuse their numbers.
    """
    return _join_equal(_Merge(stored, declared).run())


class _Merge:
    def __init__(self, stored: Schema, declared: Schema) -> None:
        self._stored = stored
        self._declared = declared
        # Map each pair to its index in the record. The messages of pairs are made in this order.
        self._messages: dict[_Pair, int] = {}
        self._pairs: list[_Pair] = []
        self._enums: dict[_Pair, int] = {}

    def run(self) -> Schema:
        type, declared = copy_message(self._stored.types[0]), self._declared.types[0]
        type.scope, type.payload = declared.scope, declared.payload
        type.message = self._message_at(type.message, declared.message)
        # Each message can add pairs for the messages that its fields hold.
        messages = [self._message(*pair) for pair in self._pairs]
        return Schema(types=[type], messages=messages, enums=[self._enum(*pair) for pair in self._enums])

    def _message_at(self, stored: int | None, declared: int | None) -> int:
        pair = stored, declared
        if pair not in self._messages:
            self._messages[pair] = len(self._pairs)
            self._pairs.append(pair)
        return self._messages[pair]

    def _message(self, stored_at: int | None, declared_at: int | None) -> types_pb.Message:
        stored = types_pb.Message() if stored_at is None else self._stored.messages[stored_at]
        declared = types_pb.Message() if declared_at is None else self._declared.messages[declared_at]
        before, now = ({each.number: each for each in side.fields} for side in (stored, declared))
        fields = [self._field(before.get(number), now.get(number)) for number in sorted(before.keys() | now.keys())]
        oneofs = _oneofs(before, now)
        for each in fields:
            each.oneof = oneofs[each.number]
        # The store's name of a removed field is the one that its stored data was written under.
        reserved = {each.number: each.name for each in (*declared.reserved, *stored.reserved)}
        for number in now:
            # The field was removed, and then added again unchanged.
            reserved.pop(number, None)
        return types_pb.Message(
            full_name=declared.full_name or stored.full_name,
            fields=fields,
            reserved=[types_pb.Reserved(number, name) for number, name in sorted(reserved.items())],
        )

    def _field(self, was: types_pb.Field | None, now: types_pb.Field | None) -> types_pb.Field:
        newest = was if now is None else now
        assert newest is not None
        made = copy_message(newest)
        made.secret = False
        if was is not None and now is not None:
            former = [*was.former_names, *now.former_names, was.name]
            made.former_names = [each for each in dict.fromkeys(former) if each != now.name]
            if was.kind == "enum" and now.kind == "int32":
                # The enum reads and writes the same numbers. Its members show what the stored numbers mean.
                made.kind = was.kind
        stored, declared = (each.held if each is not None and each.kind == made.kind else None for each in (was, now))
        if made.kind in HELD:
            made.held = self._message_at(stored, declared)
        elif made.kind == "enum":
            made.held = self._enums.setdefault((stored, declared), len(self._enums))
        else:
            made.held = 0
        return made

    def _enum(self, stored_at: int | None, declared_at: int | None) -> types_pb.Enum:
        stored = types_pb.Enum() if stored_at is None else self._stored.enums[stored_at]
        declared = types_pb.Enum() if declared_at is None else self._declared.enums[declared_at]
        known = {(each.name, each.number) for each in stored.values}
        new = [each for each in declared.values if (each.name, each.number) not in known]
        return types_pb.Enum(name=declared.name or stored.name, values=[*stored.values, *new])


def _oneofs(before: _Fields, now: _Fields) -> dict[int, str]:
    """Return the oneof of each field by its number.

    Stored fields still exclude each other, also if the program has only one of them. The program's name of a oneof can
    be new, or that of another stored oneof.
    """
    names = {
        was.oneof: now[number].oneof
        for number, was in before.items()
        if was.oneof and number in now and now[number].oneof
    }
    taken = {each.oneof for each in now.values()}
    for was in before.values():
        if was.oneof and was.oneof not in names:
            names[was.oneof] = _free_name(was.oneof, taken)
    oneofs = {number: names.get(was.oneof, "") for number, was in before.items()}
    for number, each in now.items():
        oneofs[number] = each.oneof or oneofs.get(number, "")
    return oneofs


def _free_name(name: str, taken: set[str]) -> str:
    """Return the name, with a number if it is taken, and add it to the taken names."""
    free, number = name, 1
    while free in taken:
        number += 1
        free = f"{name}{number}"
    taken.add(free)
    return free


def _join_equal(schema: Schema) -> Schema:
    """Return the schema with one message for all that describe the same. The others get different names."""
    enums = [encode(each) for each in schema.enums]
    groups = _numbered(encode(_without_held(each)) for each in schema.messages)
    while True:
        # Messages are equal if their fields are, and the messages and enums that these hold.
        split = _numbered(
            (group, *(groups[each.held] if each.kind in HELD else enums[each.held] for each in _holding(message)))
            for group, message in zip(groups, schema.messages, strict=True)
        )
        if split == groups:
            break
        groups = split
    messages = [schema.messages[groups.index(group)] for group in range(max(groups) + 1)]
    names: set[str] = set()
    for message in messages:
        message.full_name = _free_name(message.full_name, names)
        for each in _holding(message):
            if each.kind in HELD:
                each.held = groups[each.held]
    schema.messages = messages
    return schema


def _holding(message: types_pb.Message) -> list[types_pb.Field]:
    return [each for each in message.fields if each.kind in HELD or each.kind == "enum"]


def _without_held(message: types_pb.Message) -> types_pb.Message:
    bare = copy_message(message)
    for each in bare.fields:
        each.held = 0
    return bare


def _numbered(keys: Iterable[object]) -> list[int]:
    """Number the keys from 0 in the order of their first appearance. Equal keys have one number."""
    numbers: dict[object, int] = {}
    return [numbers.setdefault(each, len(numbers)) for each in keys]
