"""The .proto files of the mesh describe the messages that are declared in Python, no more and no less."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import wrappers_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pb2 import FileDescriptorSet as FileSet

from headway import ResourceType
from headway.protobuf import decode, payload_files
from headway.resource import describe
from mesh import types
from mesh.messages import BoolValue, UInt32Value, UInt64Value
from tests.catalog.test_schema import KNOWN, Options, all_enums, all_messages, plain

EXAMPLES = Path(__file__).parents[2] / "examples"
SCHEMA = EXAMPLES / "mesh/schema"
FILES = sorted(str(path.relative_to(SCHEMA)) for path in SCHEMA.rglob("*.proto"))
OURS = "hashicorp.consul.mesh."
TYPES: list[ResourceType[Any]] = [each for each in vars(types).values() if isinstance(each, ResourceType)]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> list[FileDescriptorProto]:
    """Return the files of the schema as protoc compiles them. They import those of the catalog."""
    made = tmp_path_factory.mktemp("schema") / "schema.bin"
    paths = [f"--proto_path={each}" for each in (SCHEMA, EXAMPLES / "catalog/schema")]
    protoc = [sys.executable, "-m", "grpc_tools.protoc", *paths, f"--descriptor_set_out={made}"]
    subprocess.run([*protoc, *FILES], check=True, timeout=30)
    return list(FileSet.FromString(made.read_bytes()).file)


def test_messages_have_the_same_names_numbers_and_kinds(compiled: list[FileDescriptorProto]) -> None:
    declared = [FileDescriptorProto.FromString(each) for each in payload_files(describe(TYPES), KNOWN)]
    ours = {name: plain(each) for name, each in all_messages(declared) if name.startswith(OURS)}
    theirs = {name: plain(each) for name, each in all_messages(compiled) if name.startswith(OURS)}
    # Headway describes an enum within a message that has no other use.
    ours = {name: each for name, each in ours.items() if not name.endswith("Enum")}
    assert ours == theirs
    assert len(theirs) == 125
    used = all_enums(declared)
    assert {name: used.get(name) for name in all_enums(compiled)} == all_enums(compiled)
    assert len(all_enums(compiled)) == 17


def test_wrappers_are_those_of_protobuf() -> None:
    """A wrapper's absence differs from 0 on the wire, as in Consul."""
    assert decode(UInt32Value, wrappers_pb2.UInt32Value(value=1).SerializeToString()) == UInt32Value(value=1)
    assert decode(UInt64Value, wrappers_pb2.UInt64Value(value=1).SerializeToString()) == UInt64Value(value=1)
    assert decode(BoolValue, wrappers_pb2.BoolValue(value=True).SerializeToString()) == BoolValue(value=True)


def test_scopes_are_those_of_the_types(compiled: list[FileDescriptorProto]) -> None:
    options = {name: decode(Options, each.options.SerializeToString()) for name, each in all_messages(compiled)}
    annotated = {name.rpartition(".")[2]: each.spec.scope for name, each in options.items() if each.spec}
    assert annotated == {each.payload.__name__: each.scope.value for each in TYPES}
