"""Merge the schemas of all programs that have opened a store, so that it remembers every field of a type. Pure."""

from __future__ import annotations

import hashlib

from headway._gen.headway.types import v1 as types_pb
from headway.protobuf._payload import copy_message, encode
from headway.protobuf._schema import HELD, Schema


def schema_digest(declared: Schema) -> str:
    """Return a digest of a program's schema of a type. The names of messages do not affect it."""
    unnamed = copy_message(declared)
    unnamed.types[0].payload = ""
    for each in unnamed.messages:
        each.full_name = ""
    return hashlib.sha256(encode(unnamed)).hexdigest()[:32]


def merge_schemas(stored: Schema, declared: Schema) -> Schema:
    """Return the stored schema, updated with a program's schema that `compare_schemas` has accepted.

    Fields that the program lacks are kept, so that no later program can reuse their numbers.
    """
    merged = copy_message(stored)
    _Merge(merged, declared).run()
    return merged


class _Merge:
    def __init__(self, merged: Schema, declared: Schema) -> None:
        self._merged = merged
        self._declared = declared
        # Map each index in the program's description to an index in the merged one.
        self._messages: dict[int, int] = {}
        self._enums: dict[int, int] = {}
        self._done: set[tuple[int, int]] = set()

    def run(self) -> None:
        type, declared = self._merged.types[0], self._declared.types[0]
        type.scope, type.payload = declared.scope, declared.payload
        self._message(type.message, declared.message)

    def _message(self, at: int, declared_at: int) -> None:
        if (at, declared_at) in self._done:
            return
        self._done.add((at, declared_at))
        self._messages.setdefault(declared_at, at)
        merged, declared = self._merged.messages[at], self._declared.messages[declared_at]
        merged.full_name = declared.full_name
        fields = {each.number: each for each in merged.fields}
        for each in declared.fields:
            known = fields.get(each.number)
            if known is None:
                merged.fields.append(known := copy_message(each))
                known.held = self._new_place(each)
            self._field(known, each)
        reserved = {each.number: each.name for each in (*merged.reserved, *declared.reserved)}
        for each in declared.fields:
            # The field was removed, and then added again unchanged.
            reserved.pop(each.number, None)
        merged.reserved = [types_pb.Reserved(number, name) for number, name in sorted(reserved.items())]
        merged.fields.sort(key=lambda field: field.number)

    def _new_place(self, field: types_pb.Field) -> int:
        """Return the index of the message or enum that a new field holds. Add an empty one if it isn't merged yet."""
        if field.kind in HELD:
            if field.held not in self._messages:
                self._messages[field.held] = len(self._merged.messages)
                self._merged.messages.append(types_pb.Message())
            return self._messages[field.held]
        if field.kind == "enum":
            if field.held not in self._enums:
                self._enums[field.held] = len(self._merged.enums)
                self._merged.enums.append(types_pb.Enum())
            return self._enums[field.held]
        return 0

    def _field(self, known: types_pb.Field, declared: types_pb.Field) -> None:
        former = [*known.former_names, *declared.former_names, known.name]
        known.former_names = [each for each in dict.fromkeys(former) if each != declared.name]
        known.name, known.shape, known.oneof = declared.name, declared.shape, declared.oneof
        if known.kind != declared.kind:
            known.kind = declared.kind
            known.held = self._new_place(declared)
        if known.kind in HELD:
            self._message(known.held, declared.held)
        elif known.kind == "enum":
            self._enums.setdefault(declared.held, known.held)
            self._enum(self._merged.enums[known.held], self._declared.enums[declared.held])

    def _enum(self, merged: types_pb.Enum, declared: types_pb.Enum) -> None:
        merged.name = declared.name
        known = {(each.name, each.number) for each in merged.values}
        merged.values += [copy_message(each) for each in declared.values if (each.name, each.number) not in known]
