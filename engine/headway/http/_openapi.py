"""The OpenAPI document, made from the types that the caller may know."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from starlette.responses import Response

from headway.api import MAX_PAGE, MAX_TEXT, row_of
from headway.base import Steps, give_way
from headway.errors import HeadwayError
from headway.http._answer import JSON, long_answer
from headway.http._document import Body, content_of, json_bytes
from headway.http._offered import Exchange, Target, collection_path
from headway.http._query import Query
from headway.http._refusal import HttpRefusal
from headway.http._schemas import Schema, Schemas, example_of
from headway.http._watch import EVENTS, NDJSON
from headway.protobuf import encode
from headway.resource import MAX_NAME, AnyMessage, ResourceId, ResourceType, Scope, TypeName, is_builtin, pb, type_name
from headway.service import RESOURCE_SERVICE, TYPES, TypesRequest

# Any other prefix is the beginning of no name.
_PREFIX = {"type": "string", "pattern": f"^[a-z0-9-]{{0,{MAX_NAME}}}$"}
_NAME = {"type": "string", "pattern": f"^[a-z0-9]([a-z0-9-]{{0,{MAX_NAME - 2}}}[a-z0-9])?$"}
_TEXT: Schema = {"type": "string"}
_FLAG: Schema = {"type": "boolean"}
_ERRORS = {
    400: "The request is invalid.",
    401: "The token is invalid.",
    403: "The caller may not do this, or the Host is another one than this machine.",
    404: "The resource or the type was not found.",
    408: "The body did not arrive in time.",
    409: "The resource has another version or uid, or its state forbids it.",
    410: "A watch cannot resume after the position: begin again without it.",
    413: "The body is too large.",
    415: "The content type of a patch, or a content encoding, is not supported.",
    429: "A limit on calls refuses the call, or the caller has too many watches open, or sends too much at once.",
    500: "The outcome is unknown, or the program has failed.",
    503: "The store cannot be used now, or the server is stopping.",
    504: "The server did not answer in time.",
}
EXAMPLE_NAME = "example"
_ULID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
_STATUS_EXAMPLE = {
    "observedGeneration": _ULID,
    "conditions": [{"type": "Ready", "state": "STATE_TRUE", "message": "as seen at that generation"}],
}


async def get_document(exchange: Exchange) -> Response:
    """Answer with the document."""
    Query(exchange.request.scope["query_string"], ())

    async def requested() -> TypesRequest:
        return TypesRequest()

    reply = await exchange.call(TYPES, requested)
    known = [exchange.offered.registry.find(type_name(each.type)) for each in reply.message.types]
    types = [type for type in known if type is not None and type.name.group != "internal"]
    examples: dict[TypeName, dict[str, Any] | None] = {}
    for type in types:
        examples[type.name] = await _example(exchange, type)
        await give_way()
    return await long_answer(document(types, examples))


async def _example(exchange: Exchange, type: ResourceType[Any]) -> dict[str, Any] | None:
    """Return the body of a write that the type's hooks accept, or None if that is not known."""
    if is_builtin(type):
        return None
    id = ResourceId(type.name, EXAMPLE_NAME, *type.default_units)
    body: dict[str, Any] = {"metadata": {"note": "example"}, "data": example_of(type.payload)}
    target = Target(type, id)

    async def requested() -> pb.MutateAndValidateRequest:
        content = await content_of(Body(json_bytes(body).decode()), type, id, exchange.offered.registry)
        data = AnyMessage(type_url=type.type_url, value=encode(content.data))
        return pb.MutateAndValidateRequest(resource=pb.Resource(id=target.message(), data=data))

    try:
        await exchange.call(f"/{RESOURCE_SERVICE}/MutateAndValidate", requested)
    except HttpRefusal:
        return None
    except HeadwayError as error:
        if row_of(error) is None:
            raise
        return None
    return body


