"""The progress of controllers that prime their caches, and an estimate of the time left. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.resource import Kind
from headway.run import ControllerStatus, TypeStatus


class PrimingTimes:
    """The progress of all types that are being primed.

    Attributes:
        totals: the number of stored resources of each kind; None until the store has been asked since a priming began.
    """

    def __init__(self) -> None:
        self.totals: Mapping[Kind, int] | None = None
        # By controller and type: when it was first seen, and how much it had received.
        self._began: dict[tuple[str, str], tuple[float, int]] = {}

    def look(self, statuses: Mapping[str, ControllerStatus], now: float) -> bool:
        """Note the progress at a time on Trio's clock. Return True if a priming has begun since the last look."""
        known = self._began
        self._began = {
            (name, each.of): known.get((name, each.of), (now, each.resources))
            for name, status in statuses.items()
            if status.phase == "priming"
            for each in status.types
        }
        return not self._began.keys() <= known.keys()

    def bars(self, name: str, status: ControllerStatus, now: float) -> list[dict[str, Any]]:
        """Return the progress of each type of a controller; an empty list unless it is priming."""
        return [self._bar(name, each, now) for each in status.types] if status.phase == "priming" else []

    def _bar(self, name: str, each: TypeStatus, now: float) -> dict[str, Any]:
        done = each.primed and each.revision >= each.target
        # The number of resources in a part of a type is not known.
        total = None if self.totals is None or each.scope else self.totals.get(each.type.unversioned, 0)
        if done or (total is not None and total < each.resources):
            total = each.resources
        left = None
        began = self._began.get((name, each.of))
        if not done and total is not None and began is not None:
            received, seconds = each.resources - began[1], now - began[0]
            left = (total - each.resources) * seconds / received if received > 0 else None
        return {
            "type": str(each.type),
            "of": each.of,
            "received": each.resources,
            "total": total,
            "done": done,
            "left": None if left is None else round(left, 1),
            "cutOff": each.cut_off,
        }
