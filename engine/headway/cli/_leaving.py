"""The end of a server's process after the end of its function: Python waits for threads that are not daemons."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback

from headway.base import say

HARD_EXIT = 70
"""The exit code of a server that received a signal to stop, but that something blocked."""


def leave_within(seconds: float, bound: float) -> None:
    """End the process with HARD_EXIT if Python has not ended it after this many seconds. Further signals do nothing.

    Args:
        bound: the seconds since the first signal after which that will be.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_leave, args=(seconds, bound), name="headway exit", daemon=True).start()


def _leave(seconds: float, bound: float) -> None:
    time.sleep(max(seconds, 0.0))
    main = threading.main_thread()
    waited_for = [each for each in threading.enumerate() if not each.daemon and each is not main]
    for each in waited_for or [main]:
        frame = None if each.ident is None else sys._current_frames().get(each.ident)
        stack = "".join(traceback.format_stack(frame)) if frame is not None else ""
        say(f"thread {each.name} has not ended within {bound:g} s of the start of the shutdown:\n{stack}")
    os._exit(HARD_EXIT)
