"""The stacks of a test that hangs where no Python runs, so that the limit of pytest-timeout cannot end it.

pytest's own `faulthandler_timeout` begins anew with each test. Each time it waits for a thread to end, which takes a
millisecond or two on a busy machine, and a run has ten thousand tests.

`faulthandler` reads the frames of a thread that may be running, and can crash the process when it does. So the stacks
are written only when a test is still there after pytest-timeout should have ended it.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import time

import pytest

RENEWED = 5.0
"""The limit begins again at the first test after this many seconds, so that it is this much less for most tests."""


def add_option(parser: pytest.Parser) -> None:
    """Add the option of the configuration. 0 turns the stacks off, as tests need that take longer."""
    parser.addini("stacks_after", "write the stacks of all threads when a test takes this many seconds", default="75")


def watch(config: pytest.Config) -> None:
    """Write the stacks to standard error when a test takes longer than the option says."""
    seconds = float(config.getini("stacks_after"))
    if seconds > 0 and sys.__stderr__ is not None:
        # While a test runs, pytest captures what is written to standard error.
        config.pluginmanager.register(_Stacks(seconds, os.dup(sys.__stderr__.fileno())))


class _Stacks:
    def __init__(self, seconds: float, stderr: int) -> None:
        self._seconds = seconds
        self._stderr = stderr
        self._renewed = float("-inf")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        now = time.monotonic()
        # These may take longer, and Hypothesis goes on to shrink when the limit has ended one example.
        if item.get_closest_marker("timeout") or item.get_closest_marker("hypothesis"):
            faulthandler.cancel_dump_traceback_later()
            self._renewed = float("-inf")
        elif now >= self._renewed + RENEWED:
            faulthandler.dump_traceback_later(self._seconds, file=self._stderr)
            self._renewed = now

    def pytest_unconfigure(self) -> None:
        faulthandler.cancel_dump_traceback_later()
        os.close(self._stderr)
