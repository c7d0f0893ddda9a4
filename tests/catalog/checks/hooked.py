"""Run the hooks of a type on a resource."""

from __future__ import annotations

from typing import Any, TypeVar

import pytest

import headway
from headway.protobuf import Payload

T = TypeVar("T", bound=Payload)


def stored(resource: headway.Resource[T]) -> headway.Resource[T]:
    """Return the resource as a write would store it, or fail the test if the write would be refused."""
    hooks = resource.type.hooks
    filled = resource.copy()
    if hooks.mutate is not None:
        hooks.mutate(filled)
    filled = filled.copy()
    if hooks.validate is not None:
        hooks.validate(filled)
    return filled


def faults(resource: headway.Resource[Any]) -> list[str]:
    """Return the beginnings of the faults, up to the value: the paths. They are empty if a write would be stored."""
    try:
        stored(resource)
    except ValueError as error:
        return [each.split(" ", 1)[0].rstrip(":") for each in str(error).split("; ")]
    return []


def refused(resource: headway.Resource[Any], *words: str) -> None:
    """Fail the test unless a write would be refused, with each of these words."""
    with pytest.raises(ValueError, match=r"^\S+ ") as caught:
        stored(resource)
    for each in words:
        assert each in str(caught.value)
