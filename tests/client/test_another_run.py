"""A client, an engine and a cache refuse to be used in another run of Trio than their own, before anything is done."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest
import trio

import headway
from headway.errors import InvalidArgument, WrongTrioRun
from headway.events import ignore
from headway.quotas import list_quotas
from tests.helpers.resources import Team


class Opened(NamedTuple):
    """What a program has opened in one run."""

    team: headway.ResourceType[Team]
    engine: headway.Engine
    client: headway.Client
    cache: headway.notify.PrimedCache
    events: Any
    updates: headway.notify.Updates
    batches: headway.subscribing.Subscription


async def _watch(it: Opened) -> None:
    async with it.client.watch(it.team) as events:
        await anext(events)


async def _subscribe(it: Opened) -> None:
    async with it.client.subscribe([it.team]) as batches:
        await anext(batches)


async def _hold(it: Opened) -> None:
    async with headway.hold_lease(it.client.leases, "staff/reports", holder="web-1"):
        raise AssertionError("it was taken")


async def _open_cache(it: Opened) -> None:
    async with it.engine.open_cache(watches=[it.team]):
        raise AssertionError("it was opened")


async def _notify(it: Opened) -> None:
    async with it.cache.notify():
        raise AssertionError("it was opened")


CLIENT_CALLS: dict[str, Callable[[Opened], Awaitable[Any]]] = {
    "apply": lambda it: it.client.apply(it.team.new("x")),
    "write_status": lambda it: it.client.write_status(it.team.new("x"), "x", []),
    "delete": lambda it: it.client.delete(it.team.id("core")),
    "list": lambda it: it.client.list(it.team),
    "quotas": lambda it: list_quotas(it.client),
    "watch": _watch,
    "subscribe": _subscribe,
    "hold_lease": _hold,
}
CALLS: dict[str, Callable[[Opened], Awaitable[Any]]] = {
    **CLIENT_CALLS,
    "wait_idle": lambda it: it.engine.wait_idle(),
    "why": lambda it: it.engine.why(it.team.id("core")),
    "open_cache": _open_cache,
    "wait_for": lambda it: it.cache.wait_for(10**6),
    "notify": _notify,
    "read a watch": lambda it: anext(it.events),
    "read updates": lambda it: anext(it.updates),
    "read a subscription": lambda it: anext(it.batches),
}


async def refused(call: Callable[[Opened], Awaitable[Any]], it: Opened) -> str:
    """Make a call in the run of another thread, and return its error."""

    async def main() -> str:
        with trio.fail_after(5), pytest.raises(WrongTrioRun) as caught:
            await call(it)
        return str(caught.value)

    # Abandoned if it hangs, because the call would never end.
    text: str = await trio.to_thread.run_sync(trio.run, main, abandon_on_cancel=True)
    return text


@pytest.mark.parametrize("store", ["memory:", "sqlite:{}/staff.db"])
async def test_calls_in_another_run_are_refused_and_the_engine_goes_on(store: str, tmp_path: Any) -> None:
    app, seen = headway.App("staff"), list[str]()
    team = app.type("staff", "v1", "Team", Team)

    @app.controller(manages=team)
    async def teams(_: headway.Runtime, request: headway.Request[Team]) -> None:
        seen.append(request.id.name)

    async with headway.open_engine(store.format(tmp_path), app, report=ignore) as engine:
        client = engine.client
        # Otherwise the start of the run may enqueue the resource, and the change may follow its reconcile.
        await engine.wait_idle()
        await client.apply(team.new("core"))
        await engine.wait_idle()
        async with (
            engine.open_cache(watches=[team]) as cache,
            cache.notify() as updates,
            client.watch(team) as events,
            client.subscribe([team]) as batches,
        ):
            it = Opened(team, engine, client, cache, events, updates, batches)
            for name, call in CALLS.items():
                text = await refused(call, it)
                assert "another trio.run" in text, name
                assert "trio.from_thread.run(client.apply, resource, trio_token=token)" in text, name
            # Nothing was stored or broken by them.
            await client.apply(team.new("tools"))
            with trio.fail_after(5):
                await engine.wait_idle()
            assert [each.name for each in await client.list(team)] == ["core", "tools"]
    assert sorted(seen) == ["core", "tools"]


async def test_connected_client_is_refused_in_another_run() -> None:
    """Its connections belong to the run that opened it."""
    app = headway.App("staff")
    team = app.type("staff", "v1", "Team", Team)
    async with (
        headway.open_engine(
            "memory:", app, network=headway.Network(["127.0.0.1:0"], insecure=True), report=ignore
        ) as engine,
        headway.connect(engine.addresses, app) as client,
    ):
        it = Opened(team, engine, client, *[None] * 4)  # type: ignore[arg-type]  # not used by these calls
        for call in CLIENT_CALLS.values():
            assert "another trio.run" in await refused(call, it)
        assert await client.list(team) == []


async def test_call_from_a_thread_runs_in_the_run_of_its_client() -> None:
    """This is what the error tells to do."""
    app = headway.App("staff")
    team = app.type("staff", "v1", "Team", Team)
    async with headway.open_engine("memory:", app, report=ignore) as engine:
        token = trio.lowlevel.current_trio_token()

        def in_thread() -> str:
            stored = trio.from_thread.run(engine.client.apply, team.new("core"), trio_token=token)
            return stored.name

        assert await trio.to_thread.run_sync(in_thread) == "core"


async def test_topic_with_subscribers_is_refused_in_another_run() -> None:
    app = headway.App("staff")
    rates = app.topic("rates", Team, snapshot=lambda _: {})

    async def publish() -> None:
        rates.publish({"EUR": Team(members=["ada"])})

    async with (
        headway.open_engine("memory:", app, report=ignore) as engine,
        engine.client.subscribe([headway.Subject(rates, "EUR")]) as batches,
    ):
        await anext(batches)
        with pytest.raises(InvalidArgument, match="trio_token=token"):
            await trio.to_thread.run_sync(trio.run, publish)
        await publish()
        with trio.fail_after(5):
            assert [each.data for each in (await anext(batches)).events] == [Team(members=["ada"])]  # type: ignore[union-attr]
