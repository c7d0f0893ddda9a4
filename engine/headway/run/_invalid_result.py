"""The error of a reconciler that returned something else than None or a delay."""

from __future__ import annotations

import inspect

from headway.base import repr_text
from headway.errors import InvalidResult
from headway.reconcile import RequeueAfter


def invalid_result(name: str, result: object) -> InvalidResult | None:
    """Return the error of the controller of this name, or None if the result is valid."""
    if result is None or isinstance(result, RequeueAfter):
        return None
    advice = "return None, or headway.requeue_after(seconds)"
    if inspect.iscoroutine(result):
        # A forgotten `await`.
        result.close()
        advice = "await it, as in `return await ...`"
    elif isinstance(result, BaseException):
        advice = "raise it"
    return InvalidResult(f"{name} returned {repr_text(result)}: {advice}")
