"""The reconcile context, `Runtime`, with its strong reads and the restrictions on its client."""

from __future__ import annotations

import builtins
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import trio

from headway.base import plain_block, repr_text
from headway.cache import Cache, CachedType, Projected, Projection, note_read
from headway.errors import FailedPrecondition, InvalidArgument, NotDeclared, NotWatched, PermanentFailure
from headway.events import Report
from headway.mapper import Watch
from headway.protobuf import Payload
from headway.reconcile._blocks import Conditions, Finalizer, Outputs, apply_over_cache
from headway.reconcile._events import RecordEvent, checked_event
from headway.reconcile._gate import Gate
from headway.reconcile._lifetimes import Lifetimes
from headway.reconcile._log import bound_logger
from headway.reconcile._request import Request
from headway.reconcile._statuses import NewestStatuses
from headway.resource import Kind, Resource, ResourceId, ResourceType, TypeName, is_form_of, pb, type_name

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from headway.client import Client
    from headway.steps import Inputs, Step

T = TypeVar("T", bound=Payload)

STRONG_READ = "strong read"
"""How the journal names a read of `StrongReads`, followed by "of" and the name of the resource."""


class Fence(Protocol):
    """The fence that a reconcile's writes carry. It belongs to the run, or to some of its keys."""

    @property
    def term(self) -> int:
        """The term of the fence; 0 before it is raised."""
        ...

    @property
    def starting_revision(self) -> int:
        """The revision of the commit that raised the fence at the start; 0 before it."""
        ...


