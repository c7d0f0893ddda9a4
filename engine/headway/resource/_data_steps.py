"""The data of a resource, decoded in steps."""

from __future__ import annotations

from contextlib import suppress
from typing import TypeVar

from headway.base import Steps
from headway.errors import PayloadError
from headway.protobuf import Payload, decoding
from headway.resource._resource import Resource
from headway.resource._unreadable import is_unreadable

T = TypeVar("T", bound=Payload)


def data_steps(resource: Resource[T]) -> Steps[T]:
    """Return the data of a resource, decoded in steps. Raises like `Resource.data`."""
    stored = resource._message.data
    if resource._data is None and stored is not None and not is_unreadable(resource._message):
        # Otherwise the attribute raises the error, in its own words.
        with suppress(PayloadError):
            resource._data = yield from decoding(resource.type.payload, stored.value)
    return resource.data
