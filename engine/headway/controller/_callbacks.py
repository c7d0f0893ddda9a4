"""`on_start` and `on_stop`: called, bounded in time, and reported when they fail. No run fails by them.

What must succeed before a run may go on is an initialiser's; these are told what happens.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import trio

from headway._groups import of_controller, only_error
from headway.events import CallbackFailed, Report

CALLBACK_DEADLINE = 10.0
"""Seconds that a callback may take; then it is cancelled, and has failed."""


async def call(
    report: Report, controller: str, what: str, callback: Callable[..., Any] | None, *arguments: object
) -> None:
    """Call a plain or async callback, and report it when it raises or takes too long."""
    if callback is None:
        return
    try:
        with trio.fail_after(CALLBACK_DEADLINE):
            answer = callback(*arguments)
            if inspect.isawaitable(answer):
                await answer
    except BaseException as error:  # noqa: BLE001  # a user's function may raise anything, `SystemExit` too
        failed, others = of_controller(error)
        if failed is not None:
            report(CallbackFailed(controller, what, only_error(failed)))
        if others is not None:
            raise others from None
