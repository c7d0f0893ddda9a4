"""The events that `Runtime.event` records, and the function that it passes them to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headway.base import repr_text
from headway.cache import Projected
from headway.errors import InvalidArgument
from headway.resource import MAX_TEXT, Resource, ResourceId, reason_problem, redacted_text

RecordEvent = Callable[[ResourceId, str, str, bool], None]
"""A function that records an event of a resource: its id with uid, the reason, the text, and whether it is a warning.

It never waits and never raises.
"""


def ignore_event(_of: ResourceId, _reason: str, _text: str, _warning: bool) -> None:
    """Record nothing."""


def checked_event(resource: object, reason: object, text: object) -> tuple[ResourceId, str, str]:
    """Return the id, the reason and the text of an event. A text that is too long is cut off.

    Raises InvalidArgument if one of them is invalid in an event.
    """
    given: Any = resource
    if not isinstance(resource, Resource | Projected):
        raise InvalidArgument(f"rt.event expects a resource, such as rt.resource(request), not {repr_text(given)}")
    if not given.uid:
        raise InvalidArgument(
            f"rt.event: {given.id} is not stored yet: pass the resource that the cache or a write has returned"
        )
    if (problem := reason_problem(reason)) is not None:
        raise InvalidArgument(f"rt.event: {problem}")
    if not isinstance(text, str):
        raise InvalidArgument(f"rt.event: text must be a string for people, not {repr_text(text)}")
    text = redacted_text(text, [resource])
    # Half of a surrogate pair cannot be stored.
    text = text.encode(errors="replace").decode()
    return given.id, str(reason), text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"
