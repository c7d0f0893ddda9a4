"""A subscription through forwarders: the upstream serves it, by the rights of the caller's token."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest
import trio

import headway
from headway import rpc
from headway.access import Access, Authorizer, Policy, Rule, new_token
from headway.errors import PermissionDenied
from tests.helpers.plain_types import Team

app = headway.App("staff")
TEAM = app.type("staff", "v1", "Team", Team)


@pytest.mark.parametrize("hops", [1, 2])
async def test_q4_subscription_is_forwarded_with_the_rights_of_its_caller(hops: int) -> None:
    """The caller sees what its token may read at the upstream, and learns when its token is revoked."""
    text, token = new_token(["readers"])
    rule = Rule(verbs=("watch", "read"), type="staff.v1.Team", partition="*", namespace="*", name_prefix="a")
    rules = [rule, Rule(verbs=("watch",), type="staff.v1.Team", partition="*", namespace="*")]
    access = Authorizer(Access([Policy("readers", rules)], [token]))
    async with AsyncExitStack() as stack:
        engine = await stack.enter_async_context(
            headway.open_engine("memory:", app, network=headway.Network(["127.0.0.1:0"], access=access))
        )
        where = engine.addresses[0]
        for _ in range(hops):
            forwarder = await stack.enter_async_context(rpc.open_forwarder(where, ["127.0.0.1:0"]))
            where = forwarder.addresses[0]
        for name in ("a1", "b1"):
            await engine.client.create(TEAM.new(name))
        client = await stack.enter_async_context(headway.connect(where, app, token=text))
        with trio.fail_after(60):
            async with client.subscribe([TEAM]) as batches:
                first = await anext(batches)
                assert (first.snapshot, names(first)) == (True, ["a1"])
                for name in ("b2", "a2"):
                    await engine.client.create(TEAM.new(name))
                assert names(await anext(batches)) == ["a2"]
                access.replace(Access([Policy("readers", rules)], []))
                with pytest.raises(PermissionDenied, match="token is not valid"):
                    await anext(batches)


def names(batch: headway.subscribing.SubscriptionBatch) -> list[str]:
    return [event.resource.name for event in batch.events if not isinstance(event, headway.subscribing.Published)]
