"""Checks of what a program gives to a resource: its owner, its metadata and its finalizers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headway._gen.headway.resource import v1 as pb
from headway.base import repr_text
from headway.errors import InvalidArgument
from headway.resource._ids import ResourceId, quoted, unicode_problem
from headway.resource._stored import Stored, shared_id


def owner_message(of: object, owner: object) -> pb.Id:
    """Return the id of an owner as a wire message, which must not be changed. Raises the errors of `owner_id`."""
    return shared_id(owner) if isinstance(owner, Stored) else owner_id(of, owner).message()


def owner_id(of: object, owner: object) -> ResourceId:
    """Return the id of an owner. Raises InvalidArgument unless it is a resource or its id."""
    id = owner.id if isinstance(owner, Stored) else owner
    if not isinstance(id, ResourceId):
        example = "owner=team or owner=TEAM.id('core')"
        raise InvalidArgument(f"{of}: owner must be a resource or its id, such as {example}, not {repr_text(owner)}")
    return id


def text_map(of: object, given: Any) -> dict[str, str]:
    """Return a copy of metadata. Raises InvalidArgument unless it maps strings to strings."""
    if not hasattr(given, "keys"):
        raise InvalidArgument(
            f"{of}: metadata must map strings to strings, such as metadata={{'rank': 'high'}}, not {repr_text(given)}"
        )
    for key, value in given.items():
        if not isinstance(key, str):
            raise InvalidArgument(
                f"{of}: metadata key {repr_text(key)} must be a string, such as {repr_text(str(key))}"
            )
        if not isinstance(value, str):
            example = f"metadata={{{key!r}: {repr_text(str(value))}}}"
            raise InvalidArgument(
                f"{of}: metadata[{key!r}] is {repr_text(value)}: it must be a string, such as {example}"
            )
        if key.isascii() and value.isascii():
            continue
        if problem := unicode_problem("metadata key", key) or unicode_problem(f"metadata[{quoted(key)}]", value):
            raise InvalidArgument(f"{of}: {problem}")
    return dict(given)


def finalizer_names(of: str, names: Iterable[str]) -> list[str]:
    """Return the names of finalizers. Raises InvalidArgument for a single text, and for what is not a name."""
    given: object = names
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InvalidArgument(
            f"{of}: finalizers {repr_text(given)} must be a list or set of names, such as [{repr_text(str(given))}]"
        )
    wanted = list(names)
    for name in wanted:
        each: object = name
        # The metadata value separates the names by blanks.
        if not isinstance(each, str) or each.split() != [each]:
            raise InvalidArgument(
                f"{of}: finalizer {repr_text(each)} must be a name without blanks, such as 'staff.cleanup'"
            )
        if problem := unicode_problem("finalizer", each):
            raise InvalidArgument(f"{of}: {problem}")
    return wanted
