"""A reason that carries the span of the change's mapping to the reconcile."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headway.reconcile._request import Reason


class TracedReason(Reason):
    """A reason whose change is traced. Each key has its own.

    Attributes:
        cause: the context of the span that covers the mapping of the change to the key.
        trace_id: the id of its trace, as 32 hexadecimal digits.
        since: when the key began to wait for this reason, in nanoseconds since 1970.
    """

    cause: Any
    trace_id: str
    since: int

    @classmethod
    def of(cls, reason: Reason, cause: object, trace_id: str, since: int) -> TracedReason:
        """Return a traced reason that equals an untraced one."""
        made = cls(*reason)
        made.cause, made.trace_id, made.since = cause, trace_id, since
        return made


def trace_id_of(reasons: Iterable[Reason]) -> str:
    """Return the id of the trace of a reconcile with these reasons, or an empty text."""
    return next((each.trace_id for each in reasons if isinstance(each, TracedReason)), "")