def document(
    types: Iterable[ResourceType[Any]], examples: dict[TypeName, dict[str, Any] | None]
) -> Steps[dict[str, Any]]:
    """Return the document of these types, in steps. ``examples`` has the body of a write for each type, or None."""
    schemas = Schemas()
    status = schemas.reference(pb.Status, "Status")
    _add_shared(schemas, status)
    paths: dict[str, Any] = {}
    for type in types:
        yield
        payload = schemas.reference(type.payload, type.type_url.rpartition("/")[2])
        collection = collection_path(type.name)
        resource, body = _resource(payload, status), _body(payload)
        # The payload often has the same name as the type.
        schemas.by_name[f"{type.name}.Resource"] = resource
        whole = {"$ref": f"#/components/schemas/{type.name}.Resource"}
        example = examples.get(type.name)
        patch = None if example is None else {"metadata": {"note": "changed"}}
        units = [_parameter(unit, _NAME) for unit in _units(type)]
        writes = [*units, _parameter("version", _TEXT), _parameter("uid", _TEXT)]
        name, key = (_parameter(each, schema, "path") for each, schema in (("name", _NAME), ("key", _KEY)))
        tag, any_units = str(type.name), [_parameter(unit, _TEXT) for unit in _units(type)]
        paths[collection] = {"get": _operation(tag, "list", [*any_units, *_LISTED], _lists(whole))}
        paths[f"{collection}/{{name}}"] = {
            "get": _operation(tag, "read", [name, *units, _parameter("consistent", _FLAG)], _answers(whole)),
            "put": _operation(tag, "write", [name, *writes], _answers(whole), _request(body, example)),
            "patch": _operation(
                tag, "merge", [name, *writes], _answers(whole), _request({"type": "object"}, patch, _MERGE)
            ),
            "delete": _operation(tag, "delete", [name, *writes], {"204": {"description": "It is deleted."}}),
        }
        paths[f"{collection}/{{name}}/status/{{key}}"] = {
            "put": _operation(
                tag, "write-status", [name, key, *writes], _answers(whole),
                _request(status, _STATUS_EXAMPLE if example is not None else None),
            )
        }  # fmt: skip
    return {
        "openapi": "3.1.0",
        "info": {"title": "Headway", "version": "1", "description": "Resources of this server."},
        "paths": paths,
        "components": {"schemas": schemas.by_name, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{}, {"token": []}],
    }


_MERGE = "application/merge-patch+json"
_KEY: Schema = {"type": "string", "pattern": f"^[A-Za-z0-9._-]{{1,{MAX_TEXT}}}$"}


def _parameter(name: str, schema: Schema, where: str = "query") -> dict[str, Any]:
    made = {"name": name, "in": where, "schema": schema, "required": where == "path"}
    return {**made, "example": EXAMPLE_NAME} if where == "path" else made


_LISTED = [
    _parameter("name_prefix", _PREFIX),
    _parameter("filter", _TEXT),
    _parameter("page_size", {"type": "integer", "minimum": 0, "maximum": MAX_PAGE}),
    _parameter("page_token", _TEXT),
    _parameter("consistent", _FLAG),
    _parameter("watch", _FLAG),
    _parameter("resume_after", _TEXT),
]


def _units(type: ResourceType[Any]) -> list[str]:
    return {Scope.CLUSTER: [], Scope.PARTITION: ["partition"]}.get(type.scope, ["partition", "namespace"])


def _object(required: Iterable[str] = (), **properties: Schema) -> Schema:
    return {
        "type": "object", "properties": properties, "required": list(required), "additionalProperties": False
    }  # fmt: skip


def _add_shared(schemas: Schemas, status: Schema) -> None:
    type = _object(("group", "groupVersion", "kind"), group=_TEXT, groupVersion=_TEXT, kind=_TEXT)
    tenancy = _object(partition=_TEXT, namespace=_TEXT)
    schemas.by_name["Id"] = _object(("type", "name"), type=type, tenancy=tenancy, name=_TEXT, uid=_TEXT)
    schemas.by_name["Error"] = _object(("code", "message"), code=_TEXT, message=_TEXT, reason=_TEXT)
    schemas.by_name["Metadata"] = {"type": "object", "additionalProperties": _TEXT}
    schemas.by_name["Statuses"] = {"type": "object", "additionalProperties": status}


_ID: Schema = {"$ref": "#/components/schemas/Id"}
_METADATA: Schema = {"$ref": "#/components/schemas/Metadata"}


def _resource(payload: Schema, status: Schema) -> Schema:
    return _object(
        ("id", "version", "generation"),
        id=_ID,
        version=_TEXT,
        generation=_TEXT,
        owner=_ID,
        metadata=_METADATA,
        status={"type": "object", "additionalProperties": status},
        data=payload,
        undecodable=_TEXT,
    )


def _body(payload: Schema) -> Schema:
    return _object(version=_TEXT, owner=_ID, metadata=_METADATA, data=payload)


def _lists(whole: Schema) -> dict[str, Any]:
    listed = _object(("resources",), resources={"type": "array", "items": whole}, position=_TEXT, nextPageToken=_TEXT)
    answers = _answers(listed)
    answers["200"]["content"] |= {NDJSON: {"schema": _TEXT}, EVENTS: {"schema": _TEXT}}
    return answers


def _answers(schema: Schema) -> dict[str, Any]:
    return {"200": {"description": "Done.", "content": {JSON: {"schema": schema}}}}


def _request(schema: Schema, example: Any, kind: str = JSON) -> dict[str, Any]:
    content = {"schema": schema} | ({} if example is None else {"example": example})
    return {"required": True, "content": {kind: content}}


def _operation(
    tag: str, verb: str, parameters: list[dict[str, Any]], answers: dict[str, Any], body: dict[str, Any] | None = None
) -> dict[str, Any]:
    error = {"content": {JSON: {"schema": {"$ref": "#/components/schemas/Error"}}}}
    errors = {str(code): {"description": text, **error} for code, text in _ERRORS.items()}
    made = {"operationId": f"{verb}-{tag}", "tags": [tag], "parameters": parameters, "responses": answers | errors}
    return made if body is None else {**made, "requestBody": body}
