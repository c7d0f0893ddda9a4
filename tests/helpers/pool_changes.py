"""Changes that users of a `PoolsApp` make, by name."""

from __future__ import annotations

import headway
from headway.resource import Registry
from headway.rpc import InProcessChannel
from headway.service import ResourceService
from headway.storage import Backend
from tests.helpers.pools import Member, Pool, PoolsApp, Summary


def users_of(store: Backend, pools: PoolsApp) -> headway.Client:
    """Return a client of the store that needs no engine."""
    registry = Registry()
    for type in pools.app.registry:
        if type.name not in registry:
            registry.register(type)
    return headway.Client(InProcessChannel(ResourceService(store, registry)), registry)


async def write_first(client: headway.Client, pools: PoolsApp) -> None:
    """Write a pool with a member, and a member of a pool that does not exist, before any engine runs."""
    await client.write(pools.pool.new("a", Pool(note="first")))
    metadata = {"counts": "yes"} if pools.scoped else {}
    await client.write(pools.member.new("m1", Member(pool="a"), metadata=metadata))
    await client.write(pools.member.new("m2", Member(pool="b"), metadata=metadata))


async def make_change(
    client: headway.Client, pools: PoolsApp, number: int, operation: str, name: str, member: str
) -> None:
    """Make a change. ``number`` distinguishes it from earlier ones with the same operation."""
    if operation == "pool":
        await client.apply(pools.pool.new(name, Pool(note=f"{number}")))
    elif operation == "member":
        # In a scoped app, every third write moves a member out of the scope or leaves it there.
        metadata = {"counts": "no" if number % 3 == 0 else "yes"} if pools.scoped else {}
        await client.apply(pools.member.new(member, Member(pool=name), metadata=metadata))
    elif operation == "no pool":
        await client.delete(pools.pool.id(name))
    elif operation == "no member":
        await client.delete(pools.member.id(member))
    elif operation == "no summary":
        await client.delete(pools.summary.id(name))
    elif (there := await client.get(pools.summary, name)) is not None:
        there.data = Summary(members=[f"spoilt {number}"])
        try:
            await client.write(there)
        except headway.Conflict:
            return