class Runtime:
    """The context of a reconciler, a source or an initialiser.

    Attributes:
        cache: reads the controller's types without waiting. Its results are never older than an earlier read or than a
            write of this controller.
        client: reads and writes the store. By the time a write returns, the cache contains it. If a later run has
            begun, writes raise Fenced and change nothing. If the controller declares ``reads`` or ``writes``, the
            client raises NotDeclared for any other type.
        strong: reads the store itself instead of the cache, which is needed only in exceptional cases.
        controller: the controller's name in its app, after which its finalizer is named.
        report: a function that reports your own events as if they were Headway's. It must not block.
        gate: says whether the controller may reconcile: its ``reason`` is None unless an operator has stopped it. A
            source may go on, or wait with ``await rt.gate.wait_open()``.
        record_event: what `event` calls. The test kits replace it.
    """

    def __init__(
        self,
        controller: str,
        watches: Collection[CachedType[Any]],
        cache: Cache,
        client: Client,
        lifetimes: Lifetimes,
        declared: Declared,
        report: Report,
        add_watches: Callable[[Sequence[object]], Awaitable[None]],
        gate: Gate,
        record_event: RecordEvent,
        fence: Fence,
    ) -> None:
        self.cache = cache
        self.client = client
        self.strong = StrongReads(cache, client, fence)
        self.controller = controller
        self.report = report
        self.gate = gate
        self.record_event = record_event
        self._fence = fence
        self._statuses = NewestStatuses(cache)
        self._watches = watches
        self._lifetimes = lifetimes
        self._declared = declared
        self._add_watches = add_watches

    @property
    def full_name(self) -> str:
        """The app's name and the controller's, such as "staff/teams", as logs, metrics and answers have it."""
        return self._declared.controller

    @property
    def term(self) -> int:
        """A number that is higher in every later run of this controller.

        Pass ``(rt.term, int(resource.version))`` to systems outside the store with each call. They can then reject a
        call of a superseded run, and a late call of this one.
        """
        return self._fence.term

    @property
    def log(self) -> FilteringBoundLogger:
        """``rt.log.info("assigned", desk=7)``: a structlog logger bound to the controller.

        In a reconcile it is also bound to the key and the attempt, and to the trace's id if there is one.
        """
        return bound_logger(self.full_name)

    def resource(self, request: Request[T]) -> Resource[T] | None:
        """Return the cached resource that a request is for, or None if it does not exist.

        If the controller manages a projection, this raises NotWatched. Use ``rt.cache.get(PROJECTION, request.id)``
        instead.
        """
        type = self.cache.manages
        if isinstance(type, Projection):
            raise NotWatched(
                f"controller {self.full_name} manages the projection {type!r}: use rt.cache.get(..., request.id)"
            )
        given: object = request
        if not isinstance(given, Request):
            raise InvalidArgument(
                f"rt.resource() expects the request that the reconciler gets, not {repr_text(given)}: for a name or "
                "an id use rt.cache.get(TYPE, id)"
            )
        resource: Resource[T] | None = self.cache.get(type, request.id)
        return resource

    async def apply(self, resource: Resource[T], *, force: bool = False) -> Resource[T]:
        """Like ``client.apply``, but compare with the cache, so that no call is made if nothing differs.

        ``force`` is for Kubernetes: take over the fields of other managers.

        Raises:
            Conflict: the resource has changed since it was cached. Let the error propagate, so that the key is
                reconciled again.
            NotWatched: the type is not cached.
        """
        return await apply_over_cache(self.cache, self.client, resource, force=force)

    def outputs(self, type: ResourceType[T], *, owner: Resource[Any]) -> Outputs[T]:
        """``async with rt.outputs(ACCOUNT, owner=team) as wanted: await wanted.apply("ada", Account(...))``

        Apply all resources of this type that ``owner`` should have. When the block ends normally, any others that
        ``owner`` still owns are deleted.

        Raises:
            InvalidArgument: ``type`` is not a resource type, or ``owner`` is not a resource.
            NotWatched: the controller does not watch the type.
            NotDeclared: the type is missing from the controller's ``writes``.
        """
        if not isinstance(type, ResourceType):
            raise InvalidArgument(
                f"outputs() expects a resource type, as app.type(...) returns it, not {repr_text(type)}"
            )
        if not any(is_form_of(watched, type) for watched in self._watches):
            raise NotWatched(
                f"controller {self.full_name} doesn't watch {type.name}, so it can't find outputs to prune: "
                f"add it to `watches`, with headway.mappers.owner()"
            )
        self._declared.check_write(type.name)
        return Outputs(self.cache, self.client, type, owner)

    def finalizer(self, resource: Resource[T], name: str = "") -> Finalizer[T]:
        """Add a finalizer to a resource, so that you can undo work before the resource is deleted::

            async with rt.finalizer(team) as guarded:
                if guarded.alive:
                    ...  # do the work
                elif guarded.cleaning_up:
                    ...  # undo it

        The finalizer is stored before the block begins. It is removed when a block that cleans up ends normally. Its
        name defaults to the controller's. Other finalizers are not touched. Without ``async with`` nothing happens.

        Raises:
            NotFound: the resource no longer exists. Let this error and the next propagate, so that the key is
                reconciled again.
            Conflict: other writers keep changing the resource.
            InvalidArgument: the resource is not whole: for example, it belongs to a projection.
        """
        _check_whole("rt.finalizer()", resource)
        return Finalizer(self.client, resource, name or self.controller)

    def conditions(self, resource: Resource[T], key: str = "", *, failure: str | None = None) -> Conditions[T]:
        """``async with rt.conditions(team) as conditions: conditions.set("Ready", True)``

        Update conditions in the resource's status, under ``key`` or by default under the controller's name. When the
        block ends, one call writes them, if they differ from the stored ones. If the block raises, the condition named
        by ``failure`` becomes false, with the error as its message. Without one, only conditions that the block has set
        are written.

        Raises:
            InvalidArgument: the resource is not whole: for example, it belongs to a projection.
        """
        _check_whole("rt.conditions()", resource)
        return Conditions(self.client, self._statuses, resource, key or self.controller, failure)

    def step(self, resource: Resource[Any], name: str, *, inputs: Inputs = ()) -> Step:
        """Surround an effect outside the store that must not be repeated, with its intention and its result::

            async with rt.step(order, "charge-card") as step:
                if not step.done:
                    found = await bank.find(order.name) if step.uncertain else None
                    step.result = found or await bank.charge(order.name)

        They are stored in a status of the resource, and cause no reconcile. ``step.uncertain`` is true if the block was
        begun before and never ended.

        Args:
            resource: the resource that is reconciled, or that of the daemon or timer.
            name: a name for the effect, which other steps of this controller and resource don't have.
            inputs: what the effect depends on: other inputs are another step. Those that were begun last are kept.

        Raises:
            InvalidArgument: the name or an input is invalid, or the resource is another one or not whole.
            FailedPrecondition: the resource has too many steps, or every process reconciles every key.
        """
        from headway.steps import Step

        _check_whole("rt.step()", resource)
        if self._declared.shares_keys:
            raise FailedPrecondition(
                f"{self.full_name} has placement='every_process', so each process would make the effect of step "
                f"{name!r}: record it in a controller with placement='singleton' or headway.sharded(...)"
            )
        return Step(self, self._statuses, resource, name, inputs)

    async def once(
        self,
        resource: Resource[Any],
        name: str,
        effect: Callable[[str], Awaitable[str | None]],
        *,
        inputs: Inputs = (),
    ) -> str:
        """``charge = await rt.once(order, "charge-card", lambda key: bank.charge(order.data.amount, key=key))``

        Call ``effect`` in a `step`, and return its result. If the step is done, return the stored result. The outside
        must carry out each key once: after a crash, ``effect`` is called again with the same key.
        """
        async with self.step(resource, name, inputs=inputs) as step:
            if not step.done:
                step.result = await _awaited(name, effect(step.key)) or ""
        return step.result

    def event(self, resource: Resource[Any] | Projected[Any], reason: str, text: str, *, warning: bool = False) -> None:
        """``rt.event(team, "Deployed", "3 accounts were created")``: record what users of a resource should read.

        The event is stored soon, as an ``event.v1.Event`` that the resource owns. ``headway events`` shows it. Equal
        events are stored as one, with a count. The last 20 events of a resource are kept.

        This method never waits. An event that cannot be stored is counted, and does not fail the reconcile. Events do
        not trigger reconciles.

        Args:
            resource: a stored resource.
            reason: what happened, in one word.
            text: what happened, in a sentence for people. It is cut off after 1,000 characters.
            warning: True if an operator should look at it.

        Raises:
            InvalidArgument: the resource is not stored, or the reason is not a word.
        """
        id, reason, text = checked_event(resource, reason, text)
        self.record_event(id, reason, text, warning)

    @plain_block
    def alive(self, resource: Resource[Any] | Projected[Any]) -> Iterator[trio.CancelScope]:
        """``with rt.alive(team) as scope: ...`` is canceled as soon as the team's deletion begins.

        It is also canceled if the team no longer exists, or if another resource has replaced it under the same name. To
        find out, check ``scope.cancelled_caught`` after the block.

        Raises:
            NotWatched: the controller neither manages nor watches the type.
        """
        with self._lifetimes.scope(resource) as scope:
            yield scope

    async def watch(self, *watches: Watch[Any]) -> None:
        """``await rt.watch(headway.watch(ACCOUNT, team_of))``: watch a type that is known only at run time.

        Return at once if the controller has these watches. Otherwise wait until the new types are primed, add the
        watches, and end the run: this call is canceled, and so are all tasks of the run. The next run has the watches,
        and reconciles every key, the pending ones first. So the code after this call can read the types in
        ``rt.cache``.

        The watches last as long as this process runs the controller. Call this method in each reconcile that needs
        them, or in the initialiser.

        Raises:
            DeclarationError: a type does not belong to the app, or is watched with another mapper or predicate, or the
                runs of this controller have already added 100 watches.
            NotDeclared: the controller declares its ``reads``, and they lack a type.
            PermissionDenied: this process may not watch a type.
            PrimingStalled: nothing of a type has arrived for ``stall_limit`` seconds.
            Closed: the run has ended, or is ending and the caller is not one of its tasks.
        """
        await self._add_watches(watches)


