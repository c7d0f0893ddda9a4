"""What a store remembers of one type once another program has opened it: every field that any of them has. Pure."""

from __future__ import annotations

import hashlib

from headway._gen.headway.types import v1 as types_pb
from headway.resource._payload import copy_message, encode
from headway.resource._schema_compare import HELD, Schema


def schema_digest(declared: Schema) -> str:
    """Return what tells a program's schema of a type from every other one. The names of messages don't count."""
    unnamed = copy_message(declared)
    unnamed.types[0].payload = ""
    for each in unnamed.messages:
        each.full_name = ""
    return hashlib.sha256(encode(unnamed)).hexdigest()[:32]


def merge_schemas(stored: Schema, declared: Schema) -> Schema:
    """Return the stored schema with what a program declares, which `compare_schemas` has let pass.

    Fields that the program lacks stay, so that their numbers can't come back as something else.
    """
    merged = copy_message(stored)
    _Merge(merged, declared).run()
    return merged


class _Merge:
    def __init__(self, merged: Schema, declared: Schema) -> None:
        self._merged = merged
        self._declared = declared
        # By a place in the program's description, a place in the merged one.
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
            # A field that was removed and is back as what it was.
            reserved.pop(each.number, None)
        merged.reserved = [types_pb.Reserved(number, name) for number, name in sorted(reserved.items())]
        merged.fields.sort(key=lambda field: field.number)

    def _new_place(self, field: types_pb.Field) -> int:
        """Return the place of what a new field holds; a new one where nothing of the merged description is the same."""
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
