"""What the browser tests wait with: a page draws its elements when it likes, and may be replaced meanwhile."""

from __future__ import annotations

import pytest

from tests.helpers.browser import PATIENCE, BrowserError, open_chromium
from tests.page.kit import open_shop

pytestmark = [pytest.mark.browser, pytest.mark.timeout(6 * PATIENCE)]

# It counts its evaluations, for which a document has a memory.
LATE = (
    "(window.asked = (window.asked ?? 0) + 1) > 3 && (document.querySelector('.late') ?? draw()).innerText === 'here'"
)
DRAW = """void (window.draw = () => {
  document.body.append(Object.assign(document.createElement("p"), {className: "late", innerText: "here"}));
  return null;
})"""
# The first evaluation never ends, except with its document.
REPLACED = """sessionStorage.replaced === "yes" ? document.querySelector(".connection").innerText.includes("live")
  : (sessionStorage.replaced = "yes", setTimeout(() => location.reload(), 0), new Promise(() => {}))"""


async def test_wait_goes_on_while_an_element_is_not_drawn_yet_or_its_document_is_replaced() -> None:
    async with open_shop() as running, open_chromium() as browser:
        await browser.open(f"http://{running.address}/")
        await browser.evaluate(DRAW)
        assert await browser.wait(LATE) is True
        # It was evaluated once more after it had failed.
        assert await browser.evaluate("window.asked") == 5
        assert await browser.wait(REPLACED) is True
        assert await browser.evaluate("window.asked ?? 0") == 0
        # What can never hold fails at once.
        with pytest.raises(BrowserError, match="SyntaxError"):
            await browser.wait("document.querySelector(")
        with pytest.raises(BrowserError, match="ReferenceError: nothing"):
            await browser.wait("nothing")
