"""The search for resources of a type, in steps of bounded work."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from headway.base import give_way, in_slices
from headway.errors import ConversionFailed, PayloadError
from headway.page._parts import Parts, Place
from headway.resource import (
    ResourceType,
    column_texts,
    created_at,
    data_steps,
    is_marked,
    pb,
    redacted_resource,
    resource_key,
)
from headway.service import Ready
from headway.storage import Within

STEP = 10_000
"""The number of resources that one request examines at most."""
ROWS = 100
"""The number of resources that one answer shows at most."""
_AT_ONCE = 500
"""The number of resources to examine between two checkpoints. It takes less than a millisecond."""
_CONDITIONS = 8
_CURSORS = 10_000


class Search(NamedTuple):
    """A search for resources whose name contains ``text``, within a part of a type.

    Attributes:
        condition: the name of a condition, or empty for any.
        state: the state that it has, such as ``FALSE``, or empty for any.
        cursor: where the search goes on, from the answer before.
        failing: True for the resources that fail, as far as the caller may observe them.
    """

    type: pb.Type
    partition: str
    namespace: str
    text: str
    condition: str
    state: str
    cursor: str
    rows: int
    failing: bool = False

    @property
    def tenancy(self) -> pb.Tenancy:
        """The tenancy to search. A unit that is left out is any."""
        return pb.Tenancy(partition=self.partition or "*", namespace=self.namespace or "*")


class Cursors:
    """The places where searches go on. They stay here, because the caller may not be allowed to know the key."""

    def __init__(self) -> None:
        self._places: OrderedDict[str, tuple[str, Place]] = OrderedDict()

    def add(self, of: str, place: Place) -> str:
        """Return the name of a place in the search that ``of`` describes."""
        name = secrets.token_urlsafe(12)
        self._places[name] = of, place
        if len(self._places) > _CURSORS:
            self._places.popitem(last=False)
        return name

    def find(self, name: str, of: str) -> Place | None:
        """Return a place, or None if it is not known, or is one of another search."""
        found = self._places.get(name)
        return found[1] if found is not None and found[0] == of else None


class Found(NamedTuple):
    """A part of the result: the resources, and where the search goes on, or None at the end."""

    resources: list[pb.Resource]
    examined: int
    rest: Place | None


async def find(
    parts: Parts,
    type: ResourceType[Any],
    within: Within,
    wanted: Callable[[pb.Resource], bool],
    text: str,
    rows: int,
    place: Place,
    step: int = STEP,
    at_once: int = _AT_ONCE,
    ready: Ready | None = None,
) -> Found:
    """Examine some ``step`` resources from a place on, and return the first ``rows`` that are wanted."""
    found: list[pb.Resource] = []
    examined = 0
    while examined < step:
        page, token, rest = await parts.part(type, within, place, min(at_once, step - examined))
        # The name decides first, because that is the cheapest.
        named = [at for at, each in enumerate(page) if text in each.id.name]  # type: ignore[union-attr]  # ids are whole
        for at in named:
            if ready is not None:
                await ready(page[at])
            if wanted(resource := page[at]):
                found.append(resource)
                if len(found) == rows:
                    return Found(found, examined + at + 1, Place(resource_key(resource), token))
        examined += len(page)
        if rest is None:
            return Found(found, examined, None)
        place = rest
        await give_way()
    return Found(found, examined, place)


def has_condition(resource: pb.Resource, condition: str, state: str) -> bool:
    """Return True if the resource has a condition of this name, in this state. Empty texts match any."""
    return any(
        condition in ("", each.type) and state in ("", _state(each))
        for status in resource.status.values()
        for each in status.conditions
    )


async def row(type: ResourceType[Any], resource: pb.Resource, seen: pb.Resource | None) -> dict[str, Any]:
    """Return what a list shows of a resource.

    Args:
        seen: the resource as the version that is listed; None if it cannot be converted.
    """
    partition, namespace, name = resource_key(resource)
    conditions = [each for status in resource.status.values() for each in status.conditions]
    columns: list[str] = []
    if type.columns and seen is not None:
        view = type.view(seen)
        with suppress(PayloadError, ConversionFailed):
            await in_slices(data_steps(view))
        columns = column_texts(redacted_resource(view))
    return {
        "partition": partition,
        "namespace": namespace,
        "name": name,
        "version": resource.version,
        "created": created_at(resource.id.uid) or None,  # type: ignore[union-attr]  # stored ids are whole
        "columns": columns,
        "deleting": is_marked(resource.metadata),
        "conditions": [{"type": each.type, "state": _state(each)} for each in conditions[:_CONDITIONS]],
    }


def _state(condition: Any) -> str:
    state = condition.state
    return str(getattr(state, "name", None) or int(state)).removeprefix("STATE_")
