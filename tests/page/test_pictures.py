"""The pictures of the guide, made of the running page. They are written when HEADWAY_PICTURES is set."""

from __future__ import annotations

import linecache
import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import trio

from headway.storage import MemoryBackend
from tests.helpers.browser import PATIENCE, Chromium, open_chromium
from tests.page import shop
from tests.page.gated import GatedSnapshots
from tests.page.kit import Shop, open_shop
from tests.page.opened import store_event

pytestmark = [pytest.mark.browser, pytest.mark.timeout(6 * PATIENCE)]

IMAGES = Path(__file__).parents[2] / "docs/guides/images"
MOST_BYTES = 200_000
INSTALLED = "/srv/shop/shop.py"
PHONE: dict[str, Any] = {"width": 390, "height": 800, "phone": True}
WINDOW: dict[str, Any] = {"width": 1280, "height": 800}


async def traffic(running: Shop) -> None:
    """Change orders, at a rate that rises and falls."""
    turn = 0
    while True:
        for step in range(24):
            for _ in range(1 + abs(12 - step)):
                turn += 1
                name = f"order-{turn * 7 % 80}"
                items = ["tea"] * (1 + turn % 5)
                await running.client.apply(shop.ORDER.new(name, shop.Order(customer=f"ada {turn}", items=items)))
            await trio.sleep(0.5)


async def told_of(running: Shop) -> None:
    """Store events of some orders."""
    texts = (
        ("order-7", "Invoiced", "900 cents", False),
        ("order-9", "Shipped", "from depot north", False),
        ("order-12", "Delayed", "depot north is full until tomorrow, so another one was asked", True),
        ("order-21", "Shipped", "from depot north", False),
    )
    for name, reason, text, warning in texts:
        order = await running.client.apply(shop.ORDER.new(name, shop.Order(customer="ada", items=["tea"])))
        controller = "shop/billing" if reason == "Invoiced" else "shop/shipping"
        await store_event(running.client, order, reason, text, warning=warning, controller=controller)


def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the shop have the path of a program that is installed, because its pictures show a traceback."""
    lines = Path(shop.__file__).read_text().splitlines(keepends=True)
    monkeypatch.setitem(linecache.cache, INSTALLED, (sum(map(len, lines)), None, lines, INSTALLED))
    monkeypatch.setattr(shop.billing, "__code__", shop.billing.__code__.replace(co_filename=INSTALLED))


async def picture(browser: Chromium, name: str, folder: Path) -> None:
    """Write a picture, which must be fit for a repository."""
    path = folder / f"page-{name}.png"
    await browser.screenshot(path)
    assert 5_000 < path.stat().st_size < MOST_BYTES, path


async def test_pictures_of_the_guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The overview in both themes and on a phone, a failing resource, a search, a controller, and events."""
    for_the_guide = bool(os.environ.get("HEADWAY_PICTURES"))
    folder = IMAGES if for_the_guide else tmp_path
    installed(monkeypatch)
    folder.mkdir(exist_ok=True)
    async with open_shop(writes=True) as running, open_chromium() as browser, trio.open_nursery() as nursery:
        await running.client.apply(shop.DEPOT.new("north", shop.Depot(city="Oslo", open=True)))
        await running.client.apply(shop.ORDER.new("lost-7", shop.Order(items=["tea"])))
        nursery.start_soon(traffic, running)
        await told_of(running)
        # A minute of sparklines is worth seeing; a test needs none.
        points = 18 if for_the_guide else 2
        base = f"http://{running.address}"
        await browser.open(base, width=1280, height=1180)
        for count in range(2, points + 1, 8):
            await browser.wait(f"{SPARKS} >= {count}")
        await browser.wait("document.querySelector('.failing') !== null")
        await picture(browser, "overview", folder)
        # The journal has dropped its first failure by now.
        await running.client.apply(shop.ORDER.new("lost-7", shop.Order(items=["tea", "milk"])))
        await browser.open(f"{base}/#/resource/shop.v1.Order/default/default/lost-7", width=1280, height=1000)
        await browser.wait("document.querySelector('.timeline .bad') && document.querySelector('.conditions')")
        await picture(browser, "resource", folder)
        await browser.goto(f"{base}/#/resources/shop.v1.Order")
        await browser.wait("document.querySelectorAll('.found tbody tr').length === 50")
        await picture(browser, "search", folder)
        await browser.open(base, theme="dark", **WINDOW)
        await browser.wait("document.querySelector('.failing') && document.querySelector('.spark .rate')")
        await picture(browser, "dark", folder)
        await browser.open(f"{base}/#/controller/shop%2Fbilling", theme="dark", **WINDOW)
        await browser.wait("document.querySelector('.chart .line') !== null")
        await picture(browser, "controller", folder)
        await browser.open(f"{base}/#/events", **WINDOW)
        await browser.wait("document.querySelectorAll('.events-found tbody tr').length >= 4")
        await picture(browser, "events", folder)
        await browser.open(base, **PHONE)
        await browser.wait("document.querySelector('.failing') && document.querySelector('.spark .rate')")
        await picture(browser, "phone", folder)
        nursery.cancel_scope.cancel()


async def test_picture_of_a_priming(tmp_path: Path) -> None:
    """A type, two thirds of its resources received."""
    folder = IMAGES if os.environ.get("HEADWAY_PICTURES") else tmp_path
    gate = GatedSnapshots(shop.DEPOT)
    async with MemoryBackend() as backend:
        await shop.store_depots(backend, 6000)
        async with open_shop(store=nullcontext(backend), wrap_channel=gate.over) as running, open_chromium() as browser:
            await browser.open(f"http://{running.address}", width=1280, height=560)
            for received in (1000, 2000, 3000, 4000):
                gate.let_pass()
                await browser.wait(f"document.body.innerText.includes('{received:,} of 6,000')")
            await browser.wait("document.body.innerText.includes('left')")
            await picture(browser, "priming", folder)
            gate.release()


SPARKS = """(() => {
  const path = document.querySelector(".spark .rate")?.getAttribute("d") || "";
  return path.split("L").length;
})()"""
"""The number of points of the first sparkline."""
