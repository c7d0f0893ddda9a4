"""The logger of a reconcile, bound to the fields that identify the reconcile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headway.reconcile._request import RECONCILING, trace_id_of
from headway.resource import Key

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger


def key_path(key: Key) -> str:
    """Return a key as log lines have it, such as ``default/default/core``."""
    return "/".join(key)


def bound_logger(controller: str) -> FilteringBoundLogger:
    """Return structlog's logger ``headway``, bound to the controller and to the reconcile that the task is part of."""
    import structlog  # here, because it takes longer to import than all of Headway

    fields: dict[str, object] = {"controller": controller}
    reconciling = RECONCILING.get()
    if reconciling is not None and reconciling.key is not None:
        fields["key"] = key_path(reconciling.key)
        dequeued = reconciling.dequeued
        if dequeued is not None:
            fields["attempt"] = dequeued.attempt
            if trace_id := trace_id_of(dequeued.reasons):
                fields["trace_id"] = trace_id
    bound: FilteringBoundLogger = structlog.get_logger("headway").bind(**fields)
    return bound
