"""Random sequences of programs over the record of one store: each accepted program reads what the others wrote."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from headway.resource import types_pb
from headway.versions import compare_schemas, merge_schemas

LENGTH = 25
MOST_MESSAGES = 4
NUMBERS = (1, 2, 3)
FURTHER = 100
"""The number of the first field that a program is extended with."""

ENUMS = {
    "Color": ["NONE", "RED", "GREEN"],
    "Longer": ["NONE", "RED", "GREEN", "BLUE"],
    "Swapped": ["NONE", "GREEN", "RED"],
}
BITS = {"bool": 1, "int32": 32, "int64": 64} | dict.fromkeys(ENUMS, 32)
"""The kinds that have the same number on the wire for a value, with their sizes."""
KINDS = ["string", "sint64", *BITS]
ONEOFS = ["", "way", "path"]
NEXT = {kind: ["int32", *ENUMS, "int64"] for kind in ("int32", *ENUMS)}
"""The kinds that may follow a kind. Most others are refused."""


class Field(NamedTuple):
    """A field of a message.

    Attributes:
        name: a letter. "b" is declared as another name of "a"; "c" is another field.
        kind: one of `KINDS`, or the place of the message that it holds.
        many: True for a list.
        oneof: the name of its oneof, or "".
    """

    name: str
    kind: str | int
    many: bool = False
    oneof: str = ""

    def meaning(self) -> tuple[object, ...]:
        """Return what must be the same for all programs with the field."""
        kind = "message" if isinstance(self.kind, int) else "number" if self.kind in BITS else self.kind
        return "a" if self.name == "b" else self.name, self.many, kind

    def described(self, number: int) -> types_pb.Field:
        shape = types_pb.Shape.REPEATED if self.many else types_pb.Shape.OPTIONAL
        made = types_pb.Field(name=self.name, number=number, shape=shape, oneof=self.oneof)
        if self.name == "b":
            made.former_names = ["a"]
        if isinstance(self.kind, int):
            made.kind, made.held = "message", self.kind
        elif self.kind in ENUMS:
            made.kind, made.held = "enum", list(ENUMS).index(self.kind)
        else:
            made.kind = self.kind
        return made


class Message(NamedTuple):
    """The fields of a message by number, and the names of those that were removed."""

    fields: dict[int, Field]
    reserved: dict[int, str]

    def described(self, place: int) -> types_pb.Message:
        return types_pb.Message(
            full_name=f"staff.v1.M{place}",
            fields=[each.described(number) for number, each in self.fields.items()],
            reserved=[types_pb.Reserved(number, name) for number, name in self.reserved.items()],
        )


Program = tuple[Message, ...]
"""The messages of one type. The first one is its payload."""


def schema(program: Program) -> types_pb.ListResponse:
    return types_pb.ListResponse(
        types=[types_pb.ResourceType(scope=types_pb.Scope.NAMESPACE)],
        messages=[each.described(place) for place, each in enumerate(program)],
        enums=[
            types_pb.Enum(name=name, values=[types_pb.EnumValue(name=each, number=n) for n, each in enumerate(members)])
            for name, members in ENUMS.items()
        ],
    )


def changed(program: Program, at: int, number: int, field: Field | None) -> Program:
    """Return the program with another field of a number, or without it."""
    fields, reserved = dict(program[at].fields), dict(program[at].reserved)
    if field is None:
        reserved[number] = fields.pop(number).name
    else:
        reserved.pop(number, None)
        fields[number] = field
    return (*program[:at], Message(fields, reserved), *program[at + 1 :])


def next_program(random: Random, program: Program) -> Program:
    """Return the program with one change."""
    at, number = random.randrange(len(program)), random.choice(NUMBERS)
    was = program[at].fields.get(number)
    if was is None:
        many = random.random() < 0.3
        kind = random.choice([*KINDS, *range(len(program))])
        new = Field(random.choice("ac"), kind, many, "" if many else random.choice(ONEOFS))
        return changed(program, at, number, new)
    change = random.choice(["kind", "kind", "name", "oneof", "drop"])
    if change == "drop":
        return changed(program, at, number, None)
    if change == "name":
        return changed(program, at, number, was._replace(name=random.choice("abc")))
    if change == "oneof" and not was.many:
        return changed(program, at, number, was._replace(oneof=random.choice(ONEOFS)))
    if isinstance(was.kind, str):
        return changed(program, at, number, was._replace(kind=random.choice(NEXT.get(was.kind, KINDS))))
    if len(program) < MOST_MESSAGES:
        # A second class, so far with the same fields.
        program = (*program, program[was.kind])
    return changed(program, at, number, was._replace(kind=random.randrange(len(program))))


def places(one: Program, other: Program) -> Iterator[tuple[dict[int, Field], dict[int, Field]]]:
    """Yield the fields of two programs at each place that both have."""
    pairs = [(0, 0)]
    for at, other_at in pairs:
        fields, others = one[at].fields, other[other_at].fields
        yield fields, others
        for number in fields.keys() & others.keys():
            held, other_held = fields[number].kind, others[number].kind
            if isinstance(held, int) and isinstance(other_held, int) and (held, other_held) not in pairs:
                pairs.append((held, other_held))


def exclude(fields: dict[int, Field], number: int, other: int) -> bool:
    return fields[number].oneof == fields[other].oneof != ""


def check_agree(earlier: Program, later: Program) -> None:
    """Check that each program reads what the other writes, as the other means it."""
    for was, now in places(earlier, later):
        common = sorted(was.keys() & now.keys())
        for number in common:
            before, after = was[number].kind, now[number].kind
            assert was[number].meaning() == now[number].meaning()
            if before in ENUMS and after in ENUMS:
                assert all(one == other for one, other in zip(ENUMS[before], ENUMS[after], strict=False))
            if before in BITS and after in BITS:
                assert BITS[before] <= BITS[after]
        for pair in itertools.combinations(common, 2):
            assert exclude(was, *pair) == exclude(now, *pair)


LEAF = Message({1: Field("a", "string", oneof="way"), 2: Field("a", "Color", oneof="way")}, {})
SHARED: Program = (Message({1: Field("a", 1), 2: Field("a", 1, many=True)}, {}), LEAF)
RECURSIVE: Program = (
    Message({1: Field("a", 0), 2: Field("a", 1)}, {}),
    Message({1: Field("a", 1), 2: Field("a", "Color"), 3: Field("a", "int32")}, {}),
)


# One number decides a sequence, because drawing each choice takes most of the time.
@given(st.integers(0, 2**32 - 1), st.sampled_from([SHARED, RECURSIVE]))
def test_accepted_programs_read_what_the_others_have_written(seed: int, first: Program) -> None:
    """Each place has one meaning for all of them. A program is accepted again, also with a further field."""
    random, record, accepted = Random(seed), schema(first), [first]
    for number in range(LENGTH):
        program = next_program(random, random.choice(accepted[-2:]))
        if compare_schemas(record, schema(program)):
            continue
        for earlier in accepted:
            check_agree(earlier, program)
        record = merge_schemas(record, schema(program))
        accepted.append(program)
        further = changed(program, 0, FURTHER + number, Field("a", "string"))
        for each in (program, further):
            assert compare_schemas(record, schema(each)) == []
