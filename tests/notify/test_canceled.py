"""A cache that is canceled at any step leaves no task, no stream, no reader and no call of a program's function."""

from __future__ import annotations

from trio.testing import MockClock

import headway
from tests.helpers.cached import Staff
from tests.helpers.cancel_everywhere import cancel_at_every_step
from tests.helpers.fetched import Source


async def test_cache_is_canceled_at_every_step(autojump_clock: MockClock) -> None:
    staff, source = Staff(), Source()
    opened: list[headway.notify.PrimedCache] = []

    async def program() -> None:
        async with staff.cache() as cache, cache.notify() as updates:
            opened.append(cache)
            teams = updates.list(staff.team)
            updates.index(staff.by_login, "al")
            updates.query(source.query)
            rates = updates.poll(source.poll, max_age=5)
            await updates.primed()
            await cache.wait_for(await staff.write_team("core", f"m{len(opened)}"))
            while await anext(updates) is not teams:
                pass
            rates.close()
            async with cache.view(staff.team, staff.account) as view:
                view.list(staff.team)

    def check() -> None:
        informers = staff.engine._informers[0]
        assert not informers._held
        assert not informers._followers
        assert not staff.channel.streams(staff.team).open
        for cache in opened:
            assert not any((cache._answers._answers, cache._waits, cache._notified, cache._views))

    async with staff.open():
        steps = await cancel_at_every_step(program, check)
        assert steps > 50
        assert len(opened) > 10
