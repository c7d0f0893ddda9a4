"""The mark of a store that is being copied into: until all of it has come, nobody may serve it.

A part of the world looks like a world in which the rest was deleted, and controllers would act on that.
"""

from __future__ import annotations

import uuid

from headway.errors import StoreUnusable
from headway.resource import Key, Kind, pb
from headway.storage._backend import Backend, Put, Remove

UNFINISHED_KIND: Kind = ("internal", "UnfinishedCopy")
UNFINISHED = "a copy into this store was not finished: run the same copy again"
_KEY: Key = ("", "", "unfinished-copy")
_SOURCE = "from-store"


async def is_unfinished(backend: Backend) -> bool:
    """Whether a copy into this store has begun and not ended."""
    return await source_of(backend) is not None


async def source_of(backend: Backend) -> str | None:
    """The id of the store that an unfinished copy into this one is from; None: there is no such copy."""
    found, _ = await backend.read(UNFINISHED_KIND, _KEY)
    return None if found is None else found.metadata.get(_SOURCE, "")


async def refuse_unfinished(backend: Backend) -> None:
    """Raise StoreUnusable for a store that a copy was not finished into."""
    if (source := await source_of(backend)) is not None:
        raise StoreUnusable(
            f"a copy of store {source} into this one was not finished, so that it holds a part of that one alone: "
            "run the same `headway store copy` again"
        )


async def mark_unfinished(backend: Backend, source: str) -> None:
    """Mark a store that holds nothing."""
    type = pb.Type(group=UNFINISHED_KIND[0], group_version="v1", kind=UNFINISHED_KIND[1])
    id = pb.Id(uid=uuid.uuid4().hex, name=_KEY[2], type=type, tenancy=pb.Tenancy(partition=_KEY[0], namespace=_KEY[1]))
    await backend.commit([Put(UNFINISHED_KIND, _KEY, pb.Resource(id=id, metadata={_SOURCE: source}), "")])


async def unmark(backend: Backend) -> None:
    """Say that all has come."""
    found, _ = await backend.read(UNFINISHED_KIND, _KEY)
    if found is not None and found.id is not None:
        await backend.commit([Remove(UNFINISHED_KIND, _KEY, found.id.uid, found.version)])
