"""Find the registered type that a manifest means."""

from __future__ import annotations

from typing import Any

from headway.errors import InvalidArgument
from headway.resource import Registry, ResourceType, TypeName, did_you_mean


class ResolveError(Exception):
    """No one type is meant; the text is the sentence for the user."""


def resolve(written: str | tuple[str, str, str], registry: Registry) -> ResourceType[Any]:
    """The type of a full name, of its three parts, or of a kind that only one type bears. Raises ResolveError."""
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
        raise ResolveError(f"several types bear the kind {written!r}; write one of {names}")
    known = [str(type.name) for type in registry]
    # A kind is compared with kinds: against full names it would never be close.
    closest = did_you_mean(str(written), known if len(parts) > 1 else [type.name.kind for type in registry])
    raise ResolveError(f"no type {written!r} is registered; write one as group.version.Kind{closest}")
