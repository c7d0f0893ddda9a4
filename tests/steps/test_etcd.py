"""Steps on etcd: an engine that ends within an effect leaves it uncertain for the next one."""

from __future__ import annotations

import trio

import headway
from headway.testing import one_shot
from tests.helpers.etcd_server import EtcdServer
from tests.helpers.resources import Team


async def test_next_engine_enters_a_step_with_the_key_of_the_one_before(etcd: EtcdServer) -> None:
    """A third one finds it done."""
    url = f"etcd://{etcd.endpoint}{etcd.new_prefix()}"
    app = headway.App("shop")
    team: headway.ResourceType[Team] = app.type("staff", "v1", "Team", Team)
    calls: list[tuple[str, bool]] = []

    @app.controller(manages=team)
    async def orders(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        found = rt.resource(request)
        assert found is not None
        async with rt.step(found, "charge") as step:
            if not step.done:
                calls.append((step.key, step.uncertain))
                if len(calls) == 1:
                    await trio.sleep_forever()
                step.result = "charged"

    for number in range(3):
        async with one_shot(app, "orders", store=url) as shot:
            if not number:
                await shot.client.apply(team.new("core"))
            await shot.requests()
            with trio.move_on_after(0.5):
                await shot.reconcile(team.id("core"))
            stored = await shot.client.read(team, "core")
            reason = "Done" if number else "Begun"
            assert [each.reason for each in stored.status["orders.steps"].conditions] == [reason]
    assert calls == [(calls[0][0], False), (calls[0][0], True)]
