"""The page in a real Chromium: what it shows, how soon, by keyboard, on a phone, and after failures."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext

import pytest

import headway
from headway.page import PageHost
from headway.storage import MemoryBackend
from headway.why import sentences
from tests.helpers.browser import PATIENCE, Chromium, open_chromium
from tests.helpers.why_programs import Team, broken_app
from tests.page import shop
from tests.page.gated import GatedSnapshots
from tests.page.kit import EVERYTHING, open_shop, revoke_all, rule
from tests.page.opened import TEXT, lost_order, opened, sign_in
from tests.why.test_workers import types_only

pytestmark = [pytest.mark.browser, pytest.mark.timeout(6 * PATIENCE)]


async def test_failed_reconcile_appears_with_its_why(record_property: Callable[[str, object], None]) -> None:
    """It appears by itself, in every part of the overview, and one click away is the error with its line."""
    async with opened() as (running, browser):
        await browser.wait("document.querySelectorAll('.controllers tbody tr').length >= 3")
        await browser.wait("document.querySelector('.connection')?.innerText.includes('live')")
        # The page's own clock says when it has shown the failure.
        await browser.evaluate(
            "void new MutationObserver(() => { if (document.querySelector('.failing')) window.shownAt ??= Date.now() })"
            ".observe(document.querySelector('main'), {childList: true, subtree: true})"
        )
        await lost_order(running)
        shown = await browser.wait("window.shownAt")
        failed = (await running.engine.why(shop.ORDER.id("lost-7"))).controllers[0].reconciles[-1].at
        record_property("seconds_until_shown", shown / 1000 - failed)
        print(f"a failed reconcile was shown {shown / 1000 - failed:.2f} s after its end")
        error = "ValueError: order lost-7 has no customer to send an invoice to"
        await browser.wait(f"document.querySelector('.failing').innerText.includes({json.dumps(error)})")
        await browser.wait(
            "document.querySelector('.graph .controller.bad').getAttribute('aria-label')"
            ".startsWith('Controller shop/billing: running')"
        )
        tiles = "[...document.querySelectorAll('.tile')].map((each) => each.innerText.split('\\n').join(' '))"
        await browser.wait(f"{tiles}.some((each) => each.startsWith('Controllers') && each.includes('1 failing'))")
        await browser.wait(f"{tiles}.some((each) => each.startsWith('Failing 1'))")
        await browser.click(".failing li a")
        await browser.wait("document.querySelector('.sentences') !== null")
        told = await browser.evaluate("document.querySelector('.sentences').innerText")
        answer = await running.engine.why(shop.ORDER.id("lost-7"))
        assert f"The last error: {error}" in told
        assert "for attempt 2" in told or "for attempt 3" in told
        assert "shop.py" in told
        # The page says the same as `why`, except for the times that pass.
        assert any("Condition Billed is FALSE" in line and line.strip() in told for line in sentences(answer))
        await browser.wait("document.querySelector('.timeline .run.bad') !== null")
        # A repaired resource leaves the list by itself.
        await lost_order(running, customer="ada")
        await browser.wait("document.querySelector('.badge.good') !== null && document.querySelector('.run:not(.bad)')")
        await browser.wait("document.querySelector('.payload').innerText.includes('ada')")
        await browser.evaluate("void (location.hash = '#/')")
        await browser.wait("document.querySelector('.controllers') !== null && !document.querySelector('.failing')")
        # What does not fail is not red.
        await browser.wait("document.querySelectorAll('.tile.bad, .graph .bad, tr.bad').length === 0")


async def test_progress_of_priming_moves_on_the_page() -> None:
    """The bar follows the pieces that arrive, and goes when all types are primed."""
    gate = GatedSnapshots(shop.DEPOT)
    async with MemoryBackend() as backend:
        await shop.store_depots(backend, 3500)
        async with opened(store=nullcontext(backend), wrap_channel=gate.over) as (_, browser):
            bar = "[...document.querySelectorAll('.bars li')].find((each) => each.innerText.startsWith('Depot'))"
            await browser.wait(f"{bar}?.innerText.includes('0 of 3,500')")
            assert await browser.evaluate(f"{bar}.querySelector('progress').value") == 0
            for received in (1000, 2000, 3000):
                gate.let_pass()
                await browser.wait(f"{bar}?.querySelector('progress').value === {received}")
            await browser.wait(f"/3,000 of 3,500 received, about .* left/.test({bar}.innerText)")
            await browser.wait("document.querySelector('.controllers').innerText.includes('priming 1 of 2 types')")
            gate.release()
            await browser.wait("document.querySelector('.controllers') && !document.querySelector('.priming')")


async def focused(browser: Chromium) -> str:
    """Return the text of the focused element, or its label."""
    text: str = await browser.evaluate(
        "(document.activeElement.getAttribute('aria-label') || document.activeElement.innerText || "
        "document.activeElement.id || document.activeElement.name || '').trim()"
    )
    return text


async def tab_to(browser: Chromium, wanted: str) -> None:
    """Press Tab until an element with this text is focused, which must show that it is."""
    for _ in range(60):
        await browser.press("Tab")
        if (await focused(browser)).startswith(wanted):
            style = "getComputedStyle(document.activeElement)"
            stroke = "getComputedStyle(document.activeElement.querySelector('rect') || document.body).strokeWidth"
            assert await browser.evaluate(f"{style}.outlineStyle !== 'none' || {stroke} === '2.5px'"), wanted
            return
    raise AssertionError(f"{wanted} was not reached")


async def test_everything_is_done_by_keyboard_alone() -> None:
    """From the start of the page to a resource, its repair in a dialog, and a pause, without a mouse."""
    async with opened(writes=True) as (running, browser):
        await lost_order(running)
        await running.client.apply(shop.ORDER.new("fine", shop.Order(customer="ada")))
        await browser.wait("document.querySelector('.failing') !== null")
        await browser.press("Tab")
        assert await focused(browser) == "Skip to the content"
        await browser.press("Enter")
        assert await browser.evaluate("document.activeElement.id") == "main"
        # A search, by its shortcut.
        await browser.press("/")
        await browser.wait("document.activeElement.id === 'search'")
        await browser.press("Shift+Tab")
        assert await browser.evaluate("document.activeElement.id") == "type"
        await browser.type("Order")
        await browser.wait("location.hash === '#/resources/shop.v1.Order' && document.querySelector('.found')")
        await browser.press("/")
        await browser.wait("document.activeElement.id === 'search'")
        await browser.type("los")
        await browser.wait("document.querySelectorAll('.found tbody tr').length === 1")
        await tab_to(browser, "lost-7")
        await browser.press("Enter")
        await browser.wait("document.querySelector('.sentences') !== null")
        # A repair: the dialog has the focus, and Escape leaves it.
        await tab_to(browser, "Edit")
        await browser.press("Enter")
        await browser.wait("document.querySelector('dialog[open] textarea') === document.activeElement")
        await browser.press("Escape")
        await browser.wait("!document.querySelector('dialog[open]')")
        assert await focused(browser) == "Edit"
        await browser.press("Enter")
        await browser.wait("document.querySelector('dialog[open] textarea') === document.activeElement")
        await browser.press("Control+a")
        await browser.type('{"metadata": {}, "data": {"customer": "ada", "items": ["tea"]}}')
        await tab_to(browser, "Apply")
        await browser.press("Enter")
        await browser.wait("!document.querySelector('dialog[open]')")
        assert (await running.client.read(shop.ORDER, "lost-7")).data.customer == "ada"
        await browser.wait("document.querySelector('.badge.good') !== null")
        # The graph and a pause.
        await tab_to(browser, "Overview")
        await browser.press("Enter")
        await browser.wait("document.querySelector('.graph') !== null")
        await tab_to(browser, "Controller shop/billing")
        await browser.press("Enter")
        await browser.wait("location.hash === '#/controller/shop%2Fbilling' && document.querySelector('.charts')")
        await tab_to(browser, "Pause")
        await browser.press("Enter")
        await browser.wait("document.querySelector('dialog[open] input') === document.activeElement")
        await browser.type("an audit")
        await browser.press("Enter")
        await browser.wait("document.querySelector('.state-line').innerText.includes('paused: an audit')")
        assert running.engine.controllers["billing"].status().paused == "an audit"
        await tab_to(browser, "Resume")
        await browser.press("Enter")
        await browser.wait("document.querySelector('.state-line').innerText.includes('running')")


async def test_token_signs_in_and_out() -> None:
    """No script can read the cookie, fewer rights show less, and the end of a session asks for a token again."""
    rules = {"all": [EVERYTHING], "orders": [rule("view", "observe")]}
    refused = "Failed to load resource"
    async with opened(rules=rules, writes=True, token="orders", refused=refused) as (running, browser):
        await browser.wait("document.querySelectorAll('.controllers tbody tr').length === 1")
        assert await browser.evaluate("document.cookie") == ""
        [cookie] = await browser.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        await browser.click("header button:last-child")
        await browser.wait("document.getElementById('token') !== null")
        assert "shop" not in await browser.evaluate(TEXT)
        await sign_in(browser, "hw_0000000000000000_" + "0" * 64)
        await browser.wait("document.querySelector('.sign-in .problem') !== null")
        await browser.evaluate("void (document.getElementById('token').value = '')")
        await sign_in(browser, running.tokens["all"])
        await browser.wait("document.querySelectorAll('.controllers tbody tr').length >= 3")
        await browser.evaluate("void (location.hash = '#/resource/shop.v1.Order/default/default/a')")
        await browser.wait("document.querySelector('.sentences') !== null")
        assert running.access is not None
        revoke_all(running.access)
        await browser.wait("document.getElementById('token') !== null")
        assert "Order" not in await browser.evaluate(TEXT)


async def test_page_comes_back_after_its_server() -> None:
    """A page that has lost its server says so, and goes on by itself when the server is back."""
    async with open_chromium() as browser:
        async with open_shop() as running:
            address = running.address
            await browser.open(f"http://{address}/")
            await browser.wait("document.querySelector('.connection')?.innerText.includes('live')")
        await browser.wait("document.querySelector('.connection')?.innerText.includes('not connected')")
        async with headway.open_engine(
            "memory:", shop.app, network=headway.Network(http=address, insecure=True), report=headway.events.ignore
        ) as engine:
            await engine.client.apply(shop.ORDER.new("new", shop.Order(items=["tea"])))
            await browser.wait("document.querySelector('.failing')?.innerText.includes('new')")
            await browser.shows("live")


async def test_old_numbers_are_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the server fails to look, the page says so, and the engine goes on."""

    async def broken(_: PageHost) -> None:
        raise RuntimeError("no look")

    async with opened() as (running, browser):
        await browser.wait("document.querySelector('.controllers') !== null && !document.querySelector('.stale')")
        with monkeypatch.context() as patched:
            patched.setattr(PageHost, "look", broken)
            await browser.wait("document.querySelector('.stale')?.innerText.includes('Some of these numbers are old')")
            await lost_order(running)
        await browser.wait("document.querySelector('.failing') !== null && !document.querySelector('.stale')")


