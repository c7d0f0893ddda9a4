"""Describe payloads as .proto files, for tools that know protobuf but not Python."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from headway._gen.headway.types import v1 as types_pb
from headway.protobuf._descriptors import Described
from headway.protobuf._file_proto import FileProto, MessageProto
from headway.protobuf._payload import encode


def payload_files(description: types_pb.ListResponse, known: Mapping[str, str]) -> list[bytes]:
    """Return file descriptors of all messages and enums in a description of types.

    An enum ``Rank`` is described as ``RankEnum.Rank``. Protobuf puts the values of an enum into the scope that contains
    the enum, where the values of two enums could have the same name.

    Args:
        description: the description of the types.
        known: the names of existing files, by the full names of the messages and enums that they define. The result
            imports them.
    """
    described = Described(description, known)
    nodes = _nodes(described)
    files = _files(nodes)
    return [encode(each) for each in _protos(described, nodes, files)]


class _Node(NamedTuple):
    """A message or an enum at the top level of a file, with its dependencies: other nodes, and existing files."""

    package: str
    names: tuple[str, ...]
    needs: frozenset[str]
    imports: frozenset[str]


def _nodes(described: Described) -> dict[str, _Node]:
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


def _files(nodes: Mapping[str, _Node]) -> dict[str, str]:
    """Return the file of each node.

    Imports must not be circular, so nodes that depend on each other share a file if they are in the same package.
    """
    reached = {name: _reached(name, nodes) for name in nodes}
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


def _protos(described: Described, nodes: Mapping[str, _Node], files: Mapping[str, str]) -> Iterator[FileProto]:
    reached = {name: _reached(name, nodes) for name in nodes}
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


def _nested(described: Described, name: str, names: tuple[str, ...], opaque: set[str]) -> MessageProto:
    """Return a message with its nested messages. A message that only serves as their scope has no fields."""
    made = described.message(name, opaque)
    inner = dict.fromkeys(
        each[: each.find(".", len(name) + 1)] if "." in each[len(name) + 1 :] else each
        for each in names
        if each.startswith(f"{name}.")
    )
    made.nested += [_nested(described, each, names, opaque) for each in inner]
    return made
