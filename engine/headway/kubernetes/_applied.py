"""What a process has applied last to each object, so that the same apply again needs no call."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from headway.kubernetes._types import KubernetesType
from headway.resource import pb

_MOST_APPLIED = 10_000


class LastApplied:
    """What was applied last to each object. The same again needs no call while the object has not changed since."""

    def __init__(self) -> None:
        self._last: OrderedDict[object, tuple[object, pb.Resource]] = OrderedDict()

    def note(self, key: object, asked: object, stored: pb.Resource) -> None:
        """Remember an apply and what it has stored."""
        self._last[key] = asked, stored
        self._last.move_to_end(key)
        if len(self._last) > _MOST_APPLIED:
            self._last.popitem(last=False)

    def holds(self, type: KubernetesType[Any], key: object, asked: object, known: pb.Resource) -> bool:
        """Return True if the same was applied, and nothing but the status has changed since."""
        before, stored = self._last.get(key, (None, None))
        if stored is None or before != asked or stored.id != known.id:
            return False
        return known.version == stored.version or (
            known.metadata == stored.metadata
            and known.owner == stored.owner
            and _without_status(type, known) == _without_status(type, stored)
        )


def _without_status(type: KubernetesType[Any], resource: pb.Resource) -> dict[str, Any]:
    body = type.body_of(resource.data.value) if resource.data is not None else {}
    return {name: value for name, value in body.items() if name != "status"}
