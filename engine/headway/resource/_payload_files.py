"""Describe payloads as .proto files do, for tools that know protobuf and no Python."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from headway._gen.headway.types import v1 as types_pb
from headway.resource._file_proto import FileProto, MessageProto
from headway.resource._payload import encode
from headway.resource._payload_proto import Described


def payload_files(description: types_pb.ListResponse, known: Mapping[str, str]) -> list[bytes]:
    """Return file descriptors of all messages and enums in a description of types.

    An enum ``Rank`` is described as ``RankEnum.Rank``: protobuf puts the values of an enum into
    the scope of the enum, where two enums may have a value of the same name.

    Args:
        known: the names of files that exist already, by the full names of what is in them. The result imports them.
    """
    described = Described(description, known)
    nodes = _nodes(described)
    files = _files(nodes)
    return [encode(each) for each in _protos(described, nodes, files)]


class _Node(NamedTuple):
    """A message or an enum at the top level of a file, and what it needs: other nodes, and files that are known."""

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
    """The file of each node. Files can't import each other in a circle: nodes that do so share one, if they can."""
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
        # A file has one package, and two packages can't import each other. So neither describes messages of the other:
        # a field of bytes is the same on the wire.
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
    """A message with those that are within it; one that is only the place of others is empty."""
    made = described.message(name, opaque)
    inner = dict.fromkeys(
        each[: each.find(".", len(name) + 1)] if "." in each[len(name) + 1 :] else each
        for each in names
        if each.startswith(f"{name}.")
    )
    made.nested += [_nested(described, each, names, opaque) for each in inner]
    return made
