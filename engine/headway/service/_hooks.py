"""The hooks of a type: what they make of a resource that is to be written, and what they refuse.

They are only called for a payload that decodes.
"""

from __future__ import annotations

from typing import Any

from headway.resource import Resource, ResourceType, pb, resource_id
from headway.rpc import HandlerFault
from headway.service._refusals import invalid

Type = ResourceType[Any]


def mutated(type: Type, resource: pb.Resource) -> pb.Resource:
    """Return what the mutate hook makes of the resource; the resource itself where there is no such hook."""
    mutate = type.hooks.mutate
    if mutate is None:
        return resource
    view: Resource[Any] = type.view(resource)
    try:
        mutate(view)
        return view.message()
    except Exception as error:
        raise _failed("mutate", type, error) from error


def validate(type: Type, resource: pb.Resource) -> None:
    """Refuse what the validate hook refuses by a ValueError."""
    hook = type.hooks.validate
    if hook is None:
        return
    try:
        # A view of its own: what is stored is what mutate has left, whatever validate does to it.
        hook(type.view(resource))
    except ValueError as error:
        raise invalid(f"{resource_id(resource.id)}: {error}") from error
    except Exception as error:
        raise _failed("validate", type, error) from error


def _failed(hook: str, type: Type, error: Exception) -> HandlerFault:
    # Its text may say what only the program and its operator should know.
    return HandlerFault(f"the {hook} hook of {type.name} failed", error)
