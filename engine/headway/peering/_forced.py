"""The removal of what is left of a peering whose finalizers a caller has removed."""

from __future__ import annotations

from headway.client import Client
from headway.peering._host import PeeringHost
from headway.peering._importing import forget_imports
from headway.peering._partition import OWNER_KEY
from headway.resource import PARTITION, PEERING, copies_partition


async def remove_rest(host: PeeringHost, client: Client, name: str) -> None:
    """Remove the partition, the copies and the secrets of an earlier peering of this name, if there are any.

    No caller could: the partition is reserved. It would stay, and the name of the peering could not be used again.
    """
    partition = await client.get(PARTITION, copies_partition(name))
    uid = "" if partition is None else partition.metadata.get(OWNER_KEY, "")
    if partition is None or not uid:
        return
    peering = await client.get(PEERING, name)
    if peering is not None and peering.id.uid == uid:
        return
    if not partition.is_deleting:
        await client.delete(partition)
    # From the mark on, no stream stores a position.
    await forget_imports(host, uid)
    record = await host.secrets.read(uid)
    if record is not None and (record.token_secret or record.stream_secret):
        await host.secrets.forget(uid)
    elif record is not None:
        await host.secrets.terminate(uid)
