"""Delete many resources; one that can't be deleted doesn't keep the others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headway.client import Client
from headway.errors import Fenced, HeadwayError, Unavailable
from headway.resource import Resource


async def sweep(client: Client, resources: Iterable[Resource[Any]]) -> None:
    """Delete each, by its uid: what has changed in it since doesn't matter. Those with finalizers are marked.

    Raises Unavailable in the end, naming the first, when some could not be deleted; Fenced at once.
    """
    failed: list[tuple[Resource[Any], HeadwayError]] = []
    for resource in resources:
        if resource.is_deleting and resource.finalizers:
            continue
        try:
            await client.delete(resource)
        except Fenced:
            raise
        except HeadwayError as error:
            failed.append((resource, error))
    if failed:
        resource, first = failed[0]
        raise Unavailable(f"{len(failed)} could not be deleted, the first {resource.id}: {first}") from first
