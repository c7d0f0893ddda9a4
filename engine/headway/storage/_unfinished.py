"""The mark of a store that is the target of an unfinished copy. It must not be served until the copy is complete.

Controllers would take the missing resources of an incomplete copy for deleted ones, and act on that.
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
    """Return True if a copy into this store has begun and not ended."""
    return await source_of(backend) is not None


async def source_of(backend: Backend) -> str | None:
    """Return the id of the source of an unfinished copy into this store, or None if there is no such copy."""
    found, _ = await backend.read(UNFINISHED_KIND, _KEY)
    return None if found is None else found.metadata.get(_SOURCE, "")


async def refuse_unfinished(backend: Backend) -> None:
    """Raise StoreUnusable if a copy into the store was not finished."""
    if (source := await source_of(backend)) is not None:
        raise StoreUnusable(
            f"a copy of store {source} into this one was not finished, so this store is incomplete: "
            "run the same `headway store copy` again"
        )


async def mark_unfinished(backend: Backend, source: str) -> None:
    """Mark an empty store as the target of a copy from ``source``."""
    type = pb.Type(group=UNFINISHED_KIND[0], group_version="v1", kind=UNFINISHED_KIND[1])
    id = pb.Id(uid=uuid.uuid4().hex, name=_KEY[2], type=type, tenancy=pb.Tenancy(partition=_KEY[0], namespace=_KEY[1]))
    await backend.commit([Put(UNFINISHED_KIND, _KEY, pb.Resource(id=id, metadata={_SOURCE: source}), "")])


async def unmark(backend: Backend) -> None:
    """Remove the mark, once the copy is complete."""
    found, _ = await backend.read(UNFINISHED_KIND, _KEY)
    if found is not None and found.id is not None:
        await backend.commit([Remove(UNFINISHED_KIND, _KEY, found.id.uid, found.version)])
