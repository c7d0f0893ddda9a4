"""Conditions: statements of a reconcile about its resource, written at most once and only if they have changed."""

from __future__ import annotations

from types import TracebackType
from typing import Generic, TypeVar

from headway._safe_text import error_text
from headway.client import Client
from headway.errors import HeadwayError, InvalidArgument, NotFound
from headway.protobuf import Payload
from headway.resource import Condition, ConditionState, Resource, ResourceId, pb

T = TypeVar("T", bound=Payload)

_STATES = {True: ConditionState.TRUE, False: ConditionState.FALSE, None: ConditionState.UNKNOWN}


class Conditions(Generic[T]):
    """The conditions that one writer keeps on one resource. Created by `Runtime.conditions`.

    They begin with the stored values. When the block ends, one call writes them, but only if they differ from the
    stored ones or those describe another generation. They are also written if the block raises. In that case the
    condition named by ``failure``, if any, becomes false with the error as its message. A canceled block writes
    nothing. If the resource no longer exists, the conditions are discarded without an error.
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
        """Set a condition. ``state`` is True, False, or None for unknown.

        Args:
            reason: a word for programs.
            message: a sentence for people. A message that is different every time causes a commit every time.
            resource: another resource that is the cause of this condition.
        """
        named: object = type
        if not isinstance(named, str) or not named:
            raise InvalidArgument(f"a condition needs a type, not {named!r:.120}: conditions.set('Ready', True)")
        # With `in` alone, a list would raise for its missing hash, and 1 would count as True.
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
        """Remove a condition."""
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
                # The block's own exception takes precedence.
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
