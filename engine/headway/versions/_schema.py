"""Compare the stored schema of a type, or the server's schema of a topic, with a program's schema. Pure.

A schema is a description of one type or one topic. Messages are matched by the fields that hold them, not by name.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Mapping
from itertools import islice

from headway._gen.headway.resource import v1 as pb
from headway._gen.headway.types import v1 as types_pb
from headway.errors import SchemaProblem
from headway.protobuf import copy_message, encode

Schema = types_pb.ListResponse
HELD = ("message", "wrapper")
"""The kinds of fields that hold a message of the description."""
MOST_PROBLEMS = 100
"""The number of differences that are looked for. A peer's description may have millions."""

_Fields = Mapping[int, types_pb.Field]
_SHAPE = types_pb.Shape
_ALSO_READS: dict[str, frozenset[str]] = {
    "int32": frozenset({"bool", "enum"}),
    "uint32": frozenset({"bool"}),
    "int64": frozenset({"bool", "enum", "int32", "uint32"}),
    "uint64": frozenset({"bool", "uint32"}),
    "sint64": frozenset({"sint32"}),
    "enum": frozenset({"int32"}),
}
"""For each kind, the other kinds whose values it reads without change: an integer reads the narrower ones."""
_WORDS = {_SHAPE.REPEATED: "list of {}", _SHAPE.MAP: "map of {key} to {}"}


def compare_schemas(
    stored: Schema, declared: Schema, *, both_ways: bool = False, other: str = "server"
) -> list[SchemaProblem]:
    """Return the differences that would make a program misread stored resources.

    With ``both_ways``, either side may be the newer one, as between a client and a server. Then a difference counts
    only if neither schema could have evolved into the other. ``other`` is what the texts call the side that has the
    ``stored`` schema then. At most `MOST_PROBLEMS` are returned.
    """
    return list(islice(_Comparison(stored, declared, other if both_ways else "").problems(), MOST_PROBLEMS))


def scope_problem(type: str, stored: str, declared: str) -> SchemaProblem:
    """Return the difference between two scopes of a type, given by their names."""
    return SchemaProblem(
        type,
        "",
        0,
        f"expected the scope {stored} as stored, got {declared}",
        f"keep Scope.{stored}, or delete all resources of the type with the older program first",
    )


