"""Conditions: what a reconcile says of its resource, written once and only if it is something new."""

from __future__ import annotations

from types import TracebackType
from typing import Generic, TypeVar

from headway._safe_text import error_text
from headway.client import Client
from headway.errors import HeadwayError, InvalidArgument, NotFound
from headway.resource import Condition, ConditionState, Payload, Resource, ResourceId, pb

T = TypeVar("T", bound=Payload)

_STATES = {True: ConditionState.TRUE, False: ConditionState.FALSE, None: ConditionState.UNKNOWN}


class Conditions(Generic[T]):
    """The conditions that one writer keeps of one resource. Made by `Runtime.conditions`.

    They begin as they are stored. When the block ends they are written, in one call and only if they differ from what
    was stored, or were of another generation. So are they when the block raises; then the condition that was named as
    ``failure``, if any, is false, and says why. A block that is cancelled writes nothing. When the resource is gone by
    then, nobody needs them, and nothing is raised.
    """

    def __init__(self, client: Client, resource: Resource[T], key: str, failure: str | None) -> None:
        self._client = client
        self._resource = resource
        self._key = key
        self._failure = failure
        self._stored = resource.original().status.get(key)
        self._conditions = {each.type: each for each in (self._stored.conditions if self._stored else ())}

    def __contains__(self, type: str) -> bool:
        return type in self._conditions

    def set(
        self,
        type: str,
        state: bool | ConditionState | None,
        message: str = "",
        *,
        reason: str = "",
        resource: ResourceId | Resource[T] | None = None,
    ) -> None:
        """Say that a condition is so. ``state`` is True, False, or None for unknown.

        Args:
            reason: a word for programs.
            message: a sentence for people. One that always differs makes a commit each time.
            resource: the other resource that it is because of.
        """
        named: object = type
        if not isinstance(named, str) or not named:
            raise InvalidArgument(f"a condition needs a type, not {named!r:.120}: conditions.set('Ready', True)")
        # By `in` alone, a list would be asked for its hash, and 1 would be True.
        given = state if isinstance(state, ConditionState) else None
        if state is None or isinstance(state, bool):
            given = _STATES[state]
        if given is None:
            raise InvalidArgument(f"condition {type!r}: state {state!r} must be True, False, None or a ConditionState")
        words: tuple[tuple[str, object], ...] = (("message", message), ("reason", reason))
        for field, text in words:
            if not isinstance(text, str):
                raise InvalidArgument(
                    f"condition {type!r}: {field} {text!r:.120} must be a text; leave it out for none"
                )
        other: object = resource.id if isinstance(resource, Resource) else resource
        if other is not None and not isinstance(other, ResourceId):
            raise InvalidArgument(f"condition {type!r}: resource {other!r:.120} must be a resource or its id")
        self._conditions[type] = Condition(
            type=type,
            state=given,
            reason=reason,
            message=message,
            resource=None if other is None else other.reference(),
        )

    def unset(self, type: str) -> None:
        """Say nothing of a condition any more."""
        self._conditions.pop(type, None)

    async def __aenter__(self) -> Conditions[T]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            await self._write()
        elif isinstance(error, Exception):
            if self._failure is not None:
                self.set(self._failure, False, error_text(error), reason=type(error).__name__)
            try:
                await self._write()
            except HeadwayError as unwritten:
                # What the block has raised is what counts.
                error.add_note(f"its conditions could not be written: {unwritten}")

    async def _write(self) -> None:
        wanted = list(self._conditions.values())
        stored = self._stored
        if not wanted and stored is None:
            return
        if (
            stored is not None
            and stored.conditions == wanted
            and stored.observed_generation == self._resource.generation
        ):
            return
        try:
            written = await self._client.write_status(self._resource, self._key, wanted)
        except NotFound:
            return
        self._stored = written.status.get(self._key, pb.Status())