def _check_whole(call: str, given: object) -> None:
    """Raise InvalidArgument for anything but a whole resource."""
    if isinstance(given, Projected):
        raise InvalidArgument(
            f"{call} expects a whole resource, got {given!r}: read it with `await rt.strong.read(TYPE, request.id)`"
        )
    if not isinstance(given, Resource):
        raise InvalidArgument(f"{call} expects a resource, as rt.resource(request) returns it, not {repr_text(given)}")


class StrongReads:
    """Reads of the store that bypass the cache. Available as ``Runtime.strong``.

    Use them to read a type that the controller does not watch, or to see a change before it reaches the cache. A
    result is never older than the start of the run, or than anything that the cache has shown. If the server is behind
    that, Unavailable is raised, and in a reconcile the key is retried. A result may however be newer than the cache, so
    a later read of the cache may show an older state. Each read costs a call.
    """

    def __init__(self, cache: Cache, client: Client, fence: Fence) -> None:
        self._cache = cache
        self._client = client
        self._fence = fence

    async def get(
        self, type: ResourceType[T], id: str | ResourceId, *, partition: str = "", namespace: str = ""
    ) -> Resource[T] | None:
        """Return a resource or None, like `Client.get`."""
        note_read(type.name, f"{STRONG_READ} of {id if isinstance(id, str) else id.name}")
        return await self._client.get(type, id, partition=partition, namespace=namespace, min_revision=self._at_least)

    async def read(
        self, type: ResourceType[T], id: str | ResourceId, *, partition: str = "", namespace: str = ""
    ) -> Resource[T]:
        """Return a resource, or raise NotFound, like `Client.read`."""
        note_read(type.name, f"{STRONG_READ} of {id if isinstance(id, str) else id.name}")
        return await self._client.read(type, id, partition=partition, namespace=namespace, min_revision=self._at_least)

    async def list(
        self,
        type: ResourceType[T],
        *,
        partition: str = "*",
        namespace: str = "*",
        name_prefix: str = "",
        filter: str = "",
    ) -> builtins.list[Resource[T]]:
        """Return the resources of a type, like `Client.list`."""
        note_read(type.name, "strong list")
        return await self._client.list(
            type,
            partition=partition,
            namespace=namespace,
            name_prefix=name_prefix,
            filter=filter,
            min_revision=self._at_least,
        )

    @property
    def _at_least(self) -> int:
        return max(self._fence.starting_revision, self._cache.newest)


