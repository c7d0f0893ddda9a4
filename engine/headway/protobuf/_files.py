"""Describe payloads as .proto files, for tools that know protobuf but not Python."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from headway._gen.headway.types import v1 as types_pb
from headway.protobuf._codec import encode
from headway.protobuf._descriptors import (
    KINDS,
    OPTIONAL,
    REPEATED,
    EnumOptions,
    EnumProto,
    EnumValueProto,
    FieldProto,
    FileProto,
    MessageOptions,
    MessageProto,
    Oneof,
)

_WELL_KNOWN = {"timestamp": "google.protobuf.Timestamp", "duration": "google.protobuf.Duration"}
_SHAPE = types_pb.Shape


def payload_files(description: types_pb.ListResponse, known: Mapping[str, str]) -> list[bytes]:
    """Return file descriptors of all messages and enums in a description of types.

    An enum ``Rank`` is described as ``RankEnum.Rank``. Protobuf puts the values of an enum into the scope that contains
    the enum, where the values of two enums could have the same name.

    Args:
        description: the description of the types.
        known: the names of existing files, by the full names of the messages and enums that they define. The result
            imports them.
    """
    described = _Described(description, known)
    nodes = _nodes(described)
    reached = {name: _reached(name, nodes) for name in nodes}
    return [encode(each) for each in _protos(described, nodes, reached, _files(nodes, reached))]


class _Described:
    """The messages and enums in a description of types, by their full names.

    Attributes:
        known: the names of existing files, by the full names of the messages and enums that they define.
        messages: the messages that no existing file defines.
        enums: the enums that no existing file defines.
    """

    def __init__(self, description: types_pb.ListResponse, known: Mapping[str, str]) -> None:
        self.known = known
        self._all = description.messages
        # If two classes have the same name, the first is described. A type URL does not distinguish them either.
        self.messages: dict[str, types_pb.Message] = {}
        for each in description.messages:
            if each.full_name not in known:
                self.messages.setdefault(each.full_name, each)
        self.enums: dict[str, types_pb.Enum] = {}
        self._enum_names: dict[int, str] = {}
        for name, message in self.messages.items():
            for field in message.fields:
                if field.kind == "enum" and field.held not in self._enum_names:
                    self._add_enum(field.held, description.enums[field.held], self.root(name).rpartition(".")[0])

    def _add_enum(self, index: int, enum: types_pb.Enum, package: str) -> None:
        own = _name(enum.name, "Enum")
        holder = ".".join(filter(None, (package, f"{own}Enum")))
        while holder in self.messages or holder in self.known or f"{holder}.{own}" in self.enums:
            holder += "_"
        self._enum_names[index] = f"{holder}.{own}"
        self.enums[f"{holder}.{own}"] = enum

    def root(self, name: str) -> str:
        """Return the outermost message that contains a message or enum, or the name itself if none does."""
        if name in self.enums:
            return name.rpartition(".")[0]
        parts = name.split(".")
        outer = (".".join(parts[:count]) for count in range(1, len(parts)))
        return next((each for each in outer if each in self.messages), name)

    def held(self, name: str) -> Iterator[str]:
        """Return the full names of the messages and enums that the fields of a message hold."""
        for field in self.messages[name].fields if name in self.messages else ():
            if held := self._held(field):
                yield held

    def _held(self, field: types_pb.Field) -> str:
        if field.kind == "enum":
            return self._enum_names[field.held]
        if field.kind in ("message", "wrapper"):
            return self._all[field.held].full_name
        return _WELL_KNOWN.get(field.kind, "")

    def message(self, name: str, opaque: set[str]) -> MessageProto:
        """Return a message without its nested messages. A field that holds one of ``opaque`` is described as bytes."""
        made = MessageProto(name=name.rpartition(".")[2])
        made.enums = [_enum(each, enum) for each, enum in self.enums.items() if each.rpartition(".")[0] == name]
        fields = self.messages[name].fields if name in self.messages else []
        groups = list(dict.fromkeys(field.oneof for field in fields if field.oneof))
        made.oneofs = [Oneof(name=group) for group in groups]
        for field in fields:
            one = self._field(field, opaque, name, made)
            if field.oneof:
                one.oneof_index = groups.index(field.oneof)
            elif field.shape is _SHAPE.OPTIONAL and one.type != KINDS["message"]:
                # In proto3, a field that may be absent is alone in a synthetic oneof. These follow the real ones.
                one.proto3_optional, one.oneof_index = True, len(made.oneofs)
                made.oneofs.append(Oneof(name=f"_{one.name}"))
            made.fields.append(one)
        return made

    def _field(self, field: types_pb.Field, opaque: set[str], within: str, message: MessageProto) -> FieldProto:
        name = field.name
        type, type_name = self._type(field, opaque)
        if field.shape is not _SHAPE.MAP:
            label = REPEATED if field.shape is _SHAPE.REPEATED else OPTIONAL
            return FieldProto(name=name, number=field.number, label=label, type=type, type_name=type_name)
        entry = "".join(part[:1].upper() + part[1:] for part in name.split("_")) + "Entry"
        key = FieldProto(name="key", number=1, label=OPTIONAL, type=KINDS[field.key_kind])
        value = FieldProto(name="value", number=2, label=OPTIONAL, type=type, type_name=type_name)
        options = MessageOptions(map_entry=True)
        message.nested.append(MessageProto(name=entry, fields=[key, value], options=options))
        return FieldProto(
            name=name, number=field.number, label=REPEATED, type=KINDS["message"], type_name=f".{within}.{entry}"
        )

    def _type(self, field: types_pb.Field, opaque: set[str]) -> tuple[int, str]:
        """Return the number of a field's kind, or of its map values' kind, and the full name of the type it holds."""
        held = self._held(field)
        if not held:
            return KINDS[field.kind], ""
        if held not in self.known and self.root(held) in opaque:
            return KINDS["bytes"], ""
        return KINDS["enum" if field.kind == "enum" else "message"], f".{held}"


def _enum(name: str, enum: types_pb.Enum) -> EnumProto:
    # Proto3 requires the value 0, which an unset field holds, to be the first.
    values = sorted(enum.values, key=lambda value: value.number != 0)
    made = EnumProto(name=name.rpartition(".")[2])
    made.values = [
        EnumValueProto(name=_name(each.proto_name or each.name, f"VALUE_{place}"), number=each.number)
        for place, each in enumerate(values)
    ]
    if len({each.number for each in values}) < len(values):
        made.options = EnumOptions(allow_alias=True)
    return made


def _name(name: str, otherwise: str) -> str:
    """Return the name if protobuf allows it, else ``otherwise``: Python also allows letters outside ASCII."""
    return name if name.isascii() else otherwise


class _Node(NamedTuple):
    """A message or an enum at the top level of a file, with its dependencies: other nodes, and existing files."""

    package: str
    names: tuple[str, ...]
    needs: frozenset[str]
    imports: frozenset[str]


def _nodes(described: _Described) -> dict[str, _Node]:
    within: dict[str, list[str]] = {}
    for name in described.messages:
        within.setdefault(described.root(name), []).append(name)
    for name in described.enums:
        within.setdefault(described.root(name), [])
    nodes = {}
    for root, names in within.items():
        held = {each for name in names for each in described.held(name)}
        nodes[root] = _Node(
            root.rpartition(".")[0],
            tuple(names),
            frozenset(described.root(each) for each in held if each not in described.known) - {root},
            frozenset(described.known[each] for each in held if each in described.known),
        )
    return nodes


def _files(nodes: Mapping[str, _Node], reached: Mapping[str, set[str]]) -> dict[str, str]:
    """Return the file of each node.

    Imports must not be circular, so nodes that depend on each other share a file if they are in the same package.
    """
    files: dict[str, str] = {}
    for name, node in nodes.items():
        if name not in files:
            together = [each for each in reached[name] if name in reached[each] and nodes[each].package == node.package]
            files |= dict.fromkeys((name, *together), f"payloads/{name}.proto")
    return files


def _reached(name: str, nodes: Mapping[str, _Node]) -> set[str]:
    found: set[str] = set()
    waiting = list(nodes[name].needs)
    while waiting:
        each = waiting.pop()
        if each not in found:
            found.add(each)
            waiting += nodes[each].needs
    return found


def _protos(
    described: _Described, nodes: Mapping[str, _Node], reached: Mapping[str, set[str]], files: Mapping[str, str]
) -> Iterator[FileProto]:
    for file in dict.fromkeys(files.values()):
        roots = [name for name in nodes if files[name] == file]
        # A file has one package, and two packages can't import each other. So each describes fields with messages of
        # the other as bytes, which are the same on the wire.
        opaque = {
            need for name in roots for need in nodes[name].needs if files[need] != file and reached[need] & set(roots)
        }
        needs = {need for name in roots for need in nodes[name].needs} - opaque
        imports = {files[need] for need in needs} - {file}
        imports |= {known for name in roots for known in nodes[name].imports}
        yield FileProto(
            name=file,
            package=nodes[roots[0]].package,
            dependencies=sorted(imports),
            messages=[_nested(described, root, nodes[root].names, opaque) for root in roots],
            syntax="proto3",
        )


def _nested(described: _Described, name: str, names: tuple[str, ...], opaque: set[str]) -> MessageProto:
    """Return a message with its nested messages. A message that only serves as their scope has no fields."""
    made = described.message(name, opaque)
    inner = dict.fromkeys(
        each[: each.find(".", len(name) + 1)] if "." in each[len(name) + 1 :] else each
        for each in names
        if each.startswith(f"{name}.")
    )
    made.nested += [_nested(described, each, names, opaque) for each in inner]
    return made
