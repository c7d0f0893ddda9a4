"""The lists of the page in a real Chromium: leases, and what fails; by keyboard, on a phone and in both themes."""

from __future__ import annotations

import json

import pytest

from headway.storage import MemoryBackend
from tests.helpers.browser import PATIENCE, Chromium
from tests.helpers.why_programs import broken_app
from tests.page.opened import CONTRAST, lost_order, opened
from tests.page.test_leases import hold

pytestmark = [pytest.mark.browser, pytest.mark.timeout(6 * PATIENCE)]

ROWS = "[...document.querySelectorAll('.found tbody tr')].map((each) => each.innerText.replace(/\\s+/g, ' '))"
LONG = "staff/" + "a-long-name-" * 15


async def themes(browser: Chromium) -> None:
    """Look at the page in both themes: each text can be read on its ground."""
    for theme in ("light", "dark"):
        await browser.evaluate(f"document.documentElement.setAttribute('data-theme', '{theme}')")
        assert await browser.evaluate(CONTRAST) == [], theme


async def narrow(browser: Chromium) -> None:
    """Look at the page on a small phone: it scrolls down only, and fingers have room."""
    assert await browser.evaluate("document.documentElement.scrollWidth") <= 360
    small = "[...document.querySelectorAll('button, header a')].filter((each) => each.offsetHeight < 26).length"
    assert await browser.evaluate(small) == 0


async def test_leases_are_listed_with_their_holders() -> None:
    """A new one appears by itself. The name of a controller leads to it, and / begins a search by keyboard."""
    backend = MemoryBackend()
    await hold(backend, "staff/teams", "other#3")
    async with opened(app=broken_app()[0], store=backend) as (running, browser):
        await browser.wait("document.querySelector('.controllers') !== null")
        await browser.evaluate("void document.querySelector('header nav a:last-child').focus()")
        await browser.press("Enter")
        await browser.wait("location.hash === '#/leases' && document.querySelector('.leases tbody tr')")
        assert await browser.evaluate("document.title") == "Leases – Headway"
        assert await browser.evaluate("document.querySelector('header [aria-current]').innerText") == "Leases"
        row = f"{ROWS}.find((each) => each.startsWith('staff/teams'))"
        shown = await browser.wait(row)
        assert "holder of staff/teams" in shown
        assert " ago in " in shown
        assert shown.endswith(" 10 min 1")
        await hold(backend, LONG)
        await browser.wait(f"{ROWS}.some((each) => each.startsWith({json.dumps(LONG)}))")
        await themes(browser)
        await browser.press("/")
        await browser.wait("document.activeElement.id === 'search' && location.hash === '#/leases'")
        await browser.type("other")
        await browser.wait(f"{ROWS}.length === 1 && {ROWS}[0].startsWith('other#3')")
        # A shard of no controller that the page knows leads nowhere.
        assert await browser.evaluate("document.querySelector('.leases th a') === null")
        await browser.press("Control+a")
        await browser.type("nobody")
        await browser.shows("No lease is held whose name begins so.")
        await browser.press("Control+a")
        await browser.type("staff/teams")
        await browser.wait("document.querySelector('.leases th a') !== null")
        await browser.click(".leases th a")
        await browser.wait("location.hash === '#/controller/staff%2Fteams'")
        await browser.open(f"http://{running.address}/#/leases", phone=True, width=360, height=740)
        await browser.wait(f"{ROWS}.length >= 3")
        await narrow(browser)


async def test_list_of_resources_says_what_fails() -> None:
    """In a column, and those alone by a box that the keyboard reaches. A repaired one leaves the list by itself."""
    async with opened("/#/resources/shop.v1.Order") as (running, browser):
        await lost_order(running, "fine", customer="ada")
        await lost_order(running)
        fails = "document.querySelector('.found .fails .error')"
        await browser.wait(f"{fails}?.innerText.includes('order lost-7 has no customer')")
        told = await browser.evaluate("document.querySelector('.fails small').innerText")
        assert told.startswith("shop/billing, failed ")
        assert await browser.evaluate(f"{ROWS}.length") == 2
        await themes(browser)
        await browser.evaluate("void document.querySelector('[name=failing]').focus()")
        await browser.press("Space")
        await browser.wait(f"{ROWS}.length === 1 && {ROWS}[0].startsWith('lost-7')")
        await lost_order(running, customer="ada")
        await browser.wait(f"{ROWS}.length === 0")
        assert await browser.evaluate("document.querySelector('[name=failing]').checked")
        await browser.press("Space")
        await browser.wait(f"{ROWS}.length === 2 && !{fails}")
        await lost_order(running, "l" * 63)
        await browser.open(f"http://{running.address}/#/resources/shop.v1.Order", phone=True, width=360, height=740)
        await browser.wait(f"{fails} !== null")
        await narrow(browser)
