"""What fails, in a real Chromium: changes that no mapper could map, and other processes."""

from __future__ import annotations

from functools import partial

import pytest

import headway
from headway.why import ControllerWhy
from tests.cli.broken import mapper_that_raises, write_that_conflicts
from tests.helpers.browser import PATIENCE
from tests.helpers.why_programs import Account, Team, broken_app, part, told
from tests.page.opened import CONTRAST, opened
from tests.page.test_failing import KEY_ERROR
from tests.why.test_workers import types_only

pytestmark = [pytest.mark.browser, pytest.mark.timeout(6 * PATIENCE)]

TILES = "[...document.querySelectorAll('.tile')].map((each) => each.className + ': ' + each.innerText).join()"


async def test_unmapped_change_turns_the_overview_red_and_leads_to_its_error() -> None:
    """Its tile, the node of the graph and the row of the controller, whose page names it with a link."""
    app = mapper_that_raises()
    types = {each.name.kind: each for each in app.registry}
    async with opened(app=app) as (running, browser):
        await running.client.apply(types["Team"].new("core", Team()))
        await browser.wait("document.querySelector('.graph .controller.good') !== null")
        await browser.wait("document.querySelectorAll('.tile.bad, tr.bad, .failing').length === 0")
        await running.client.apply(types["Account"].new("grace", Account()))
        node = "document.querySelector('.graph .controller.bad')?.getAttribute('aria-label')"
        await browser.wait(f"{node}?.includes('1 change not mapped')")
        await browser.wait("document.querySelector('tr.bad')?.innerText.includes('1 change not mapped')")
        tiles = await browser.evaluate(TILES)
        assert "tile wrong: Controllers\n1\n1 failing" in tiles
        assert "tile bad: Failing\n1\n1 of them not mapped" in tiles
        entry = "document.querySelector('.failing li')"
        assert KEY_ERROR in await browser.evaluate(f"{entry}.innerText")
        assert await browser.evaluate(f"{entry}.querySelector('a').innerText") == "Account grace"
        assert await browser.evaluate(CONTRAST) == []
        await browser.click(".failing .meta a")
        await browser.wait("location.hash === '#/controller/staff%2Fteams'")
        await browser.wait("document.querySelector('.state-line.bad') !== null")
        await browser.shows("1 change not mapped, because a mapper or predicate raised")
        await browser.wait(f"{entry}?.innerText.includes('Account grace')")
        await browser.click(".failing li a")
        await browser.wait("document.querySelector('h1')?.innerText === 'Account grace'")


async def test_failures_of_workers_are_listed_with_their_process() -> None:
    """Its button to retry reaches the process that has the key."""
    app, team = broken_app()
    async with opened(app=types_only(), listen=["127.0.0.1:0"], writes=True) as (running, browser):
        await running.client.apply(team.new("core", Team()))
        workers = headway.open_workers(
            running.engine.addresses, app, process="web-1", insecure=True, report=headway.events.ignore
        )
        async with workers:
            entry = "document.querySelector('.failing li')"
            await browser.wait(f"{entry}?.innerText.includes('core has no lead')")
            assert "staff/teams (web-1), failed" in await browser.evaluate(f"{entry}.innerText")
            await browser.wait("document.querySelector('tr.bad')?.innerText.includes('web-1')")
            before = part(await running.engine.why(team.id("core"))).attempt
            await browser.click(".failing li button")
            await told(running.engine, team.id("core"), "waiting", also=partial(is_later, before))


def is_later(attempt: int, it: ControllerWhy) -> bool:
    return it.attempt > attempt


async def test_failures_alike_are_one_entry_of_the_timeline_beside_the_last_success() -> None:
    """Opened, it stays so while more of them come."""
    app = write_that_conflicts()
    team = next(each for each in app.registry if each.name.kind == "Team")
    async with opened("/#/resource/staff.v1.Team/default/default/core", app=app) as (running, browser):
        await running.client.apply(team.new("core", Team()))
        await running.engine.wait_idle()
        await running.client.apply(team.new("core", Team(lead="ada")))
        await browser.wait("document.querySelector('.timeline .run.bad summary') !== null")
        await browser.click(".timeline .run.bad summary")
        await browser.wait("document.querySelector('.timeline details[open]') !== null")
        supervisor = running.engine.controllers["teams"]
        for _ in range(3):
            before = part(await running.engine.why(team.id("core"))).attempt
            supervisor.retry(("default", "default", "core"))
            await told(running.engine, team.id("core"), "waiting", also=partial(is_later, before))
        await browser.wait("document.querySelector('.timeline .run.bad small').innerText.startsWith('attempts 1 to ')")
        runs = "[...document.querySelectorAll('.timeline .run')].map((each) => each.className)"
        assert await browser.evaluate(runs) == ["run bad", "run"]
        assert await browser.evaluate("document.querySelector('.timeline details[open]') !== null")
        told_ = await browser.evaluate("document.querySelector('.timeline .run.bad').innerText")
        assert "Read: Team core at version" in told_
