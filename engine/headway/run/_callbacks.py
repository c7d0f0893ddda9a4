"""Calls of `on_start` and `on_stop`. Each has a deadline, and its failure is reported but never ends the run.

These callbacks are only notified. Work that must succeed before a run may continue belongs in an initialiser.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import trio

from headway._groups import of_controller, only_error
from headway.events import CallbackFailed, Report

CALLBACK_DEADLINE = 10.0
"""The deadline of a callback, in seconds. After it, the callback is canceled and counts as failed."""


async def call(
    report: Report, controller: str, what: str, callback: Callable[..., Any] | None, *arguments: object
) -> None:
    """Call a plain or async callback, and report it if it raises or times out."""
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
