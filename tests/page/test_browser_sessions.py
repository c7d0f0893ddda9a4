"""The page between the sessions of one tab, and for a caller who may not observe anything."""

from __future__ import annotations

import json

import pytest

from tests.helpers.browser import PATIENCE, Chromium
from tests.page.kit import EVERYTHING, Shop, rule
from tests.page.opened import TEXT, lost_order, opened, sign_in

pytestmark = [pytest.mark.browser, pytest.mark.timeout(6 * PATIENCE)]

RULES = {"all": [EVERYTHING], "viewer": [rule("view", type="shop.v1.Parcel")]}
DENIED = "status of 403"
MAY_NOT_OBSERVE = "permission denied: you may not observe"
NEXT_SESSION = """fetch("/page/session", {
  method: "POST", headers: {"content-type": "application/json"}, body: JSON.stringify({token: %s})
}).then((response) => response.status)"""
HELD_QUESTION = """void ((fetches, released) => {
  window.fetch = async (path, options) => {
    const asksWho = !window.held && path === "/page/session" && !options?.method && new Error().stack.includes(%s);
    if (asksWho) { window.held = true; await released; }
    return fetches(path, options);
  };
})(fetch, new Promise((resolve) => { window.release = resolve; }))"""
"""Hold the first question of a script's stream who is signed in."""
COUNTED = """void ((fetches, streams) => {
  Object.assign(window, { asked: [], timers: [] });
  window.fetch = (path, ...rest) => { asked.push(path); return fetches(path, ...rest); };
  window.EventSource = class extends streams { constructor(path) { super(path); asked.push(path); } };
  const later = setTimeout;
  window.setTimeout = (call, time) => { timers.push(time); return later(call, Math.min(time, 50)); };
})(fetch, EventSource)"""
"""Note what the page asks for, and each timer, which would be an attempt that nobody asked for."""


async def sign_out(browser: Chromium) -> None:
    await browser.click("header button:last-child")
    await browser.wait("document.getElementById('token') !== null")


async def see_everything(browser: Chromium, running: Shop) -> None:
    """Sign in as a caller who may see everything, until the page shows what fails."""
    await sign_in(browser, running.tokens["all"])
    await browser.wait("document.querySelectorAll('.controllers tbody tr').length >= 3")
    await browser.wait("document.querySelector('.failing')?.innerText.includes('lost-7')")


async def assert_shows_nothing_of_others(browser: Chromium) -> None:
    """Check the overview, the page of a controller, and the types to choose from."""
    await browser.shows(MAY_NOT_OBSERVE)
    # It says which rule would be needed.
    told = await browser.evaluate("document.querySelector('main .problem').innerText")
    for path, sign in (
        ("#/controller/shop%2Fbilling", "Try again"),
        ("#/resources", "Choose a type"),
        ("#/", "Try again"),
    ):
        await browser.evaluate(f"void (location.hash = {json.dumps(path)})")
        await browser.wait(f"{TEXT}.includes({json.dumps(sign)})")
        text = await browser.evaluate(TEXT)
        assert MAY_NOT_OBSERVE in text, path
        assert not [each for each in ("Order", "billing", "lost-7") if each in text.replace(told, "")], path


async def test_next_user_of_a_tab_sees_nothing_of_the_one_before() -> None:
    async with opened(rules=RULES, refused=DENIED) as (running, browser):
        await lost_order(running)
        await see_everything(browser, running)
        await sign_out(browser)
        await sign_in(browser, running.tokens["viewer"])
        await assert_shows_nothing_of_others(browser)


async def test_next_user_sees_nothing_before_the_first_answer() -> None:
    async with opened(rules=RULES) as (running, browser):
        await lost_order(running)
        await see_everything(browser, running)
        await sign_out(browser)
        # A stream that never answers.
        await browser.evaluate("void (window.EventSource = class { addEventListener() {} close() {} })")
        await sign_in(browser, running.tokens["viewer"])
        await browser.wait("document.querySelector('.sign-in') === null")
        assert await browser.evaluate(TEXT) == "Connecting…"


