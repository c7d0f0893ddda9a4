"""Find the registered type that a manifest refers to."""

from __future__ import annotations

from typing import Any

from headway.errors import InvalidArgument
from headway.resource import Registry, ResourceType, TypeName, did_you_mean


class ResolveError(Exception):
    """The type is unknown or ambiguous. The text is the message for the user."""


def resolve(written: str | tuple[str, str, str], registry: Registry) -> ResourceType[Any]:
    """Return the type with a full name, with three parts of a name, or with a unique kind. Raises ResolveError."""
    parts = tuple(written.split(".")) if isinstance(written, str) else written
    if len(parts) == 3:
        try:
            return registry.resolve(TypeName(*parts))
        except InvalidArgument as error:
            raise ResolveError(str(error)) from error
    bearers = sorted((type for type in registry if type.name.kind == written), key=lambda bearer: bearer.name)
    if len(bearers) == 1:
        return bearers[0]
    if bearers:
        names = ", ".join(str(type.name) for type in bearers)
        raise ResolveError(f"several types have the kind {written!r}; write one of {names}")
    known = [str(type.name) for type in registry]
    # Compare a kind only with kinds, since it is never similar to a full name.
    closest = did_you_mean(str(written), known if len(parts) > 1 else [type.name.kind for type in registry])
    raise ResolveError(f"type {written!r} is not registered; write it as group.version.Kind{closest}")
