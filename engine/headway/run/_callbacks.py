"""The call of a controller's `on_start` or `on_stop`, which never ends a run."""

from __future__ import annotations

import inspect
from typing import Literal

import trio

from headway.base import of_controller, only_error
from headway.controller import Definition
from headway.events import CallbackFailed, Report

CALLBACK_DEADLINE = 10.0
"""The deadline of a callback, in seconds. After it, the callback is canceled and counts as failed."""


async def call_back(
    report: Report, definition: Definition, what: Literal["on_start", "on_stop"], *arguments: object
) -> None:
    """Call the plain or async callback, if the controller has one. Report it if it raises or times out."""
    callback = getattr(definition, what)
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
            report(CallbackFailed(definition.full_name, what, only_error(failed)))
        if others is not None:
            raise others from None
