"""The end of a process that nothing else would end.

After the function of a server, Python waits for threads that are not daemons. And the kernel ignores a signal to the
first process of a container until it has a handler.
"""

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


def end_at_signals() -> None:
    """Let SIGTERM end the first process of a container, such as during the import of an app, as it ends any other."""
    if os.getpid() == 1 and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


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
