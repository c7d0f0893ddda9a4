"""JSON of resources, and the JSON documents of requests, as bounded in size and in the number of their values."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from headway.documents import Mapping, Problems, parse
from headway.errors import ConversionFailed, ManifestError, PayloadError
from headway.http._refusal import HttpRefusal, invalid
from headway.manifest import Content, as_object, read_changes, read_content, read_payload
from headway.resource import Registry, Resource, ResourceId, ResourceType, pb, type_name

# A string, or one that never ends: without the second half, each quote of such a text would be tried as a beginning.
_STRING = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)', re.DOTALL)
# Each value but the first of a list or map follows one of these.
_BEFORE_VALUES = ",[{"
# The number of problems that an answer lists.
_SHOWN = 10


def json_bytes(value: Any) -> bytes:
    """Return a value as JSON in one line."""
    return json.dumps(value, separators=(",", ":")).encode()


def resource_object(
    type: ResourceType[Any], message: pb.Resource, *, long: Callable[[int], Any] = str
) -> dict[str, Any]:
    """Return a stored resource as a JSON object, in protobuf's JSON form.

    A payload that cannot be decoded is left out, and ``undecodable`` has the reason: one such resource must not hide
    the others of a list.
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
        made["status"] = {key: status.to_dict() for key, status in message.status.items()}
    try:
        made["data"] = as_object(Resource(type, message).data, long=long)
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


def decoded(body: bytes, most_values: int) -> str:
    """Return the text of a body.

    Raises:
        HttpRefusal: it is not UTF-8, or it has more values than ``most_values``. Reading it would block other callers.
    """
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise invalid(f"the body is not UTF-8: byte {error.start} is invalid") from None
    if (count := _count(text)) > most_values:
        raise HttpRefusal(413, "RESOURCE_EXHAUSTED", f"the body has about {count} values: it may have {most_values}")
    return text


def check_values(document: dict[str, Any], most_values: int) -> None:
    """Raise HttpRefusal if a document that the server has made is too large to be read, like the body of a request."""
    if (count := _count(json.dumps(document))) > most_values:
        raise HttpRefusal(
            413,
            "RESOURCE_EXHAUSTED",
            f"the resource has about {count} values: a PATCH is limited to {most_values}; write it over gRPC",
        )


def _count(text: str) -> int:
    bare = _STRING.sub("", text)
    return sum(map(bare.count, _BEFORE_VALUES))


def content_of(text: str, type: ResourceType[Any], id: ResourceId, registry: Registry) -> Content:
    """Return the content of the document of a resource with this id. Raises HttpRefusal with all of its problems."""
    problems = Problems("body")
    content = read_content(_root(text, problems), type, id, registry, problems)
    _refuse(problems)
    assert content is not None
    return content


def merged_content(document: dict[str, Any], type: ResourceType[Any], id: ResourceId, registry: Registry) -> Content:
    """Return the content of a document that the server has merged.

    Raises:
        HttpRefusal: it has problems. They have no lines and columns, because the caller has not written this document.
    """
    problems = Problems("body")
    content = read_content(_root(json.dumps(document), problems), type, id, registry, problems)
    _refuse(problems, places=False)
    assert content is not None
    return content


def message_of(text: str, cls: type[Any]) -> Any:
    """Return the message of a document. Raises HttpRefusal with all of its problems."""
    problems = Problems("body")
    message = read_payload(cls, _root(text, problems), problems)
    _refuse(problems)
    return message


def object_of(text: str) -> dict[str, Any]:
    """Return the JSON object of a document. Raises HttpRefusal with the problems of its syntax."""
    _root(text, Problems("body"))
    return _loaded(text)


def changes_of(text: str, type: ResourceType[Any]) -> dict[str, Any]:
    """Return the changes of a merge patch. Raises HttpRefusal with the problems of its syntax and its names."""
    problems = Problems("body")
    root = _root(text, problems)
    _refuse(problems)
    changes = _loaded(text)
    if "status" in changes:
        raise invalid("status cannot be patched: use PUT .../status/<key>")
    changes = read_changes(root, changes, type, problems)
    _refuse(problems)
    return changes


def _loaded(text: str) -> dict[str, Any]:
    try:
        made: dict[str, Any] = json.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        # Such as a whole number of more digits than Python converts.
        raise invalid(f"the body cannot be read: {error}") from None
    return made


def _root(text: str, problems: Problems) -> Mapping:
    documents = parse(text, "JSON", problems)
    _refuse(problems)
    # The items of a list would be documents of their own.
    is_list = text.removeprefix("\ufeff").lstrip()[:1] == "["
    if is_list or len(documents) != 1 or not isinstance(documents[0], Mapping):
        raise invalid('the body must be one JSON object, such as {"data": {}}')
    return documents[0]


def _refuse(problems: Problems, *, places: bool = True) -> None:
    try:
        problems.raise_if_any()
    except ManifestError as error:
        first = error.problems[:_SHOWN]
        shown = [str(each) if places else f"{each.path}: {each.message}" for each in first]
        if (more := len(error.problems) + error.more - _SHOWN) > 0:
            shown.append(f"and {more} more problems")
        raise invalid("\n".join(shown)) from None
