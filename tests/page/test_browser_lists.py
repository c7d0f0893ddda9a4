"""The pages of controllers, events and quotas, and the columns and the sorting of lists, in a real Chromium."""

from __future__ import annotations

import json

import pytest

import headway
from headway.page import _others
from headway.why import _absent
from tests.helpers.browser import PATIENCE
from tests.helpers.why_programs import Team, broken_app
from tests.page import shop
from tests.page.opened import CONTRAST, lost_order, opened, store_event
from tests.page.test_lists import Site, sites_app
from tests.why.test_workers import types_only

pytestmark = [pytest.mark.browser, pytest.mark.timeout(6 * PATIENCE)]

NAMES = "[...document.querySelectorAll('tbody th')].map((each) => each.innerText)"
HEAD = "[...document.querySelectorAll('th .sort')].find((each) => each.innerText.startsWith({}))"


def press(head: str) -> str:
    """Return a script that presses the head of a column."""
    return f"void {HEAD.format(json.dumps(head))}.click()"


async def test_columns_of_a_type_are_shown_and_sorted_as_numbers() -> None:
    """Beyond what JavaScript can hold, too. A second press turns the order around, and a third one ends it."""
    app, site = sites_app()
    async with opened("/#/resources/web.v1.Site", app=app) as (running, browser):
        for name, hits in (("a", 10), ("b", 9), ("c", 2**53 + 1)):
            await running.client.apply(site.new(name, Site(host=f"{name}.north", hits=hits, key="canary-19f3")))
        await browser.wait(f"{NAMES}.length === 3")
        heads = await browser.evaluate("[...document.querySelectorAll('thead th')].map((each) => each.innerText)")
        assert heads == [
            *("Name", "Partition", "Namespace", "HOST", "HITS", "KEY", "Conditions", "Failing", "Age", "Version")
        ]
        row = await browser.evaluate("document.querySelector('tbody tr:nth-child(3)').innerText")
        assert row.split("\t")[3:6] == ["c.north", str(2**53 + 1), "(redacted)"]
        await browser.evaluate(press("HITS"))
        await browser.wait(f"{NAMES}.join() === 'b,a,c'")
        assert await browser.evaluate("document.querySelector('[aria-sort]').getAttribute('aria-sort')") == "ascending"
        await browser.evaluate(press("HITS"))
        await browser.wait(f"{NAMES}.join() === 'c,a,b'")
        await browser.evaluate(press("HITS"))
        await browser.wait(f"{NAMES}.join() === 'a,b,c' && !document.querySelector('[aria-sort]')")
        await browser.open(f"http://{running.address}/#/resources/web.v1.Site", phone=True, width=360, height=740)
        await browser.wait("document.querySelector('.sort-list')?.offsetHeight > 0")
        assert await browser.evaluate(CONTRAST) == []


async def test_long_number_is_shown_and_edited_without_rounding() -> None:
    """As a number, of which an edit of another field changes nothing."""
    cents = 2**53 + 1
    async with opened("/#/resource/shop.v1.Invoice/default/default/a", writes=True) as (running, browser):
        await running.client.apply(shop.INVOICE.new("a", shop.Invoice(order="a", cents=cents)))
        await browser.wait(f"document.querySelector('.payload')?.innerText.includes('\"cents\": {cents}')")
        await browser.evaluate("void document.querySelector('.actions button').click()")
        area = "document.querySelector('dialog[open] textarea')"
        assert f'"cents": {cents}' in await browser.wait(f"{area}?.value")
        await browser.evaluate(f"void ({area}.value = {area}.value.replace('{cents}', '{cents + 2}'))")
        await browser.evaluate("void document.querySelector('dialog[open] button[type=submit]').click()")
        await browser.wait(f"document.querySelector('.payload').innerText.includes('{cents + 2}')")
        assert (await running.client.read(shop.INVOICE, "a")).data.cents == cents + 2


async def test_controllers_are_searched_and_sorted() -> None:
    async with opened("/#/controllers") as (running, browser):
        await lost_order(running)
        await browser.wait("document.querySelector('tr.bad') !== null")
        assert await browser.evaluate(f"{NAMES}.slice(0, 3).join()") == "shop/billing,shop/shipping,shop/depots"
        await browser.evaluate(press("Controller"))
        await browser.wait(f"{NAMES}.slice(0, 3).join() === 'shop/billing,shop/depots,shop/shipping'")
        await browser.evaluate(press("Not done"))
        await browser.wait(f"{NAMES}[0] === 'shop/billing'")
        await browser.press("/")
        await browser.wait("document.activeElement.id === 'search'")
        await browser.type("ship")
        await browser.wait(f"{NAMES}.join() === 'shop/shipping'")
        await browser.shows("1 of 3, in one process")
        await browser.click("tbody th a")
        await browser.wait("document.querySelector('.charts') !== null")
        assert await browser.evaluate("document.querySelector('header [aria-current]').innerText") == "Controllers"


async def test_events_are_listed_with_links_to_their_resources() -> None:
    async with opened("/#/events") as (running, browser):
        await browser.shows("No controller has recorded an event.")
        await lost_order(running)
        lost = await running.client.read(shop.ORDER, "lost-7")
        await store_event(running.client, lost, "NoCustomer", "nobody to send an invoice to", warning=True)
        await browser.wait("document.querySelector('.events-found .badge.warn')?.innerText === 'NoCustomer'")
        assert await browser.evaluate(CONTRAST) == []
        await browser.press("/")
        await browser.wait("document.activeElement.id === 'search'")
        await browser.type("nothing")
        await browser.shows("No event fits this.")
        await browser.press("Control+a")
        await browser.type("LOST")
        await browser.wait(f"{NAMES}.length === 1")
        await browser.click(".events-found th a")
        await browser.wait("document.querySelector('h1')?.innerText === 'Order lost-7'")
        await browser.wait("document.querySelector('.badges .meta')?.innerText.endsWith(' ago')")


async def test_controller_that_runs_nowhere_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Among what needs attention, and above the list of controllers."""
    app, team = broken_app()
    monkeypatch.setattr(_absent, "GRACE", 0.1)
    monkeypatch.setattr(_absent, "LOOK", 0.1)
    monkeypatch.setattr(_others, "STUCK_AFTER", 0.0)
    async with opened(app=types_only(), listen=["127.0.0.1:0"]) as (running, browser):
        await running.client.apply(team.new("core", Team(lead="ada")))
        async with headway.open_workers(running.engine.addresses, app, process="web-1", insecure=True):
            await browser.wait("document.querySelector('.controllers td.process')?.innerText === 'web-1'")
        await browser.wait("document.querySelector('.failing .badge.bad')?.innerText === 'runs nowhere'")
        assert (await browser.evaluate("document.querySelector('.failing .what').innerText")).startswith(
            "Controller staff/teams"
        )
        await browser.evaluate("void (location.hash = '#/controllers')")
        await browser.shows("staff/teams is wanted, and no process has run it since ")
        assert await browser.evaluate(CONTRAST) == []
