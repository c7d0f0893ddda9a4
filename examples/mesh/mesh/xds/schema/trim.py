"""Write the part of Envoy's published .proto files that fields.txt names: ``python trim.py [FOLDER]``.

The published files are those in the package xds-protos, which holds them compiled. Comments, options and everything
that is not named are left out. Numbers, types and names stay.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

HERE = Path(__file__).parent
NOTICE = """\
// Copyright the Envoy Project Authors, and for google/ Google LLC. Licensed under the Apache License, Version 2.0, for
// google/protobuf under the BSD license. Made by trim.py: only the fields that fields.txt names, without comments and
// options.
"""
Kind = FieldDescriptorProto


def wanted() -> dict[str, list[str]]:
    """Return the fields to keep, by the full name of their message."""
    lines = [each.partition(":") for each in (HERE / "fields.txt").read_text().splitlines() if each[0] != "#"]
    return {name: fields.split() for name, _, fields in lines}


def published(keep: dict[str, list[str]]) -> list[FileDescriptorProto]:
    """Return the published files that declare the wanted messages, with the enums that these use."""
    for package in {name.partition(".v3.")[0] + ".v3" for name in keep if ".v3." in name}:
        folder = importlib.import_module(package).__path__[0]
        for each in Path(folder).glob("*_pb2.py"):
            importlib.import_module(f"{package}.{each.stem}")
    for name in ("rpc.status", "protobuf.any", "protobuf.duration", "protobuf.struct", "protobuf.wrappers"):
        importlib.import_module(f"google.{name}_pb2")
    pool = descriptor_pool.Default()
    files = {}
    for name, fields in keep.items():
        message = pool.FindMessageTypeByName(name)
        enums = [message.fields_by_name[each].enum_type for each in fields if each in message.fields_by_name]
        for each in (message, *filter(None, enums)):
            files[each.file.name] = FileDescriptorProto.FromString(each.file.serialized_pb)
    return [files[each] for each in sorted(files)]


class Trimmed:
    """One file, as text."""

    def __init__(self, file: FileDescriptorProto, keep: dict[str, list[str]]) -> None:
        self.file = file
        self.keep = keep
        self.used: set[str] = set()
        self.prefix = f".{file.package}."
        self.messages = [
            text for each in file.message_type for text in self.message(each, f"{file.package}.{each.name}", "")
        ]

    def message(self, message: DescriptorProto, name: str, indent: str) -> Iterator[str]:
        """Yield the lines of a message, or none if neither it nor a message within it is kept."""
        inside = f"{indent}  "
        inner = [line for each in message.nested_type for line in self.message(each, f"{name}.{each.name}", inside)]
        if name not in self.keep and not inner:
            return
        names = self.keep.get(name, [])
        if missing := set(names) - {each.name for each in message.field}:
            sys.exit(f"fields.txt: {name} has no field {sorted(missing)[0]}")
        fields = [each for each in message.field if each.name in names]
        enums = {each.type_name for each in fields if each.type == Kind.TYPE_ENUM}
        yield f"{indent}message {message.name} {{"
        for enum in message.enum_type:
            if f".{name}.{enum.name}" in enums:
                yield from enum_lines(enum, inside)
        yield from inner
        maps = {f".{name}.{each.name}": each for each in message.nested_type if each.options.map_entry}
        for index, one_of in enumerate(message.oneof_decl):
            members = [each for each in fields if each.HasField("oneof_index") and each.oneof_index == index]
            if members and not members[0].proto3_optional:
                yield f"{inside}oneof {one_of.name} {{"
                for each in members:
                    yield f"{inside}  {self.type_of(each)} {each.name} = {each.number};"
                yield f"{inside}}}"
        for each in fields:
            if each.HasField("oneof_index") and not each.proto3_optional:
                continue
            if entry := maps.get(each.type_name):
                kind = f"map<{self.type_of(entry.field[0])}, {self.type_of(entry.field[1])}>"
            else:
                label = (
                    "repeated " if each.label == Kind.LABEL_REPEATED else "optional " if each.proto3_optional else ""
                )
                kind = label + self.type_of(each)
            yield f"{inside}{kind} {each.name} = {each.number};"
        yield f"{indent}}}"

    def type_of(self, field: FieldDescriptorProto) -> str:
        """Return the name of a field's type, and note that it is used."""
        if not field.type_name:
            return str(Kind.Type.Name(field.type)).removeprefix("TYPE_").lower()
        name = field.type_name.removeprefix(".")
        if field.type == Kind.TYPE_MESSAGE and name not in self.keep:
            sys.exit(f"fields.txt: {field.name} needs the message {name}: name it")
        self.used.add(field.type_name)
        return str(field.type_name)


def enum_lines(enum: EnumDescriptorProto, indent: str) -> Iterator[str]:
    """Yield the lines of an enum."""
    yield f"{indent}enum {enum.name} {{"
    yield from (f"{indent}  {each.name} = {each.number};" for each in enum.value)
    yield f"{indent}}}"


def main(folder: Path) -> None:
    """Replace the .proto files in a folder."""
    keep = wanted()
    files = published(keep)
    trimmed = [Trimmed(file, keep) for file in files]
    used = set().union(*(each.used for each in trimmed))
    declared: dict[str, str] = {}
    for file in files:
        for each in [*file.message_type, *file.enum_type]:
            declared[f".{file.package}.{each.name}"] = file.name
    for old in folder.rglob("*.proto"):
        old.unlink()
    for each in trimmed:
        enums = [enum for enum in each.file.enum_type if each.prefix + enum.name in used]
        if not each.messages and not enums:
            continue
        needs = {declared[found] for name in each.used for found in declared if f"{name}.".startswith(f"{found}.")}
        lines = [NOTICE, 'syntax = "proto3";', "", f"package {each.file.package};", ""]
        lines += [f'import "{other}";' for other in sorted(needs - {each.file.name})]
        for enum in enums:
            lines += ["", *enum_lines(enum, "")]
        target = folder / each.file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text("\n".join([*lines, "", *each.messages]) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
