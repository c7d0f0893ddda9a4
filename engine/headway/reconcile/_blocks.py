"""The blocks that a reconciler opens: outputs, finalizers and conditions."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from headway.base import AsyncBlock, all_are, bounded, leaves, messages, repr_text
from headway.cache import Cache, state_of
from headway.errors import Conflict, HeadwayError, InvalidArgument, NotFound, PermanentFailure
from headway.protobuf import Payload, encode, equal
from headway.reconcile._block import Block
from headway.reconcile._request import RECONCILING
from headway.reconcile._secret_reads import read_secrets
from headway.reconcile._statuses import NewestStatuses
from headway.resource import (
    DELETION_TIMESTAMP,
    FINALIZERS,
    Condition,
    ConditionState,
    Key,
    Resource,
    ResourceId,
    ResourceType,
    check_fields,
    look_at,
    pb,
    redacted_text,
    same_owner,
    shared_message,
    tenancy_within,
    unicode_problem,
)

if TYPE_CHECKING:
    from headway.client import Client

T = TypeVar("T", bound=Payload)


async def apply_over_cache(cache: Cache, client: Client, wanted: Resource[T], *, force: bool = False) -> Resource[T]:
    """Apply a resource over its cached state. One that is not in the cache of a scope may still exist."""
    if not isinstance(wanted, Resource):
        raise InvalidArgument(f"apply() expects a resource, as made by TYPE.new(name, data), not {repr_text(wanted)}")
    current = cache.get(wanted.type, wanted.id)
    if force or (current is None and cache.may_lack(wanted.id)):
        return await client.apply(wanted, force=force)
    return await client.apply_over(current, wanted)


class Outputs(Block, Generic[T]):
    """A block that applies the resources that an owner should have, and prunes the rest. Created by `Runtime.outputs`.

    When the block ends normally, it deletes the owner's resources of this type that the block did not apply.
    """

    _usage = "rt.outputs(TYPE, owner=resource) as wanted"

    def __init__(
        self,
        cache: Cache,
        client: Client,
        type: ResourceType[T],
        owner: Resource[Any],
    ) -> None:
        if not isinstance(owner, Resource):
            raise InvalidArgument(
                f"outputs(): owner must be a resource, not {repr_text(owner)}: "
                f"call it only after rt.cache.get(...) has found the owner"
            )
        self._cache = cache
        self._client = client
        self._type = type
        self._owner = owner
        self._owner_id, self._owner_message = owner.id, owner.id.message()
        self._wanted: set[Key] = set()
        # What is applied under each key, unless its call has failed: the payload, in its resource, and the metadata.
        self._applied: dict[Key, tuple[Resource[T], dict[str, str]]] = {}
        # The names of the calls of `apply` that have not ended.
        self._begun: list[str] = []
        self._pruned = type.name, owner.id
        super().__init__()

    async def __aenter__(self) -> Outputs[T]:
        self._entered = True
        opened = self._opened()
        if self._pruned in opened:
            raise InvalidArgument(
                f"second block of outputs({self._type.name}, owner={self._owner.id}) in one reconcile: each would "
                "delete what the other has applied. Apply all resources of this type in one block"
            )
        opened.add(self._pruned)
        self._is_open = True
        return self

    def _opened(self) -> set[object]:
        """Return the types and owners of the blocks that this reconcile has opened and that have not raised.

        Outside of a reconcile, as in a daemon, one block may follow another: there the last one is the latest decision.
        """
        reconciling = RECONCILING.get()
        return set() if reconciling is None else reconciling.outputs()

    # It is no async function, so that the block knows of a call that was never awaited.
    def apply(
        self,
        name: str,
        data: T,
        *,
        partition: str = "",
        namespace: str = "",
        metadata: Mapping[str, str] | None = None,
        force: bool = False,
    ) -> Coroutine[Any, Any, Resource[T]]:
        """Create or update a resource that belongs to the block's owner. Write nothing if it is already up to date.

        If the type has a partition or a namespace, they default to the owner's. ``force`` is for Kubernetes: take over
        the fields of other managers.

        Raises:
            Conflict: the resource has changed since it was cached. Let the error propagate, so that the key is
                reconciled again.
            InvalidArgument: the resource belongs to another owner, its partition or namespace is invalid, or the block
                has already applied it with other contents.
        """
        self._check_open("apply()")
        id, type = self._owner_id, self._type
        within = tenancy_within(type.scope, (partition, namespace), (id.partition, id.namespace))
        units = partition or within[0], namespace or within[1]
        cached = self._unchanged(name, data, *units, metadata)
        wanted = cached or type.new(name, data, partition=units[0], namespace=units[1], owner=id, metadata=metadata)
        key = wanted.id.key if cached is None else (*units, name)
        self._check_alike(key, wanted, dict(metadata or {}))
        self._begun.append(name)
        return self._apply(wanted, key, unchanged=cached is not None, force=force)

    def _unchanged(
        self, name: str, data: T, partition: str, namespace: str, metadata: Mapping[str, str] | None
    ) -> Resource[T] | None:
        """Return the cached resource if it is as it should be. Most outputs are, so this makes no new messages."""
        if not (type(name) is type(partition) is type(namespace) is str) or data is None:
            return None
        if self._type.foreign:
            return None
        cached = self._cache.get(self._type, ResourceId(self._type.name, name, partition, namespace))
        if cached is None or not isinstance(metadata, Mapping | None):
            return None
        same = _holds_output(self._type, shared_message(cached), data, self._owner_message, metadata or {})
        return cached if same else None

    def _check_alike(self, key: Key, wanted: Resource[T], metadata: dict[str, str]) -> None:
        """Raise InvalidArgument if the block has applied this resource with other contents."""
        earlier, of = self._applied.setdefault(key, (wanted, metadata))
        if earlier is wanted and of is metadata:
            return
        same = shared_message(earlier).data == shared_message(wanted).data
        # Equal messages may differ in their bytes, for example in the order of a map.
        if of != metadata or not (same or equal(earlier.original().data, wanted.original().data)):
            raise InvalidArgument(
                f"second apply() of {wanted.id} in one block of outputs(), with other contents: each reconcile would "
                "store both in turn, and cause the next one. Apply each output once: if several sources want one "
                "name, merge what they want before, or give each a name of its own, such as f'{owner.name}-{source}'"
            )

    async def _apply(self, wanted: Resource[T], key: Key, *, unchanged: bool, force: bool) -> Resource[T]:
        self._wanted.add(key)
        try:
            if unchanged:
                if state_of(self._cache, self._type, key) is shared_message(wanted):
                    return wanted
                # It has changed since the call.
                own = {
                    name: text for name, text in wanted.metadata.items() if name not in (FINALIZERS, DELETION_TIMESTAMP)
                }
                of = {"partition": key[0], "namespace": key[1]}
                wanted = self._type.new(key[2], wanted.data, **of, owner=self._owner_id, metadata=own)
            return await apply_over_cache(self._cache, self._client, wanted, force=force)
        except BaseException:
            # The block may apply something else instead.
            self._applied.pop(key, None)
            raise
        finally:
            self._begun.remove(key[2])

    def keep(self, resource: Resource[T]) -> None:
        """Exclude a resource from pruning, although the block did not apply it."""
        self._check_open("keep()")
        given: object = resource
        if not isinstance(given, Resource):
            raise InvalidArgument(f"keep() expects a resource, as rt.cache.get(...) returns it, not {repr_text(given)}")
        self._wanted.add(resource.id.key)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_open = False
        # A block that raises may be tried again.
        self._opened().discard(self._pruned)
        if error is not None:
            return
        if self._begun:
            raise InvalidArgument(
                f"apply({repr_text(self._begun[0])}) of the block of "
                f"outputs({self._type.name}, owner={self._owner.id}) has not ended: "
                "write `await wanted.apply(...)`, or run it in a nursery inside the block"
            )
        # The cache includes every write of this block (C5), so a resource that was just created is not pruned.
        for resource in self._cache.owned(self._type, self._owner):
            if resource.id.key not in self._wanted and not resource.is_deleting:
                # Check uid and version: a resource that has changed since then needs a new decision.
                await self._client.delete(resource, version=shared_message(resource).version)
        self._opened().add(self._pruned)


_ATTEMPTS = 5


class Finalizer(AsyncBlock, Generic[T]):
    """A block that adds a finalizer to a resource, and removes it after the clean-up. Created by `Runtime.finalizer`.

    Attributes:
        resource: the last stored state. In the block it has the finalizer, unless both other attributes are false.
        alive: True if the resource is not being deleted. The finalizer is already stored, so you can do work that must
            be undone later.
        cleaning_up: True if the resource is being deleted and waits for this finalizer. Undo the work here. When the
            block ends normally, the finalizer is removed, and the resource is deleted unless it has other finalizers.

    ``alive`` and ``cleaning_up`` are both false if the clean-up is done and the resource only waits for another
    finalizer.
    """

    _usage = "rt.finalizer(resource) as guarded"

    def __init__(self, client: Client, resource: Resource[T], name: str) -> None:
        self._client = client
        self._name = name
        self.resource = resource
        self.alive = False
        self.cleaning_up = False
        super().__init__()

    async def __aenter__(self) -> Finalizer[T]:
        self._entered = True
        for _ in range(_ATTEMPTS):
            resource = self.resource
            if resource.is_deleting:
                self.cleaning_up = self._name in resource.finalizers
                if not resource.finalizers:
                    # The writer that removed the last finalizer was stopped before it could delete the resource.
                    # Nothing else will.
                    await self._client.delete(resource)
                return self
            if self._name in resource.finalizers:
                self.alive = True
                return self
            try:
                self.resource = await self._client.write(self._with(resource, added=True))
            except Conflict:
                self.resource = await self._again()
        raise Conflict(f"{self.resource.id} was changed repeatedly while finalizer {self._name!r} was being added")

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None or not self.cleaning_up:
            return
        for _ in range(_ATTEMPTS):
            try:
                if self._name in self.resource.finalizers:
                    self.resource = await self._client.write(self._with(self.resource, added=False))
                # This delete has no effect while another finalizer holds the resource.
                await self._client.delete(self.resource)
            except Conflict:
                try:
                    self.resource = await self._again()
                except NotFound:
                    return
            else:
                return
        raise Conflict(f"{self.resource.id} was changed repeatedly while finalizer {self._name!r} was being removed")

    def _with(self, resource: Resource[T], *, added: bool) -> Resource[T]:
        """Return the stored resource with the finalizer added or removed. Its version protects the other finalizers."""
        wanted = resource.original()
        name = {self._name}
        wanted.finalizers = wanted.finalizers | name if added else wanted.finalizers - name
        return wanted

    async def _again(self) -> Resource[T]:
        """Read this incarnation again. Raises NotFound if it no longer exists."""
        return await self._client.read(self.resource.type, self.resource.id)


_LONGEST_FAILURE = 16_384
"""The number of characters of an error that are kept in a condition: a quarter of what a status may have."""

_STATES = {True: ConditionState.TRUE, False: ConditionState.FALSE, None: ConditionState.UNKNOWN}


class Conditions(Block, Generic[T]):
    """A block that updates a writer's conditions on a resource. Created by `Runtime.conditions`.

    When the block ends, it changes the stored conditions in one call, as `set` and `unset` have said. It starts from
    the newest ones that the run knows, which may be newer than the resource: an earlier block may have written them.
    It skips the write if nothing has changed and the stored conditions already describe the current generation.

    If the block raises, the conditions that it has set are still written. You can name a ``failure`` condition, which
    then becomes false with the message of the error. If the block raises and has set nothing, or if it is canceled,
    nothing is written. If the resource no longer exists, the conditions are discarded without an error.
    """

    _usage = "rt.conditions(resource) as conditions"

    def __init__(
        self, client: Client, statuses: NewestStatuses, resource: Resource[T], key: str, failure: str | None
    ) -> None:
        self._client = client
        self._statuses = statuses
        self._resource = resource
        self._key = key
        self._failure = failure
        # What the block changes, by type; None removes the condition.
        self._changes: dict[str, Condition | None] = {}
        super().__init__()

    def __contains__(self, type: str) -> bool:
        # The answer depends on the stored status, like a look at the resource's own.
        look_at(self._resource)
        return type in self._wanted(self._statuses.get(self._resource, self._key))

    def _wanted(self, stored: pb.Status | None) -> dict[str, Condition]:
        """Return the stored conditions with the changes of the block."""
        wanted = {each.type: each for each in (stored.conditions if stored is not None else ())}
        for type, condition in self._changes.items():
            if condition is None:
                wanted.pop(type, None)
            else:
                wanted[type] = condition
        return wanted

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
            raise InvalidArgument(f"a condition needs a type, not {repr_text(named)}: conditions.set('Ready', True)")
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
                    f"condition {type!r}: {field} {repr_text(text)} must be a text; leave it out for none"
                )
            if problem := unicode_problem(field, text):
                raise InvalidArgument(f"condition {type!r}: {problem}")
        other: object = resource.id if isinstance(resource, Resource) else resource
        if other is not None and not isinstance(other, ResourceId):
            raise InvalidArgument(f"condition {type!r}: resource {repr_text(other)} must be a resource or its id")
        self._check_open("set()")
        self._changes[type] = Condition(
            type=type,
            state=given,
            reason=reason,
            message=message,
            resource=None if other is None else other.reference(),
        )

    def unset(self, type: str) -> None:
        """Remove a condition."""
        self._check_open("unset()")
        self._changes[type] = None

    async def __aenter__(self) -> Conditions[T]:
        self._entered = True
        self._is_open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self._end(error)
        finally:
            self._is_open = False

    async def _end(self, error: BaseException | None) -> None:
        if error is None:
            await self._write()
        elif isinstance(error, Exception):
            if self._failure is not None:
                text = redacted_text(messages(error), [self._resource, *read_secrets()])
                # A nursery raises a group, even of one error. The order of its errors is random, and each change of
                # the stored reason would be a commit.
                reason = min(type(each).__name__ for each in leaves(error))
                self.set(self._failure, False, bounded(text, _LONGEST_FAILURE), reason=reason)
            if not self._changes:
                # A write would say that the old conditions hold for a generation that the block has not handled.
                return
            try:
                await self._write()
            except HeadwayError as unwritten:
                if all_are(error, PermanentFailure):
                    # Otherwise the key would be dropped, and nobody would ever see why.
                    raise unwritten from error
                # The block's own exception takes precedence.
                error.add_note(f"its conditions could not be written: {unwritten}")

    async def _write(self) -> None:
        # Looked up only now, because another block may have ended within this one.
        stored = self._statuses.get(self._resource, self._key)
        wanted = list(self._wanted(stored).values())
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
        self._statuses.note(written, self._key)


def _holds_output(
    type: ResourceType[T], stored: pb.Resource, data: T, owner: pb.Id, metadata: Mapping[str, str]
) -> bool:
    """Return True if applying this payload and metadata would change nothing, without a copy of any message.

    It decides the usual case of `headway.client.keep_stored`, and returns False in doubt.

    Raises:
        InvalidArgument, PayloadError: the payload is invalid, as for `ResourceType.new`.
    """
    type.check_payload(data)
    check_fields(data)
    there, kept = stored.data, stored.metadata
    return (
        there is not None
        and there.type_url == type.type_url
        and there.value == encode(data)
        and same_owner(owner, stored.owner)
        and (metadata or {})
        == {key: kept[key] for key in kept if key not in (FINALIZERS, DELETION_TIMESTAMP) or key in metadata}
    )
