"""Resources and texts without the values of secret fields, for everything that people look at. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, TypeVar

from headway.base import scrub
from headway.errors import PayloadError
from headway.protobuf import (
    REDACTED,
    REDACTED_CHANGED,
    Payload,
    holds_secrets,
    redacted,
    secret_values,
    without_secrets,
)
from headway.resource._ids import TypeName
from headway.resource._resource import Resource
from headway.resource._stored import Stored
from headway.resource._types import ResourceType

T = TypeVar("T", bound=Payload)


def redacted_resource(resource: Resource[T], before: Resource[T] | None = None) -> Resource[T]:
    """Return a resource for showing: without the values of its secret fields. The given one stays as it is.

    A resource of a type without secrets is returned itself, and so is one whose payload does not decode: reading its
    data raises PayloadError.

    Args:
        before: another state of the resource. A secret that differs from it is shown as changed.
    """
    if not holds_secrets(resource.type.payload):
        return resource
    try:
        data = resource.data
        known = None if before is None else secret_values(before.data)
    except PayloadError:
        return resource
    shown: Resource[T] = resource.type.view(resource.message())
    if known is None:
        shown.data = redacted(data)
    else:
        shown.data = redacted(data, lambda path, value: REDACTED_CHANGED if known.get(path) != value else REDACTED)
    return shown


def redacted_text(text: str, resources: Iterable[Stored]) -> str:
    """Return a text without the values that the secret fields of these resources, or projections of them, have."""
    values = [*_values(resources)]
    return without_secrets(text, values) if values else text


def redact_error(error: BaseException, resources: Iterable[Stored]) -> None:
    """Remove the values of the secret fields of these resources from the texts of an exception, in place.

    Projections are resources here, with the secrets that they have kept.
    """
    _scrub(error, [*_values(resources)])


def redact_payloads(error: BaseException, payloads: Iterable[Payload]) -> None:
    """Remove the values of the secret fields of these payloads from the texts of an exception, in place."""
    held = (secret_values(each).values() for each in payloads if holds_secrets(type(each)))
    _scrub(error, [value for values in held for value in values])


class _Without:
    """Cleans texts of the values of secrets. An exception that keeps it can be pickled, and its attributes be shown."""

    __slots__ = ("_values",)

    def __init__(self, values: Collection[Any]) -> None:
        self._values = values

    def __call__(self, text: str) -> str:
        return without_secrets(text, self._values)


def _scrub(error: BaseException, values: Collection[Any]) -> None:
    if values:
        scrub(error, _Without(values))


def _values(resources: Iterable[Any]) -> Iterable[Any]:
    for each in resources:
        yield from each.carried_secrets
        if holds_secrets(each.type.payload):
            try:
                yield from secret_values(each.data).values()
            except PayloadError:
                continue


def secret_types(types: Iterable[Any]) -> dict[TypeName, Any]:
    """Return the types whose resources may have secrets, by name: types, scopes, and projections of either."""
    found: dict[TypeName, Any] = {}
    for each in types:
        type = getattr(each, "of", each)
        if isinstance(type, ResourceType) and any(map(holds_secrets, _payloads(each, type))):
            found[type.name] = each
    return found


def _payloads(cached: Any, type: ResourceType[Any]) -> Iterable[Any]:
    """Return the class of the payload, and the class of a projection."""
    return type.payload, getattr(cached, "payload", None)