class _Comparison:
    def __init__(self, stored: Schema, declared: Schema, other: str) -> None:
        self._stored = stored
        self._declared = declared
        self._other = other
        self._both_ways = bool(other)
        self._where = f"as the {other} has it" if other else "as stored"
        if declared.topics:
            self._type = f"topic {declared.topics[0].name}"
        else:
            type = declared.types[0].type or pb.Type()
            self._type = f"{type.group}.{type.group_version}.{type.kind}"
        # The pairs of messages that were found, and those of them that are still to be compared, with their paths.
        self._found: set[tuple[int, int]] = set()
        self._waiting: deque[tuple[str, int, int]] = deque()
        # The problems of pairs of enums, with what is right. Many messages may hold the same enum.
        self._enums: dict[tuple[int, int], list[tuple[str, str]]] = {}

    def problems(self) -> Iterator[SchemaProblem]:
        if self._declared.topics:
            yield from self._topic(self._stored.topics[0], self._declared.topics[0])
        else:
            yield from self._resource_type(self._stored.types[0], self._declared.types[0])
        # A queue, because a recursion over messages that contain each other could be as deep as there are pairs.
        while self._waiting:
            yield from self._message(*self._waiting.popleft())

    def _resource_type(self, stored: types_pb.ResourceType, declared: types_pb.ResourceType) -> Iterator[SchemaProblem]:
        if stored.scope != declared.scope:
            was, now = (types_pb.Scope(each.scope).name or "" for each in (stored, declared))
            if self._both_ways:
                problem = f"expected the scope {was} {self._where}, got {now}"
                right = f"declare Scope.{was}, or change the {self._other}'s program"
                yield SchemaProblem(self._type, "", 0, problem, right)
            else:
                yield scope_problem(self._type, was, now)
        self._find("", stored.message, declared.message)

    def _find(self, path: str, stored_at: int, declared_at: int) -> None:
        if (stored_at, declared_at) not in self._found:
            self._found.add((stored_at, declared_at))
            self._waiting.append((path, stored_at, declared_at))

    def _topic(self, stored: types_pb.Topic, declared: types_pb.Topic) -> Iterator[SchemaProblem]:
        if stored.message is not None and declared.message is not None:
            self._find("", stored.message, declared.message)
        elif stored.payload != declared.payload:
            was, now = ("bytes" if each.message is None else "messages" for each in (stored, declared))
            problem = f"expected events of {was} {self._where}, got {now}"
            right = f"declare the topic {'without' if stored.message is None else 'with'} a message class"
            yield SchemaProblem(self._type, "", 0, problem, f"{right}, or change the {self._other}'s program")

    def _message(self, path: str, stored_at: int, declared_at: int) -> Iterator[SchemaProblem]:
        stored, declared = self._stored.messages[stored_at], self._declared.messages[declared_at]
        reserved = {each.number: each.name for each in stored.reserved}
        given_up = {each.number: each.name for each in declared.reserved}
        now = {each.number: each for each in declared.fields}
        before = {each.number: each for each in stored.fields}
        free = _free_number(stored, declared)
        message = declared.full_name.rpartition(".")[2]
        if any(each.message == declared_at for each in self._declared.topics):
            # A message that got its full name from the topic is not called after its class.
            message = "the topic's message class"
        place = _Place(self._type, path, message, free, self._where)
        rivals = _rivals(before, now)
        for number, was in before.items():
            field = now.get(number)
            if field is None:
                if number not in reserved:
                    yield from self._missing(place, was, given_up.get(number), now)
                continue
            if number in reserved and not _named_alike(was, field):
                yield self._removed(place, reserved[number], field)
                continue
            yield from self._field(place, was, field)
            others = rivals.get(number, [])
            for other in others[bisect_right(others, number) :]:
                yield place.rival(field, now[other])
        for number in reserved.keys() & now.keys() - before.keys():
            # The program that reserved this number had not stored any schema with the field.
            if reserved[number] not in (now[number].name, *now[number].former_names):
                yield self._removed(place, reserved[number], now[number])

    def _removed(self, place: _Place, name: str, field: types_pb.Field) -> SchemaProblem:
        right = place.new
        if self._both_ways:
            # The server may have renamed the field before it was removed. Its description does not show that.
            reserved = f"reserved={{{field.number}: {_oldest_name(field)!r}}} in the {self._other}'s program"
            right = f"if it is the same field under an older name, declare {reserved}; otherwise {right}"
        return place.problem(field, f"expected no field, since {name!r} of this number was removed", right)

    def _missing(
        self, place: _Place, was: types_pb.Field, given_up: str | None, now: dict[int, types_pb.Field]
    ) -> Iterator[SchemaProblem]:
        if self._both_ways or given_up in (was.name, *was.former_names):
            return
        moved = next((each for each in now.values() if each.name == was.name), None)
        if moved is not None:
            right = f"give {was.name} this number again; the program gives it {moved.number}"
        else:
            # The oldest name, because programs from before a rename know no other.
            right = f"declare @headway.message(reserved={{{was.number}: {_oldest_name(was)!r}}}) for {place.message}"
        got = "no such field" if given_up is None else f"reserved={{{was.number}: {given_up!r}}}"
        yield place.problem(was, f"expected {was.name!r} {self._where}, got {got}", right, missing=given_up is None)

    def _field(self, place: _Place, was: types_pb.Field, field: types_pb.Field) -> Iterator[SchemaProblem]:
        if not reads(field, was) and not (self._both_ways and reads(was, field)):
            problem = f"expected {_words(was)} {self._where}, got {_words(field)}"
            yield place.problem(field, problem, f"keep {_words(was)}, or {place.new}")
            return
        if not _named_alike(was, field):
            yield place.problem(
                field,
                f"expected the name {was.name!r} {self._where}, got {field.name!r}",
                f"if it is the same field, declare @headway.message(renamed={{{was.number}: {was.name!r}}}) for "
                f"{place.message}; otherwise {place.new}",
            )
        if was.kind in HELD:
            self._find(f"{place.path}{field.name}.", was.held, field.held)
        elif was.kind == field.kind == "enum":
            pair = was.held, field.held
            if pair not in self._enums:
                self._enums[pair] = list(self._enum(self._stored.enums[was.held], self._declared.enums[field.held]))
            for problem, right in self._enums[pair]:
                yield place.problem(field, problem, right)

    def _enum(self, stored: types_pb.Enum, declared: types_pb.Enum) -> Iterator[tuple[str, str]]:
        names: dict[int, list[str]] = {}
        for each in declared.values:
            names.setdefault(each.number, []).append(each.name)
        numbers = {each.name: each.number for each in declared.values}
        known: dict[int, set[str]] = {}
        for each in stored.values:
            known.setdefault(each.number, set()).add(each.name)
        for number, former in known.items():
            given = names.get(number)
            if given is not None and former.isdisjoint(given):
                old = sorted(former)[0]
                yield (
                    f"expected {old} for {number} of {declared.name} {self._where}, got {given[0]}",
                    f"use a new number for {given[0]}, or keep {old} = {number} as an alias, if they mean the same",
                )
            for name in sorted(former):
                if given is None and numbers.get(name, number) != number and numbers[name] not in known:
                    yield (
                        f"expected {number} for {name} of {declared.name} {self._where}, got {numbers[name]}",
                        f"write {name} = {number}",
                    )


