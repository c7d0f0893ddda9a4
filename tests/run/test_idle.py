"""`Engine.wait_idle` beside others who write."""

from __future__ import annotations

import pytest
import trio

import headway
from tests.helpers.pools import Member, Pool


async def test_wait_idle_ends_while_others_write_other_types(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a cluster, somebody writes all the time. The controllers have no work with it."""
    app = headway.App("pools")
    pool, member = app.type("tests", "v1", "Pool", Pool), app.type("tests", "v1", "Member", Member)
    seen: list[str] = []

    @app.controller(manages=pool)
    async def pools(_: headway.Runtime, request: headway.Request[Pool]) -> None:
        await trio.lowlevel.checkpoint()
        seen.append(request.id.name)

    async with headway.open_engine("memory:", app) as engine:
        read = engine._revision

        async def revision() -> int:
            found = await read()
            await engine.client.write(member.new("m", Member()))
            return found

        monkeypatch.setattr(engine, "_revision", revision)
        with trio.fail_after(30):
            await engine.wait_idle()
            await engine.client.write(pool.new("a", Pool()))
            await engine.wait_idle()
        assert seen == ["a"]
