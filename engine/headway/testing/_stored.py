"""Resources for tests, as if they had been written to a store and read again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from headway.base import Count, checked
from headway.protobuf import Payload
from headway.resource import DELETION_TIMESTAMP, Condition, Resource, pb

T = TypeVar("T", bound=Payload)


@checked()
def stored(
    resource: Resource[T],
    *,
    version: Count = 1,
    uid: str = "",
    generation: str = "",
    conditions: Mapping[str, Sequence[Condition]] | None = None,
    deleting: bool = False,
) -> Resource[T]:
    """Return a resource as if it had been written and read again: ``stored(TEAM.new("core", Team()), version=7)``.

    Args:
        version: the revision of its last change.
        uid: the uid of its incarnation; by default made from its name.
        generation: its current generation; by default made from ``version``.
        conditions: its conditions by writer, for this generation.
        deleting: if true, it is marked for deletion.
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
