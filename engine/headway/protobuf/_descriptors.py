"""Protobuf's messages that describe a .proto file, as far as payloads and reflection need them."""

from __future__ import annotations

from headway.protobuf._message import field, message

OPTIONAL, REPEATED = 1, 3

KINDS = {
    "double": 1, "float": 2, "int64": 3, "uint64": 4, "int32": 5, "fixed64": 6, "fixed32": 7, "bool": 8,
    "string": 9, "message": 11, "bytes": 12, "uint32": 13, "enum": 14, "sfixed32": 15, "sfixed64": 16,
    "sint32": 17, "sint64": 18,
}  # fmt: skip
"""The protobuf type number of each kind of field."""


@message(name="google.protobuf.MessageOptions")
class MessageOptions:
    """The options of a message."""

    map_entry: bool = field(7)


@message(name="google.protobuf.EnumOptions")
class EnumOptions:
    """The options of an enum."""

    allow_alias: bool = field(2)


@message(name="google.protobuf.OneofDescriptorProto")
class Oneof:
    """A oneof."""

    name: str = field(1)


@message(name="google.protobuf.FieldDescriptorProto")
class FieldProto:
    """A field. The label is OPTIONAL or REPEATED, and the type is a value of KINDS."""

    name: str = field(1)
    number: int = field(3, kind="int32")
    label: int = field(4, kind="int32")
    type: int = field(5, kind="int32")
    type_name: str = field(6)
    oneof_index: int | None = field(9, kind="int32")
    proto3_optional: bool = field(17)


@message(name="google.protobuf.EnumValueDescriptorProto")
class EnumValueProto:
    """A value of an enum. The number is encoded even if it is 0."""

    name: str = field(1)
    number: int | None = field(2, kind="int32")


@message(name="google.protobuf.EnumDescriptorProto")
class EnumProto:
    """An enum."""

    name: str = field(1)
    values: list[EnumValueProto] = field(2)
    options: EnumOptions | None = field(3)


@message(name="google.protobuf.DescriptorProto")
class MessageProto:
    """A message."""

    name: str = field(1)
    fields: list[FieldProto] = field(2)
    nested: list[MessageProto] = field(3)
    enums: list[EnumProto] = field(4)
    options: MessageOptions | None = field(7)
    oneofs: list[Oneof] = field(8)


@message(name="google.protobuf.MethodDescriptorProto")
class MethodProto:
    """A method."""

    name: str = field(1)


@message(name="google.protobuf.ServiceDescriptorProto")
class ServiceProto:
    """A service."""

    name: str = field(1)
    methods: list[MethodProto] = field(2)


@message(name="google.protobuf.FileDescriptorProto")
class FileProto:
    """A .proto file."""

    name: str = field(1)
    package: str = field(2)
    dependencies: list[str] = field(3)
    messages: list[MessageProto] = field(4)
    enums: list[EnumProto] = field(5)
    services: list[ServiceProto] = field(6)
    syntax: str = field(12)


@message(name="google.protobuf.FileDescriptorSet")
class FileSet:
    """The output of protoc's --descriptor_set_out. Each file stays encoded, because reflection sends bytes."""

    files: list[bytes] = field(1)
