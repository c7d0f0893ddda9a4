"""The page of a resource and the search in a real Chromium: in place, with hostile content, and in steps."""

from __future__ import annotations

import json
from contextlib import nullcontext

import pytest
import trio
import trio.lowlevel

import headway
from headway.client import LeaseClient
from headway.pauses import pause_controller
from headway.resource import pb
from headway.rpc import InProcessChannel, Services
from headway.service import LeaseService, ResourceService
from headway.storage import MemoryBackend
from tests.cli.broken import mapper_that_raises
from tests.helpers.browser import PATIENCE, open_chromium
from tests.helpers.why_programs import Account, Team
from tests.page import shop
from tests.page.opened import CONTRAST, TEXT, lost_order, opened

pytestmark = [pytest.mark.browser, pytest.mark.timeout(6 * PATIENCE)]

HOSTILE = "<img src=x onerror='window.hacked=1'><script>window.hacked=1</script>"


async def test_opened_traceback_stays_open() -> None:
    """New entries of the timeline leave what is opened, focused and selected as it is."""
    async with opened("/#/resource/shop.v1.Order/default/default/lost-7") as (running, browser):
        await lost_order(running)
        await browser.wait("document.querySelector('.timeline summary') !== null")
        await browser.click(".timeline summary")
        await browser.wait("document.querySelector('.timeline details[open]') !== null")
        await browser.evaluate(
            "void (window.kept = document.querySelector('.timeline summary'), "
            "getSelection().selectAllChildren(document.querySelector('.timeline pre')))"
        )
        # A run has its reasons, reads and writes, and a write its writer, as far as it is known.
        told = await browser.evaluate("document.querySelector('.timeline').innerText")
        assert "Because of: Order lost-7 changed at revision" in told
        assert "Read: Order lost-7" in told
        assert "Wrote: " in told
        assert "Created (writer unknown)" in told
        for number in range(1, 3):
            await running.client.apply(shop.ORDER.new("lost-7", shop.Order(customer="", items=["tea"] * (number + 1))))
            await browser.wait(f"document.querySelectorAll('.timeline .write').length > {number}")
            told = await browser.evaluate("document.querySelector('.sentences').innerText")
            await browser.wait(f"document.querySelector('.sentences').innerText !== {json.dumps(told)}")
            assert await browser.evaluate("window.kept.isConnected && window.kept.parentElement.open")
            assert await browser.evaluate("document.activeElement === window.kept")
            assert "ValueError" in await browser.evaluate("getSelection().toString()")


async def test_hostile_content_is_shown_as_text() -> None:
    """Markup in payloads, errors, metadata, statuses and reasons stays text, and no policy has to stop it."""
    async with opened(writes=True, refused="status of 400") as (running, browser):
        order = shop.ORDER.new("evil", shop.Order(customer=HOSTILE, items=[HOSTILE]), metadata={"note": HOSTILE})
        await running.client.apply(order)
        stored = await running.client.read(shop.ORDER, "evil")
        conditions = [pb.Condition(type="Hacked", state=pb.ConditionState.FALSE, reason="Evil", message=HOSTILE)]
        await running.client.write_status(stored, "evil", conditions)
        await pause_controller(running.client, "shop/depots", HOSTILE)
        await lost_order(running)
        await browser.wait("document.querySelector('.failing') !== null")
        for path, wanted in (
            ("#/resource/shop.v1.Order/default/default/evil", ".payload"),
            ("#/controller/shop%2Fdepots", ".charts"),
            ("#/resources/shop.v1.Order", ".found"),
            (f"#/controller/{HOSTILE}", "main h1"),
            (f"#/resources/{HOSTILE}", "main h1"),
            (f"#/resource/{HOSTILE}/{HOSTILE}/{HOSTILE}/{HOSTILE}", "main h1"),
        ):
            await browser.evaluate(f"void (location.hash = {json.dumps(path)})")
            await browser.wait(f"document.querySelector({json.dumps(wanted)}) !== null")
            await trio.lowlevel.checkpoint()
            if ".payload" in wanted or "charts" in wanted:
                await browser.wait(f"document.body.innerText.includes({json.dumps(HOSTILE)})")
            assert await browser.evaluate("document.querySelectorAll('main img, main script').length") == 0
        assert await browser.evaluate("window.hacked === undefined")
        # The last address is refused by the server, which Chromium notes. The page does not ask again.
        await browser.wait("document.querySelector('main .problem') !== null")
        await browser.evaluate("void (location.hash = '#/')")
        await browser.wait("document.querySelector('.controllers') !== null")