async def test_worker_is_in_the_graph_and_the_list_until_it_has_gone() -> None:
    """With its process and its numbers, and marked once it has gone."""
    app, team = broken_app()
    async with opened(app=types_only(), listen=["127.0.0.1:0"]) as (running, browser):
        await running.client.apply(team.new("core", Team()))
        async with headway.open_workers(running.engine.addresses, app, process="web-1"):
            await browser.wait("document.querySelector('.controllers tr.bad td.process')?.innerText === 'web-1'")
            row = await browser.evaluate("document.querySelector('.controllers tr.bad').innerText")
            assert "staff/teams" in row
            await browser.wait(
                "document.querySelector('.graph .controller.bad')?.getAttribute('aria-label')"
                ".startsWith('Controller staff/teams: running')"
            )
            await browser.click(".controllers tr.bad a")
            await browser.wait("document.querySelector('h1').innerText.includes('staff/teams')")
            await browser.wait("document.querySelector('.facts').innerText.includes('web-1')")
            # Its history begins with the second answer.
            await browser.wait("document.querySelector('.chart.rate .line') !== null")
        await browser.wait("document.querySelector('.state-line').innerText.includes('gone')")
        await browser.evaluate("void (location.hash = '#/')")
        await browser.wait(
            "document.querySelector('.graph .controller.bad').getAttribute('aria-label')"
            ".startsWith('Controller staff/teams: gone')"
        )
