"""What fails, in a real Chromium: changes that no mapper could map, and other processes."""

from __future__ import annotations

import pytest

import headway
from tests.cli.broken import mapper_that_raises
from tests.helpers.browser import PATIENCE
from tests.helpers.why_programs import Account, Team, broken_app
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
        assert "tile bad: Controllers\n1\n1 failing" in tiles
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
    """Without a button to retry, which reaches the server's own controllers only."""
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
            assert await browser.evaluate(f"{entry}.querySelector('button') === null")
            await browser.wait("document.querySelector('tr.bad')?.innerText.includes('web-1')")