async def _awaited(name: str, answer: Awaitable[str | None]) -> str | None:
    if not isinstance(answer, Awaitable):
        raise PermanentFailure(
            f"step {name!r}: the effect returned {repr_text(answer)}: it must be an async function, such as "
            "`lambda key: bank.charge(5, key)`"
        )
    return await answer


class Declared:
    """An implementation of `client.Allow` for a controller. It allows everything that no declaration restricts.

    Attributes:
        controller: the full name of the controller.
        shares_keys: True if every process reconciles every key.
    """

    def __init__(
        self,
        controller: str,
        cached: Iterable[CachedType[Any]],
        reads: Iterable[ResourceType[Any]] | None,
        writes: Iterable[ResourceType[Any]] | None,
        *,
        shares_keys: bool = False,
    ) -> None:
        self.controller = controller
        self.shares_keys = shares_keys
        self._writes = None if writes is None else frozenset(type.kind for type in writes)
        self._reads: frozenset[Kind] | None = None
        if reads is not None:
            self._reads = frozenset(type.kind for type in (*reads, *cached, *(writes or ())))

    def __call__(self, request: Any) -> None:
        """Raise NotDeclared for a call that the controller has not declared."""
        if self._writes is None and self._reads is None:
            return
        if isinstance(request, pb.WriteRequest | pb.MutateAndValidateRequest):
            assert request.resource is not None
            assert request.resource.id is not None
            self.check_write(type_name(request.resource.id.type))
        elif isinstance(request, pb.WriteStatusRequest | pb.DeleteRequest):
            assert request.id is not None
            self.check_write(type_name(request.id.type))
        elif self._reads is not None:
            if isinstance(request, pb.ListByOwnerRequest):
                raise NotDeclared(
                    f"controller {self.controller} declares its `reads`, and list_by_owner reads every type: "
                    "list each type by itself, or leave `reads` out"
                )
            by_id = isinstance(request, pb.ReadRequest) and request.id is not None
            type = type_name(request.id.type if by_id else request.type)
            if type.unversioned not in self._reads:
                raise self._not("reads", type)

    def check_write(self, type: TypeName) -> None:
        """Raise NotDeclared for a type that the controller's ``writes`` lack."""
        if self._writes is not None and type.unversioned not in self._writes:
            raise self._not("writes", type)

    def _not(self, declaration: str, type: TypeName) -> NotDeclared:
        return NotDeclared(
            f"controller {self.controller} doesn't declare that it {declaration} {type}: "
            f"add the type, @app.controller(..., {declaration}=[..., {type.kind.upper()}])"
        )