async def test_large_type_is_searched_step_by_step() -> None:
    """30,000 resources: a page of them, then those with a text in their name, wherever they are."""
    async with MemoryBackend() as backend:
        await shop.store_depots(backend, 30_000)
        async with opened("/#/resources/shop.v1.Depot", store=nullcontext(backend)) as (_, browser):
            await browser.wait("document.querySelectorAll('.found tbody tr').length === 50")
            await browser.click("#search")
            await browser.type("9999")
            await browser.wait("document.querySelectorAll('.found tbody tr').length === 3")
            await browser.wait(f"{TEXT}.includes('3 found, 30,000 examined')")


async def test_unmapped_change_is_a_warning_with_a_way_to_its_controller() -> None:
    """An idle controller with such a change is not green, and its name leads to it. Nor is a metadata that is empty."""
    app = mapper_that_raises()
    types = {each.name.kind: each for each in app.registry}
    async with (
        headway.open_engine(
            "memory:", app, network=headway.Network(http="127.0.0.1:0", insecure=True), report=headway.events.ignore
        ) as engine,
        open_chromium() as browser,
    ):
        await engine.client.apply(types["Team"].new("core", Team(), metadata={"size": "3"}))
        await browser.open(f"http://{engine.http}/#/resource/staff.v1.Team/default/default/core")
        badge = "document.querySelector('.badges a')"
        await browser.wait(f"{badge}?.innerText === 'staff/teams: idle' && {badge}.classList.contains('good')")
        assert await browser.evaluate(CONTRAST) == []
        facts = (
            "document.querySelector('section[aria-labelledby=metadata-title]').innerText.replace(/\\s+/g, ' ').trim()"
        )
        assert await browser.evaluate(facts) == "Metadata size 3"
        crumbs = "document.querySelector('.crumbs').innerText"
        assert await browser.evaluate(crumbs) == "Resources / Team / partition default / namespace default"
        await engine.client.apply(types["Account"].new("ada", Account()))
        await browser.wait(f"{badge}.innerText === 'staff/teams: idle, 1 change not mapped'")
        assert await browser.evaluate(f"{badge}.classList.contains('warn')")
        await browser.wait("document.querySelector('.sentences .bad')?.innerText.includes('Account ada')")
        where = "document.querySelector('.sentences a[href=\"#/controller/staff%2Fteams\"]').parentElement.innerText"
        assert await browser.evaluate(where) == "Controller staff/teams manages it, in process server."
        await browser.click(".sentences .bad a")
        await browser.wait(
            "document.querySelector('h1').innerText === 'Account ada' && document.querySelector('.payload')"
        )
        await browser.wait(f"{badge}?.innerText === 'staff/teams: 1 change not mapped'")
        assert await browser.evaluate(facts) == "Metadata none"
        await browser.click(".badges a")
        await browser.wait("location.hash === '#/controller/staff%2Fteams' && document.querySelector('.charts')")
        assert await browser.logs() == []


async def test_standby_that_nobody_stands_in_for_is_a_warning() -> None:
    """The process that holds the lease is not connected to this server, so nobody here works on the resource."""
    app, backend = mapper_that_raises(), MemoryBackend()
    services = Services(ResourceService(backend, app.registry), LeaseService(backend))
    assert (await LeaseClient(InProcessChannel(services)).acquire("staff/teams", "deploy-7", 600)).acquired
    async with (
        headway.open_engine(
            backend, app, network=headway.Network(http="127.0.0.1:0", insecure=True), report=headway.events.ignore
        ) as engine,
        open_chromium() as browser,
    ):
        await browser.open(f"http://{engine.http}/#/resource/staff.v1.Team/default/default/core")
        await browser.wait("document.querySelector('.badges a.warn')?.innerText.includes('standby')")
        text = await browser.evaluate("document.querySelector('.badges a.warn').innerText")
        assert text == "staff/teams: standby, deploy-7 holds the lease"


async def test_search_without_a_type_asks_for_one() -> None:
    """No request is sent, the types stay, and the name is searched for once a type is chosen."""
    async with opened("/#/resources") as (running, browser):
        await lost_order(running)
        await running.client.apply(shop.ORDER.new("fine", shop.Order(customer="ada")))
        await browser.wait("document.querySelector('.types a[href$=\"shop.v1.Order\"]') !== null")
        await browser.click("#search")
        await browser.type("lost")
        await browser.shows("Choose a type to search for “lost”.")
        await browser.press("Enter")
        searched = (
            "performance.getEntriesByType('resource').filter((each) => each.name.includes('/page/search')).length"
        )
        assert await browser.evaluate(searched) == 0
        await browser.click(".types a[href$='shop.v1.Order']")
        await browser.wait("document.querySelectorAll('.found tbody tr').length === 1")
        assert await browser.evaluate("document.querySelector('.found tbody th').innerText") == "lost-7"
        assert await browser.evaluate("document.getElementById('search').value") == "lost"
