"""The deletion of many resources. A failure for one does not stop the others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headway.client import Client
from headway.errors import Fenced, HeadwayError, Unavailable
from headway.resource import Resource


async def sweep(client: Client, resources: Iterable[Resource[Any]]) -> None:
    """Delete each resource by its uid, whether or not it has changed. Those with finalizers are marked for deletion.

    If some could not be deleted, raise Unavailable at the end, naming the first. Raise Fenced at once.
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
        raise Unavailable(f"{len(failed)} resources could not be deleted, the first {resource.id}: {first}") from first
