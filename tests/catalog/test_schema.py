"""The .proto files of the catalog describe the messages that are declared in Python, no more and no less."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.descriptor_pb2 import FileDescriptorSet as FileSet

import headway
from catalog import messages, types
from headway import ResourceType, Scope
from headway.protobuf import decode, payload_files
from headway.resource import describe

SCHEMA = Path(__file__).parents[2] / "examples/catalog/schema"
FILES = sorted(str(path.relative_to(SCHEMA)) for path in SCHEMA.rglob("*.proto"))
OURS = ("hashicorp.consul.catalog.", "hashicorp.consul.auth.", "hashicorp.consul.multicluster.")
KNOWN = {"google.protobuf.Duration": "google/protobuf/duration.proto"}
# It has no type, as in Consul's community edition.
SAMENESS_GROUP = ResourceType("multicluster", "v2", "SamenessGroup", messages.SamenessGroup, scope=Scope.PARTITION)
TYPES: list[ResourceType[Any]] = [each for each in vars(types).values() if isinstance(each, ResourceType)]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> list[FileDescriptorProto]:
    """Return the files of the schema as protoc compiles them."""
    made = tmp_path_factory.mktemp("schema") / "schema.bin"
    protoc = [sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={SCHEMA}", f"--descriptor_set_out={made}"]
    subprocess.run([*protoc, *FILES], check=True, timeout=30)
    return list(FileSet.FromString(made.read_bytes()).file)


def all_messages(files: Iterable[FileDescriptorProto]) -> Iterator[tuple[str, DescriptorProto]]:
    for file in files:
        for each in file.message_type:
            yield f"{file.package}.{each.name}", each


def all_enums(files: Iterable[FileDescriptorProto]) -> dict[str, dict[str, int]]:
    """Return the values of the enums. Headway describes an enum within a message that has no other use."""
    found: list[EnumDescriptorProto] = [enum for file in files for enum in file.enum_type]
    found += [enum for _, each in all_messages(files) for enum in each.enum_type]
    return {enum.name: {value.name: value.number for value in enum.value} for enum in found}


def plain(message: DescriptorProto) -> dict[int, tuple[Any, ...]]:
    """Return the fields of a message by their numbers: everything that the wire and JSON depend on."""
    entries = {each.name: plain(each) for each in message.nested_type if each.options.map_entry}
    found = {}
    for field in message.field:
        last = field.type_name.rpartition(".")[2]
        held = entries.get(last, last)
        oneof = message.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else ""
        found[field.number] = (field.name, field.label, field.type, held, oneof)
    return found


def test_messages_have_the_same_names_numbers_and_kinds(compiled: list[FileDescriptorProto]) -> None:
    files = payload_files(describe([*TYPES, SAMENESS_GROUP]), KNOWN)
    declared = [FileDescriptorProto.FromString(each) for each in files]
    ours = {name: plain(each) for name, each in all_messages(declared) if name.startswith(OURS) and each.field}
    theirs = {name: plain(each) for name, each in all_messages(compiled) if name.startswith(OURS) and each.field}
    assert ours == theirs
    assert len(theirs) == 49
    empty = {name for name, each in all_messages(compiled) if name.startswith(OURS) and not each.field}
    assert empty == {"hashicorp.consul.auth.v2beta1.WorkloadIdentity"}
    ours_alone = [file for file in compiled if file.package.startswith(OURS)]
    assert all_enums(declared) == all_enums(ours_alone)
    assert len(all_enums(ours_alone)) == 4


def test_messages_of_resources_are_those_of_headway(compiled: list[FileDescriptorProto]) -> None:
    """A `headway.Reference` and an id in a payload are Consul's on the wire."""
    theirs = dict(all_messages(compiled))
    described = payload_files(describe([types.SERVICE_ENDPOINTS, types.FAILOVER_POLICY]), {})
    mine = dict(all_messages(map(FileDescriptorProto.FromString, described)))
    for name in ("ID", "Reference", "Type", "Tenancy"):
        assert plain(mine[f"headway.resource.v1.{name}"]) == plain(theirs[f"hashicorp.consul.resource.{name}"])


@headway.message(name="test.Spec")
class Spec:
    scope: int = headway.field(1)


@headway.message(name="test.Options")
class Options:
    spec: Spec | None = headway.field(8500)


def test_scopes_are_those_of_the_types(compiled: list[FileDescriptorProto]) -> None:
    """The annotation is in each payload, and in no other message."""
    options = {name: decode(Options, each.options.SerializeToString()) for name, each in all_messages(compiled)}
    annotated = {name.rpartition(".")[2]: each.spec.scope for name, each in options.items() if each.spec}
    assert annotated == {each.payload.__name__: each.scope.value for each in [*TYPES, SAMENESS_GROUP]}
