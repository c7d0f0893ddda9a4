"""A process that drives a real Chromium: one JSON command a line on standard input, one JSON answer on standard output.

Playwright's synchronous interface runs an asyncio loop of its own, which trio-asyncio would replace within the process
of a test. So this module imports nothing of Headway.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from playwright.sync_api import Browser, ConsoleMessage, Error, Page, sync_playwright

ARGUMENTS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
# A page cannot see all violations of its policy unless it listens from its beginning.
_LISTEN = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) => {
  window.violations.push(`${event.violatedDirective} ${event.blockedURI}`);
});
"""
# The errors of an expression to evaluate again: a part of the document is not there, or all of it is being replaced.
_NOT_YET = ("TypeError", "Execution context was destroyed")


class Driven:
    """A browser with one page at a time. Its public methods are the commands."""

    def __init__(self, browser: Browser, patience: float) -> None:
        self._browser = browser
        self._patience = patience * 1000
        self._page: Page | None = None
        self._logs: list[str] = []

    @property
    def _open(self) -> Page:
        assert self._page is not None
        return self._page

    def open(self, url: str, theme: str, width: int, height: int, phone: bool) -> None:
        """Open a page in a new context, without cookies."""
        if self._page is not None:
            self._page.context.close()
        context = self._browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if theme == "dark" else "light",
            is_mobile=phone,
            has_touch=phone,
            device_scale_factor=2 if phone else 1,
            ignore_https_errors=True,
            locale="en-US",
            timezone_id="UTC",
        )
        context.set_default_timeout(self._patience)
        context.add_init_script(_LISTEN)
        self._page = context.new_page()
        self._page.on("console", self._log)
        self._page.on("pageerror", lambda error: self._logs.append(f"uncaught: {error}"))
        self._page.goto(url)

    def goto(self, url: str) -> None:
        """Go to an address."""
        self._open.goto(url)

    def wait(self, expression: str) -> Any:
        """Wait until a JavaScript expression is truthy, and return its value.

        An element that the page has not drawn yet makes the expression fail, and so does a document that is replaced
        while the expression is evaluated. Both mean that the condition does not hold yet.
        """
        # Playwright's own wait evaluates the expression within the page, whose policy forbids that.
        until = time.monotonic() + self._patience / 1000
        while True:
            value, failed = None, ""
            try:
                value = self._open.evaluate(expression)
            except Error as error:
                failed = str(error)
                if not any(each in failed for each in _NOT_YET):
                    raise
            if value:
                return value
            if time.monotonic() > until:
                why = f" ({failed})" if failed else ""
                raise Error(f"not within {self._patience / 1000:g} s{why}; the page shows: {self.text()[:2000]}")
            self._open.wait_for_timeout(50)

    def text(self) -> str:
        """Return the text that the page shows."""
        text: str = self._open.evaluate("document.body?.innerText ?? ''")
        return text

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression."""
        return self._open.evaluate(expression)

    def press(self, *keys: str) -> None:
        """Press keys, one after the other."""
        for key in keys:
            self._open.keyboard.press(key)

    def type(self, text: str) -> None:
        """Type a text where the focus is."""
        self._open.keyboard.type(text)

    def click(self, selector: str) -> None:
        """Click the element of a selector."""
        self._open.click(selector)

    def cookies(self) -> Any:
        """Return the cookies."""
        return self._open.context.cookies()

    def screenshot(self, path: str, full: bool) -> None:
        """Write a picture of the page."""
        self._open.screenshot(path=path, full_page=full)

    def logs(self) -> list[str]:
        """Return the warnings and errors of the console since the last call, and the violations of the policy."""
        logs, self._logs = self._logs, []
        return [*logs, *self._open.evaluate("window.violations")]

    def _log(self, message: ConsoleMessage) -> None:
        if message.type in ("warning", "error"):
            self._logs.append(f"{message.type}: {message.text}")


def main(executable: str, patience: float) -> None:
    """Answer the commands, until standard input ends."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=list(ARGUMENTS))
        driven = Driven(browser, patience)
        for line in sys.stdin:
            name, *arguments = json.loads(line)
            try:
                answer = {"value": getattr(driven, name)(*arguments)}
            except Error as error:
                answer = {"error": str(error)}
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
