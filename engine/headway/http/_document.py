"""JSON of resources, and the JSON documents of requests, as bounded in size and in the number of their values."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from headway.base import Steps, in_slices
from headway.documents import Mapping, Node, Problems, TooManyValues, Unreadable, count_values, node_of, read_only_json
from headway.errors import ConversionFailed, ManifestError, PayloadError
from headway.http._refusal import HttpRefusal, invalid
from headway.manifest import Content, object_steps, read_changes, read_content, read_payload
from headway.protobuf import redacted
from headway.resource import Registry, Resource, ResourceId, ResourceType, data_steps, pb, type_name

# The number of problems that an answer lists.
_SHOWN = 10
_NO_OBJECT = 'the body must be one JSON object, such as {"data": {}}'


def json_bytes(value: Any) -> bytes:
    """Return a value as JSON in one line."""
    return _text(value).encode()


_text = json.JSONEncoder(separators=(",", ":")).encode
# The number of values that are written in a step.
_AT_ONCE = 16


def json_steps(value: Any) -> Steps[bytes]:
    """Return a value whose keys are texts as JSON in one line, like `json_bytes`, in steps."""
    parts: list[str] = []
    yield from _write(value, parts)
    return "".join(parts).encode()


def _write(value: Any, parts: list[str]) -> Steps[None]:
    if _is_small(value):
        parts.append(_text(value))
        return
    is_map = isinstance(value, dict)
    before, some = "{" if is_map else "[", list[Any]()

    def put(text: str) -> None:
        nonlocal before
        parts.append(before + text)
        before = ","

    for each in value.items() if is_map else value:
        held = each[1] if is_map else each
        small = _is_small(held)
        if small:
            some.append(each)
        if some and (not small or len(some) == _AT_ONCE):
            yield
            put(_text(dict(some) if is_map else some)[1:-1])
            some = []
        if not small:
            yield
            put(f"{_text(each[0])}:" if is_map else "")
            yield from _write(held, parts)
    if some:
        put(_text(dict(some) if is_map else some)[1:-1])
    parts.append("}" if is_map else "]")


def _is_small(value: Any) -> bool:
    if not isinstance(value, dict | list):
        return True
    if len(value) > _AT_ONCE:
        return False
    return not any(isinstance(each, dict | list) for each in (value.values() if isinstance(value, dict) else value))


def resource_steps(
    type: ResourceType[Any], message: pb.Resource, *, long: Callable[[int], Any] = str, redacts: bool = False
) -> Steps[dict[str, Any]]:
    """Return a stored resource as a JSON object, in protobuf's JSON form.

    A payload that cannot be decoded is left out, and ``undecodable`` has the reason: one such resource must not hide
    the others of a list.

    Args:
        long: returns what stands for a number of 64 bits: by default its text.
        redacts: True to leave out the values of secrets.
    """
    assert message.id is not None
    made: dict[str, Any] = {
        "id": _id(message.id),
        "version": message.version,
        "generation": message.generation,
    }
    if message.owner is not None:
        made["owner"] = _id(message.owner)
    if message.metadata:
        made["metadata"] = dict(message.metadata)
    if message.status:
        made["status"] = {}
        for key, status in message.status.items():
            # One with a hundred conditions takes some milliseconds.
            yield True
            made["status"][key] = status.to_dict()
    try:
        data = yield from data_steps(Resource(type, message))
        made |= type.document(message.metadata, data, redacts=redacts)
        if "data" not in made:
            made["data"] = yield from object_steps(redacted(data) if redacts else data, long=long)
    except (PayloadError, ConversionFailed) as error:
        made["undecodable"] = str(error)
    return made


def _id(id: pb.Id) -> dict[str, Any]:
    name = type_name(id.type)
    tenancy = id.tenancy or pb.Tenancy()
    units = {"partition": tenancy.partition, "namespace": tenancy.namespace}
    made: dict[str, Any] = {
        "type": {"group": name.group, "groupVersion": name.version, "kind": name.kind},
        "tenancy": {unit: value for unit, value in units.items() if value},
        "name": id.name,
    }
    return made | ({"uid": id.uid} if id.uid else {})


class Body(NamedTuple):
    """The text of a body, and the number of values that it may have. Reading more would block other callers."""

    text: str
    most_values: float = math.inf


def decoded(body: bytes) -> str:
    """Return the text of a body. Raises HttpRefusal if it is not UTF-8."""
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise invalid(f"the body is not UTF-8: byte {error.start} is invalid") from None


def check_values(document: Mapping, most_values: float) -> None:
    """Raise HttpRefusal if a document that the server has made is too large to be read, like the body of a request."""
    if (count := count_values(document)) > most_values:
        raise HttpRefusal(
            413,
            "RESOURCE_EXHAUSTED",
            f"the resource has about {count} values: a PATCH is limited to {most_values}; write it over gRPC",
        )


async def content_of(body: Body, type: ResourceType[Any], id: ResourceId, registry: Registry) -> Content:
    """Return the content of the document of a resource with this id. Raises HttpRefusal with all of its problems."""
    return await content_of_node(await _root(body, Problems("body")), type, id, registry)


async def content_of_node(root: Mapping, type: ResourceType[Any], id: ResourceId, registry: Registry) -> Content:
    """Return the content of a document that has been parsed, or merged. Raises HttpRefusal with all of its problems."""
    problems = Problems("body")
    content = await in_slices(read_content(root, type, id, registry, problems))
    _refuse(problems)
    assert content is not None
    return content


async def node_of_object(value: dict[str, Any]) -> Mapping | None:
    """Return the node of a document of the server, or None if it is nested too deep."""
    try:
        node = await in_slices(node_of(value, Problems("")))
    except Unreadable:
        return None
    assert isinstance(node, Mapping)
    return node


async def message_of(body: Body, cls: type[Any]) -> Any:
    """Return the message of a document. Raises HttpRefusal with all of its problems."""
    problems = Problems("body")
    root = await _root(body, problems)
    message = await in_slices(read_payload(cls, root, problems))
    _refuse(problems)
    return message


async def object_of(body: Body) -> dict[str, Any]:
    """Return the JSON object of a small body. Raises HttpRefusal with the problems of its syntax."""
    await _root(body, Problems("body"))
    try:
        made: dict[str, Any] = json.loads(body.text.removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        # Such as a whole number of more digits than Python converts.
        raise invalid(f"the body cannot be read: {error}") from None
    return made


async def changes_of(body: Body, type: ResourceType[Any]) -> Mapping:
    """Return the changes of a merge patch. Raises HttpRefusal with the problems of its syntax and its names."""
    problems = Problems("body")
    root = await _root(body, problems)
    if any(key.text == "status" for key, _ in root.entries):
        raise invalid("status cannot be patched: use PUT .../status/<key>")
    changes = await in_slices(read_changes(root, type, problems))
    _refuse(problems)
    return changes


async def _root(body: Body, problems: Problems) -> Mapping:
    """Return the JSON object of a body. Raises HttpRefusal with the problems of its syntax."""
    if body.text.removeprefix("\ufeff").lstrip()[:1] in ("", "["):
        raise invalid(_NO_OBJECT)
    try:
        found: Node | None = await in_slices(read_only_json(body.text, problems, body.most_values))
    except TooManyValues:
        most = body.most_values
        raise HttpRefusal(
            413, "RESOURCE_EXHAUSTED", f"the body has more than {most} values: it may have {most}"
        ) from None
    except Unreadable:
        found = None
    _refuse(problems)
    if not isinstance(found, Mapping):
        raise invalid(_NO_OBJECT)
    return found


def _refuse(problems: Problems) -> None:
    try:
        problems.raise_if_any()
    except ManifestError as error:
        # What is stored has no place in a body.
        shown = [str(each) if each.line else f"{each.path}: {each.message}" for each in error.problems[:_SHOWN]]
        if (more := len(error.problems) + error.more - _SHOWN) > 0:
            shown.append(f"and {more} more problems")
        raise invalid("\n".join(shown)) from None
