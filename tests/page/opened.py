"""A page of the shop in Chromium, for the tests of what it shows."""

from __future__ import annotations

import datetime
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import headway
from headway.client import Client
from headway.resource import EVENT, Entry, Event, event_id
from tests.helpers.browser import Chromium, open_chromium
from tests.page import shop
from tests.page.kit import Shop, open_shop

CONTRAST = """(() => {
  const channel = (value) => (value /= 255) <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const color = parse(getComputedStyle(at).backgroundColor);
      if (color.length < 4 || color[3] === 1) return color;
    }
    return [255, 255, 255];
  };
  const poor = [];
  for (const element of document.querySelectorAll("body *:not(svg *)")) {
    if (![...element.childNodes].some((each) => each.nodeType === 3 && each.data.trim())) continue;
    const [one, two] = [light(parse(getComputedStyle(element).color)), light(ground(element))];
    const ratio = (Math.max(one, two) + 0.05) / (Math.min(one, two) + 0.05);
    if (ratio < 4.5) poor.push(`${element.className} ${element.textContent.slice(0, 30)} ${ratio.toFixed(2)}`);
  }
  return poor;
})()"""
"""The elements whose text has less contrast than 4.5 to 1."""

TEXT = "document.querySelector('main').innerText"
"""The text of the page, as a script returns it."""


@asynccontextmanager
async def opened(
    path: str = "/", *, token: str = "", refused: str = "", **options: Any
) -> AsyncIterator[tuple[Shop, Chromium]]:
    """Run the shop, and open a page of it. At the end, the console has no errors and the policy was kept.

    Chromium writes an error for each response that refuses. A test that expects some gives the words of them as
    `refused`; they are looked at here, since the last of them may come after all that the test waits for.
    """
    look = {name: options.pop(name) for name in ("theme", "width", "height", "phone") if name in options}
    async with open_shop(**options) as running, open_chromium() as browser:
        await browser.open(f"http://{running.address}{path}", **look)
        if token:
            await sign_in(browser, running.tokens[token])
        yield running, browser
        assert [each for each in await browser.logs() if not (refused and refused in each)] == []


async def sign_in(browser: Chromium, token: str) -> None:
    """Fill in the form."""
    await browser.wait("document.getElementById('token') !== null")
    await browser.click("#token")
    await browser.type(token)
    await browser.press("Enter")


async def lost_order(running: Shop, name: str = "lost-7", customer: str = "") -> None:
    """Store an order that cannot be billed."""
    await running.client.apply(shop.ORDER.new(name, shop.Order(customer=customer, items=["tea"])))


async def store_event(client: Client, of: headway.Resource[Any], reason: str, text: str, **fields: Any) -> None:
    """Store an event of a resource, as a controller would record it."""
    id, now = event_id(of.id), datetime.datetime.now(datetime.UTC)
    entry = Entry(
        **{"controller": "shop/billing", "count": 1, "first": now, "last": now, **fields}, reason=reason, text=text
    )
    event = Event(entries=[entry])
    await client.write(EVENT.new(id.name, event, partition=id.partition, namespace=id.namespace, owner=of.id))
