"""The page in a real Chromium: what it shows, how soon, by keyboard, on a phone, and with hostile content."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.lowlevel

import headway
from headway.client import LeaseClient, pause_controller
from headway.page import PageHost, _others
from headway.resource import pb
from headway.rpc import InProcessChannel, Services
from headway.service import LeaseService, ResourceService
from headway.storage import MemoryBackend
from tests.cli.broken import mapper_that_raises
from tests.helpers.browser import PATIENCE, Chromium, open_chromium
from tests.helpers.why_programs import Account, Team, broken_app
from tests.page import shop
from tests.page.gated import GatedSnapshots, Kept
from tests.page.kit import EVERYTHING, Shop, open_shop, revoke_all, rule
from tests.why.test_workers import types_only

pytestmark = [pytest.mark.browser, pytest.mark.timeout(6 * PATIENCE)]

HOSTILE = "<img src=x onerror='window.hacked=1'><script>window.hacked=1</script>"
TEXT = "document.querySelector('main').innerText"


@asynccontextmanager
async def opened(path: str = "/", *, token: str = "", **options: Any) -> AsyncIterator[tuple[Shop, Chromium]]:
    """Run the shop, and open a page of it. At the end, the console has no errors and the policy was kept."""
    look = {name: options.pop(name) for name in ("theme", "width", "height", "phone") if name in options}
    async with open_shop(**options) as running, open_chromium() as browser:
        await browser.open(f"http://{running.address}{path}", **look)
        if token:
            await sign_in(browser, running.tokens[token])
        yield running, browser
        assert await browser.logs() == []


async def sign_in(browser: Chromium, token: str) -> None:
    """Fill in the form."""
    await browser.wait("document.getElementById('token') !== null")
    await browser.click("#token")
    await browser.type(token)
    await browser.press("Enter")


async def lost_order(running: Shop, name: str = "lost-7", customer: str = "") -> None:
    """Store an order that cannot be billed."""
    await running.client.apply(shop.ORDER.new(name, shop.Order(customer=customer, items=["tea"])))


async def test_failed_reconcile_appears_with_its_why(record_property: Callable[[str, object], None]) -> None:
    """It appears by itself, in every part of the overview, and one click away is the error with its line."""
    async with opened() as (running, browser):
        await browser.wait("document.querySelectorAll('.controllers tbody tr').length >= 3")
        await browser.wait("document.querySelector('.connection').innerText.includes('live')")
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
        await browser.wait("document.querySelector('.tile.bad').innerText.includes('1 not done')")
        await browser.click(".failing li a")
        await browser.wait("document.querySelector('.sentences') !== null")
        told = await browser.evaluate("document.querySelector('.sentences').innerText")
        answer = await running.engine.why(shop.ORDER.id("lost-7"))
        assert f"The last error: {error}" in told
        assert "for attempt 2" in told or "for attempt 3" in told
        assert "shop.py" in told
        # The page says the same as `why`, except for the times that pass.
        assert any("Condition Billed is FALSE" in line and line.strip() in told for line in answer.sentences())
        await browser.wait("document.querySelector('.timeline .run.bad') !== null")
        # A repaired resource leaves the list by itself.
        await lost_order(running, customer="ada")
        await browser.wait("document.querySelector('.badge.good') !== null && document.querySelector('.run:not(.bad)')")
        await browser.wait("document.querySelector('.payload').innerText.includes('ada')")
        await browser.evaluate("void (location.hash = '#/')")
        await browser.wait("document.querySelector('.controllers') !== null && !document.querySelector('.failing')")


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


async def test_progress_of_priming_moves_on_the_page() -> None:
    """The bar follows the pieces that arrive, and goes when all types are primed."""
    gate = GatedSnapshots(shop.DEPOT)
    async with MemoryBackend() as backend:
        await shop.store_depots(backend, 3500)
        async with opened(store=Kept(backend), wrap_channel=gate.over) as (_, browser):
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


async def test_both_themes() -> None:
    """The page follows the system, and its button overrides that, also after a reload."""
    async with opened(theme="dark") as (running, browser):
        ground = "getComputedStyle(document.body).backgroundColor"
        await browser.wait("document.querySelector('.controllers') !== null")
        dark = await browser.evaluate(ground)
        assert sum(map(int, dark[4:-1].split(","))) < 150
        await browser.click(".theme")
        light = await browser.evaluate(ground)
        assert sum(map(int, light[4:-1].split(","))) > 650
        await browser.goto(f"http://{running.address}/#/resources")
        await browser.wait("document.querySelector('.types') !== null")
        assert await browser.evaluate(ground) == light
        await browser.click(".theme")
        assert await browser.evaluate(ground) == dark
        # Every text of the page can be read on its ground.
        for theme in ("light", "dark"):
            await browser.evaluate(f"document.documentElement.setAttribute('data-theme', '{theme}')")
            await browser.goto(f"http://{running.address}/#/")
            await browser.wait("document.querySelector('.controllers') !== null")
            assert await browser.evaluate(CONTRAST) == []


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


VIEWS = (
    ("#/", ".controllers"),
    ("#/controller/shop%2Fbilling", ".charts"),
    ("#/resources", ".types"),
    ("#/resources/shop.v1.Order", ".found"),
    (f"#/resource/shop.v1.Order/default/default/{'l' * 63}", ".timeline li"),
)


async def test_phone_scrolls_down_only() -> None:
    """No view is wider than a small phone, whatever the names and errors."""
    async with opened(phone=True, width=360, height=740, writes=True) as (running, browser):
        await lost_order(running, "l" * 63)
        await pause_controller(running.client, "shop/shipping", "a-reason-without-any-space-" * 8)
        for path, wanted in VIEWS:
            await browser.goto(f"http://{running.address}/{path}")
            await browser.wait(f"document.querySelector({json.dumps(wanted)}) !== null")
            width = "document.documentElement.scrollWidth"
            assert await browser.evaluate(width) <= 360, path
            # Fingers need room.
            small = await browser.evaluate(
                "[...document.querySelectorAll('button, header a')].filter((each) => each.offsetHeight < 26).length"
            )
            assert small == 0, path


async def test_hostile_content_is_shown_as_text() -> None:
    """Markup in payloads, errors, metadata, statuses and reasons stays text, and no policy has to stop it."""
    async with opened(writes=True) as (running, browser):
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
        refused = await browser.logs()
        assert all("Failed to load resource: the server responded with a status of 400" in each for each in refused)


async def test_token_signs_in_and_out() -> None:
    """No script can read the cookie, fewer rights show less, and the end of a session asks for a token again."""
    rules = {"all": [EVERYTHING], "orders": [rule("view", "observe")]}
    async with opened(rules=rules, writes=True, token="orders") as (running, browser):
        await browser.wait("document.querySelectorAll('.controllers tbody tr').length === 1")
        assert await browser.evaluate("document.cookie") == ""
        [cookie] = await browser.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        await browser.click("header button:last-child")
        await browser.wait("document.getElementById('token') !== null")
        assert "shop" not in await browser.evaluate(TEXT)
        await sign_in(browser, "hw_0000000000000000_" + "0" * 64)
        await browser.wait("document.querySelector('.sign-in .problem') !== null")
        refused = await browser.logs()
        assert all("status of 401" in each for each in refused)
        await browser.evaluate("void (document.getElementById('token').value = '')")
        await sign_in(browser, running.tokens["all"])
        await browser.wait("document.querySelectorAll('.controllers tbody tr').length >= 3")
        await browser.evaluate("void (location.hash = '#/resource/shop.v1.Order/default/default/a')")
        await browser.wait("document.querySelector('.sentences') !== null")
        assert running.access is not None
        revoke_all(running.access)
        await browser.wait("document.getElementById('token') !== null")
        assert "Order" not in await browser.evaluate(TEXT)
        refused = await browser.logs()
        assert all("Failed to load resource" in each for each in refused)


async def test_large_type_is_searched_step_by_step() -> None:
    """30,000 resources: a page of them, then those with a text in their name, wherever they are."""
    async with MemoryBackend() as backend:
        await shop.store_depots(backend, 30_000)
        async with opened("/#/resources/shop.v1.Depot", store=Kept(backend)) as (_, browser):
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
        headway.open_engine("memory:", app, http="127.0.0.1:0", insecure=True, report=headway.events.ignore) as engine,
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
        await browser.wait(f"{badge}.innerText === 'staff/teams: idle, a change not mapped'")
        assert await browser.evaluate(f"{badge}.classList.contains('warn')")
        await browser.wait("document.querySelector('.sentences .bad')?.innerText.includes('Account ada')")
        where = "document.querySelector('.sentences a[href=\"#/controller/staff%2Fteams\"]').parentElement.innerText"
        assert await browser.evaluate(where) == "Controller staff/teams manages it, in process server."
        await browser.click(".sentences .bad a")
        await browser.wait(
            "document.querySelector('h1').innerText === 'Account ada' && document.querySelector('.payload')"
        )
        await browser.wait(f"{badge}?.innerText === 'staff/teams: a change not mapped'")
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
        headway.open_engine(backend, app, http="127.0.0.1:0", insecure=True, report=headway.events.ignore) as engine,
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


async def test_page_comes_back_after_its_server() -> None:
    """A page that has lost its server says so, and goes on by itself when the server is back."""
    async with open_chromium() as browser:
        async with open_shop() as running:
            address = running.address
            await browser.open(f"http://{address}/")
            await browser.wait("document.querySelector('.connection').innerText.includes('live')")
        await browser.wait("document.querySelector('.connection').innerText.includes('not connected')")
        async with headway.open_engine(
            "memory:", shop.app, http=address, insecure=True, report=headway.events.ignore
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


async def test_stuck_work_is_listed_with_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `headway why --stuck` lists it, and one click away is why."""
    monkeypatch.setattr(_others, "STUCK_AFTER", 0.0)
    async with opened() as (running, browser):
        await lost_order(running)
        item = "[...document.querySelectorAll('.stuck li')].find((each) => each.innerText.includes('lost-7'))"
        await browser.wait(f"{item}?.querySelector('.error').innerText.includes('has no customer')")
        assert "shop/billing" in await browser.evaluate(f"{item}.querySelector('.meta').innerText")
        await browser.evaluate(f"void {item}.querySelector('a').click()")
        await browser.wait("document.querySelector('.sentences')?.innerText.includes('has no customer')")


