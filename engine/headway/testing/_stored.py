"""Resources as a store would hand them out, for a test that has none: of a mapper, an index or a predicate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from headway.resource import DELETION_TIMESTAMP, Condition, Payload, Resource, pb

T = TypeVar("T", bound=Payload)


def stored(
    resource: Resource[T],
    *,
    version: int = 1,
    uid: str = "",
    generation: str = "",
    conditions: Mapping[str, Sequence[Condition]] | None = None,
    deleting: bool = False,
) -> Resource[T]:
    """``stored(TEAM.new("core", Team()), version=7)``: the resource as if it had been written and read again.

    Args:
        version: the revision of its last change.
        uid: of its incarnation; one made of its name, unless given.
        generation: as written last; that of ``version``, unless given.
        conditions: by who wrote them, for this generation.
        deleting: whether it is marked for deletion.
    """
    message = resource.message()
    assert message.id is not None
    message.id.uid = uid or f"uid-of-{resource.name}"
    message.version = str(version)
    message.generation = generation or f"{version:026d}"
    if deleting:
        message.metadata[DELETION_TIMESTAMP] = "2000-01-01T00:00:00Z"
    message.status = {
        key: pb.Status(observed_generation=message.generation, conditions=list(each))
        for key, each in (conditions or {}).items()
    }
    return resource.type.view(message)