async def test_session_that_another_tab_begins_drops_what_was_shown() -> None:
    """The cookie is the same one for all tabs. An open resource goes as well, with its dialog."""
    async with opened(rules=RULES, writes=True, refused="Failed to load resource") as (running, browser):
        await lost_order(running)
        await see_everything(browser, running)
        await browser.evaluate("void (location.hash = '#/resource/shop.v1.Order/default/default/lost-7')")
        await browser.wait("document.querySelector('.sentences')?.innerText.includes('no customer')")
        await browser.evaluate(
            "void [...document.querySelectorAll('button')].find((each) => each.innerText === 'Edit').click()"
        )
        await browser.wait("document.querySelector('#dialog[open] textarea') !== null")
        # A session without rights to this resource begins, as another tab would begin it.
        assert await browser.evaluate(NEXT_SESSION % json.dumps(running.tokens["viewer"])) == 204
        await browser.wait("!document.querySelector('#dialog[open]') && !document.querySelector('#dialog textarea')")
        await browser.shows("permission denied: none of your rules")
        assert "no customer" not in await browser.evaluate(TEXT)
        await browser.evaluate("void (location.hash = '#/')")
        await assert_shows_nothing_of_others(browser)


@pytest.mark.parametrize("late", ["live.js", "resource.js"])
async def test_end_of_a_session_is_not_taken_for_a_refusal_of_the_next_one(late: str) -> None:
    """One of two streams notices the end first. Then the page already shows what the next session may see."""
    async with opened(rules=RULES, refused="Failed to load resource") as (running, browser):
        await lost_order(running)
        await see_everything(browser, running)
        await browser.evaluate("void (location.hash = '#/resource/shop.v1.Order/default/default/lost-7')")
        await browser.wait("document.querySelector('.sentences')?.innerText.includes('no customer')")
        await browser.evaluate(HELD_QUESTION % json.dumps(late))
        assert await browser.evaluate(NEXT_SESSION % json.dumps(running.tokens["viewer"])) == 204
        await browser.wait("window.held")
        await browser.shows("permission denied: none of your rules")
        await browser.evaluate("void window.release()")
        await browser.shows("permission denied: none of your rules")
        await browser.evaluate("void (location.hash = '#/')")
        await browser.shows(MAY_NOT_OBSERVE)


async def test_caller_who_may_not_observe_is_told_so_once() -> None:
    """The page asks again only when it is told to."""
    asks = "asked.filter((each) => each === '/page/live').length"
    async with opened(rules=RULES, refused=DENIED) as (running, browser):
        await browser.evaluate(COUNTED)
        await sign_in(browser, running.tokens["viewer"])
        await browser.shows(MAY_NOT_OBSERVE)
        assert "Connecting" not in await browser.evaluate(TEXT)
        assert (await browser.evaluate("document.querySelector('.connection').innerText")).strip() == "not allowed"
        # The stream, and the question why it was refused.
        assert [await browser.evaluate("timers"), await browser.evaluate(asks)] == [[], 2]
        await browser.evaluate("void document.querySelector('main button').click()")
        await browser.wait(f"{asks} === 4")
        await browser.shows(MAY_NOT_OBSERVE)
        assert await browser.evaluate("timers") == []


@pytest.mark.parametrize("path", ["leases", "resource/shop.v1.Order/default/default/lost-7"])
async def test_view_that_is_denied_does_not_ask_again(path: str) -> None:
    async with opened(f"/#/{path}", rules=RULES, refused=DENIED) as (running, browser):
        await browser.evaluate(COUNTED)
        await sign_in(browser, running.tokens["viewer"])
        await browser.wait("document.querySelector('main .problem')?.innerText.includes('permission denied')")
        assert await browser.evaluate("timers") == []


async def test_visitor_whom_the_anonymous_policy_lets_in_can_sign_in() -> None:
    """The page opened without a token, and offered nowhere to enter one."""
    rules = {"all": [EVERYTHING], "anonymous": [rule("read", type="shop.v1.Parcel")]}
    async with opened(rules=rules, refused=DENIED) as (running, browser):
        await lost_order(running)
        await browser.shows(MAY_NOT_OBSERVE)
        await browser.click("header button:last-child")
        await see_everything(browser, running)
        await browser.click("header button:last-child")
        await browser.shows(MAY_NOT_OBSERVE)