async def test_worker_is_in_the_graph_and_the_list_until_it_has_gone() -> None:
    """With its process and its numbers, and marked once it has gone."""
    app, team = broken_app()
    async with opened(app=types_only(), listen=["127.0.0.1:0"]) as (running, browser):
        await running.client.apply(team.new("core", Team()))
        async with headway.open_workers(running.engine.addresses, app, process="web-1"):
            await browser.wait("document.querySelector('.elsewhere tbody tr.bad')?.innerText.includes('web-1')")
            row = await browser.evaluate("document.querySelector('.elsewhere tbody tr').innerText")
            assert "staff/teams" in row
            await browser.wait(
                "document.querySelector('.graph .controller.bad')?.getAttribute('aria-label')"
                ".startsWith('Controller staff/teams: running')"
            )
            await browser.click(".elsewhere tbody a")
            await browser.wait("document.querySelector('h1').innerText.includes('staff/teams')")
            await browser.wait("document.querySelector('.elsewhere td.process').innerText === 'web-1'")
        await browser.wait("document.querySelector('.elsewhere td.state').innerText.includes('gone')")
        await browser.evaluate("void (location.hash = '#/')")
        await browser.wait(
            "document.querySelector('.graph .controller.bad').getAttribute('aria-label')"
            ".startsWith('Controller staff/teams: gone')"
        )