class _Place:
    """The message whose fields are being compared.

    Attributes:
        path: the names of the fields that lead to it, each followed by a dot.
        message: the name of its class.
        new: the advice for a field that should be a new one.
        where: the words for the other side of the comparison.
    """

    def __init__(self, type: str, path: str, message: str, free: int, where: str) -> None:
        self._type = type
        self.path = path
        self.message = message
        self.where = where
        self.new = f"use a new number, such as field({free})"

    def problem(self, field: types_pb.Field, problem: str, right: str, *, missing: bool = False) -> SchemaProblem:
        return SchemaProblem(self._type, f"{self.path}{field.name}", field.number, problem, right, missing)

    def rival(self, field: types_pb.Field, other: types_pb.Field) -> SchemaProblem:
        """Return the problem of two fields that are in one oneof now and were not before, or the other way round."""
        if field.oneof and field.oneof == other.oneof:
            problem = f"expected it to be independent of {other.name} {self.where}, got both in the oneof {field.oneof}"
            return self.problem(field, problem, "take one of them out of the oneof")
        problem = f"expected it to exclude {other.name} {self.where}, got two fields that can both be set"
        return self.problem(field, problem, f"keep both in one oneof, or for one of them {self.new}")


def _rivals(before: _Fields, now: _Fields) -> dict[int, list[int]]:
    """Return, for each number that both schemas have, those that exclude it in only one of them, sorted.

    The program with the oneof would read one of the two fields, and remove the other with its next write.
    """
    common = before.keys() & now.keys()
    together: dict[str, set[int]] = {}
    together_before: dict[str, set[int]] = {}
    moved: dict[tuple[str, str], list[int]] = {}
    for number in common:
        was, field = before[number].oneof, now[number].oneof
        moved.setdefault((was, field), []).append(number)
        if was:
            together_before.setdefault(was, set()).add(number)
        if field:
            together.setdefault(field, set()).add(number)
    rivals: dict[int, list[int]] = {}
    # By the pair of oneofs, and not by the pair of fields, of which a large message has very many.
    for (was, field), numbers in moved.items():
        if changed := sorted(together_before.get(was, set()) ^ together.get(field, set())):
            rivals |= dict.fromkeys(numbers, changed)
    return rivals


def _named_alike(was: types_pb.Field, field: types_pb.Field) -> bool:
    return field.name == was.name or was.name in field.former_names or field.name in was.former_names


def _oldest_name(field: types_pb.Field) -> str:
    return (*field.former_names, field.name)[0]


def _free_number(stored: types_pb.Message, declared: types_pb.Message) -> int:
    numbers = [field.number for side in (stored, declared) for field in side.fields]
    numbers += [reserved.number for side in (stored, declared) for reserved in side.reserved]
    return max(numbers, default=0) + 1


def reads(now: types_pb.Field, before: types_pb.Field) -> bool:
    """Return True if a field reads every value that another has written. The content of messages is not compared."""
    if _listed(now) != _listed(before) or now.key_kind != before.key_kind:
        return False
    return now.kind == before.kind or before.kind in _ALSO_READS.get(now.kind, ())


def _words(field: types_pb.Field) -> str:
    """Describe the type of a field for an error message: ``list of string``."""
    return _WORDS.get(field.shape, "{}").format(field.kind, key=field.key_kind)


def _listed(field: types_pb.Field) -> types_pb.Shape:
    # Whether a single value may be absent makes no difference on the wire.
    return _SHAPE.SINGLE if field.shape is _SHAPE.OPTIONAL else field.shape


def schema_digest(declared: Schema) -> str:
    """Return a digest of a program's schema of a type. The names of messages do not affect it."""
    unnamed = copy_message(declared)
    unnamed.types[0].payload = ""
    for each in unnamed.messages:
        each.full_name = ""
        for field in each.fields:
            # Whether a value is shown does not change how it is read.
            field.secret = False
    return hashlib.sha256(encode(unnamed)).hexdigest()[:32]
