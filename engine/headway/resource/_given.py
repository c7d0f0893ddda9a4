"""Checks of what a program gives to a resource: its owner, its metadata and its finalizers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headway.errors import InvalidArgument
from headway.resource._ids import ResourceId
from headway.resource._stored import Stored


def owner_id(of: str, owner: object) -> ResourceId:
    """Return the id of an owner. Raises InvalidArgument unless it is a resource or its id."""
    id = owner.id if isinstance(owner, Stored) else owner
    if not isinstance(id, ResourceId):
        example = "owner=team or owner=TEAM.id('core')"
        raise InvalidArgument(f"{of}: owner must be a resource or its id, such as {example}, not {owner!r:.120}")
    return id


def text_map(of: object, given: Any) -> dict[str, str]:
    """Return a copy of metadata. Raises InvalidArgument unless it maps strings to strings."""
    if not hasattr(given, "keys"):
        raise InvalidArgument(
            f"{of}: metadata must map strings to strings, such as metadata={{'rank': 'high'}}, not {given!r:.120}"
        )
    for key, value in given.items():
        if not isinstance(key, str):
            raise InvalidArgument(f"{of}: metadata key {key!r:.120} must be a string, such as {str(key)!r:.120}")
        if not isinstance(value, str):
            example = f"metadata={{{key!r}: {str(value)!r:.120}}}"
            raise InvalidArgument(f"{of}: metadata[{key!r}] is {value!r:.120}: it must be a string, such as {example}")
    return dict(given)


def finalizer_names(of: str, names: Iterable[str]) -> list[str]:
    """Return the names of finalizers. Raises InvalidArgument for a single text, and for a name with blanks."""
    if isinstance(names, str):
        raise InvalidArgument(f"{of}: finalizers {names!r} must be a list or set of names, such as [{names!r}]")
    wanted = list(names)
    for name in wanted:
        # The metadata value separates the names by blanks.
        if name.split() != [name]:
            raise InvalidArgument(f"{of}: finalizer {name!r} must be a name without blanks, such as 'staff.cleanup'")
    return wanted
