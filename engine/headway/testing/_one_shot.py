"""A controller whose reconciler and mappers a test calls by hand.

The store, the service, the cache, the mapping and the fenced client are the ones of production. Only the
workers are missing: nothing is reconciled except by `OneShot.reconcile`. So a reconcile sees exactly what it would see
in production, its own writes included.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, Literal, NamedTuple, TypeVar

import trio
from typing_extensions import override

from headway.api import PassingChannel
from headway.base import async_block
from headway.client import Client
from headway.controller import App, Definition
from headway.engine import Engine
from headway.errors import Closed, DeclarationError, HeadwayError, InvalidArgument, InvalidResult
from headway.events import MappingFailed, Report, RunEnded, RunStarted, receives_successes
from headway.mapper import ask, ids_of
from headway.observe import log_report
from headway.protobuf import Payload, copy_message
from headway.reconcile import Reason, Request, RequeueAfter, Runtime, reconciling
from headway.resource import Resource, ResourceId, ResourceType, did_you_mean, is_form_of, resource_id
from headway.rpc import Channel, Metadata
from headway.storage import Backend
from headway.testing._engine import open_engine

T = TypeVar("T", bound=Payload)

What = Literal["write", "status", "delete"]
_WRITES: dict[str, What] = {"Write": "write", "WriteStatus": "status", "Delete": "delete"}


class RecordedEvent(NamedTuple):
    """An event of ``rt.event``."""

    of: ResourceId
    reason: str
    text: str
    warning: bool


class Written(NamedTuple):
    """A write sent by a controller.

    Attributes:
        what: ``write``, ``status`` or ``delete``.
        id: the id of the resource, as sent.
        request: the message, as sent.
        refused: the error if it was rejected; None if it was done.
    """

    what: What
    id: ResourceId
    request: Any
    refused: HeadwayError | None


@dataclasses.dataclass(frozen=True, slots=True)
class Shot:
    """The result of one reconcile.

    Attributes:
        requeue_after: the requested seconds until the next run; None if none was requested.
        written: the writes that it sent, in order.
        events: the events that it recorded, in order. They are not stored.
    """

    requeue_after: float | None
    written: tuple[Written, ...]
    events: tuple[RecordedEvent, ...] = ()


class OneShot:
    """A controller without workers. Create one with `one_shot`.

    Attributes:
        client: reads and writes without being a controller. Use it to prepare the test and to look at the outcome.
        runtime: the reconcile context, as the reconciler gets it.
    """

    def __init__(
        self,
        engine: Engine,
        definition: Definition,
        fence_name: str,
        recorder: _Recorder,
        stub: _StubReconciler,
        waiter: _IdleWaiter,
    ) -> None:
        self.client: Client = engine.client
        self._engine = engine
        self._definition = definition
        self._supervisor = next(each for each in engine.controllers.values() if each.fence_name == fence_name)
        self._recorder = recorder
        self._stub = stub
        self._waiter = waiter

    @property
    def runtime(self) -> Runtime:
        """The reconcile context, as the reconciler gets it."""
        assert self._stub.runtime is not None
        return self._stub.runtime

    async def given(self, *resources: Resource[Any]) -> list[Resource[Any]]:
        """Apply resources and wait until the controller's cache has them. Returns them as stored."""
        written = [await self.client.apply(resource) for resource in resources]
        await self._waiter.wait(self._engine)
        return written

    async def requests(self) -> list[Request]:
        """Return the requests that the controller would have got since the last call, in order, with reasons."""
        await self._waiter.wait(self._engine)
        requests, self._stub.requests = self._stub.requests, []
        return requests

    async def reconcile(
        self,
        id: str | ResourceId | Resource[Any],
        *,
        reasons: tuple[Reason, ...] = (Reason("by hand"),),
        attempt: int = 1,
    ) -> Shot:
        """Call the reconciler once for a resource of the managed type. The resource need not exist.

        If the reconciler adds a watch (`Runtime.watch`), it is called again in the next run, as in production.

        The cache is brought up to date with the store first. An exception of the reconciler propagates.

        Raises:
            InvalidArgument: if the id is of another type, or ``attempt`` is below 1.
            InvalidResult: if the reconciler returns something other than None or `RequeueAfter`.
            trio.TooSlowError: if the reconciler runs past its controller's deadline.
        """
        await self._waiter.wait(self._engine)
        definition = self._definition
        wanted = self._wanted(id)
        if attempt < 1:
            raise InvalidArgument(f"reconcile: attempt is {attempt}; it must be >= 1")
        request = Request(wanted.without_uid(), reasons, attempt)
        events = list[RecordedEvent]()
        with reconciling(wanted.key), self._recorder.recorded() as written, trio.fail_after(definition.deadline):
            result: object = await self._call(request, events)
        if result is not None and not isinstance(result, RequeueAfter):
            raise InvalidResult(
                f"{definition.full_name} returned {result!r}: return None, or headway.requeue_after(seconds)"
            )
        return Shot(None if result is None else result.seconds, tuple(written), tuple(events))

    async def _call(self, request: Request, events: list[RecordedEvent]) -> object:
        """Call the reconciler, and call it again in the next run whenever it has added a watch."""
        while True:
            run = self._supervisor.run
            runtime = self.runtime if run is None else run.runtime_for(request.id.key)
            runtime.record_event = lambda *event: events.append(RecordedEvent(*event))
            try:
                return await self._definition.reconcile(runtime, request)
            except Closed:
                if run is None or not run.ends:
                    raise
            await self._waiter.wait(self._engine)

    def _wanted(self, given: object) -> ResourceId:
        manages = self._definition.manages
        id = manages.id(given) if isinstance(given, str) else given.id if isinstance(given, Resource) else given
        if not isinstance(id, ResourceId) or id.type.unversioned != manages.kind:
            raise InvalidArgument(
                f"reconcile: {given!r} is not a {manages.name}: pass its name, its id or the resource"
            )
        return id

    async def mapped(
        self, type: ResourceType[T], *, old: Resource[T] | None = None, new: Resource[T] | None = None
    ) -> list[ResourceId]:
        """Call the mapper of a watched type for a change, and return the ids of the managed resources, once each.

        Pass the old state, the new one or both. Predicates are not applied. An exception of the mapper propagates.

        Raises:
            DeclarationError: if the controller does not watch the type, or the mapper returns something that it must
                not.
        """
        await self._waiter.wait(self._engine)
        run = self._supervisor.run
        watches = (self._definition if run is None else run.definition).watches.values()
        watch = next((each for each in watches if is_form_of(each.type, type)), None)
        if watch is None:
            raise DeclarationError(f"controller {self._definition.full_name} doesn't watch {type.name}")
        found: dict[ResourceId, None] = {}
        for answer in ask(watch.mapper, old, new, self.runtime.cache):
            keys, problems = ids_of(answer, self._definition.manages)
            if problems:
                raise DeclarationError("; ".join(problems))
            managed = self._definition.manages
            found.update(
                {
                    managed.id(name, partition=partition, namespace=namespace): None
                    for partition, namespace, name in keys
                }
            )
        return list(found)


@async_block
async def one_shot(
    app: App,
    controller: str,
    *,
    store: str | AbstractAsyncContextManager[Backend] = "memory:",
    wrap_channel: Callable[[Channel], Channel] | None = None,
    report: Report | None = None,
) -> AsyncIterator[OneShot]:
    """Open one controller without workers: ``async with headway.testing.one_shot(app, "accounts") as shot: ...``

    Use it to call a reconciler and its mappers directly. The app's other controllers and the controller's sources do
    not run.

    Args:
        app: the app with the types.
        controller: the name of the controller.
        store: as for `headway.open_engine`.
        wrap_channel: puts a channel between the controller and the store, such as a `ScriptedChannel`'s ``over``.
        report: called with what the engine reports; by default it is logged, as by `headway.open_engine`.

    A function that mutates its argument (a mapper, a predicate, the function of an index or a projection) fails with
    IsolationBroken, at the end of the block at the latest. An exception of the initializer propagates. An exception of
    a mapper propagates from whatever waits for the change to be mapped.

    Raises:
        DeclarationError: if the app has no such controller, or the controller is a daemon, which has no calls to make.
    """
    definition = app.controllers.get(controller)
    if definition is None:
        hint = did_you_mean(controller, app.controllers)
        raise DeclarationError(f"app {app.name!r} has no controller {controller!r}{hint}")
    if definition.declared_as == "daemon":
        raise DeclarationError(
            f"one_shot: {controller} is a daemon, so it cannot be called once: test it in headway.open_engine"
        )
    stub, recorder = _StubReconciler(definition), _Recorder()
    alone = App(app.name)
    alone.registry = app.registry
    alone.controllers = {
        controller: dataclasses.replace(
            definition, reconcile=stub.reconcile, on_start=stub.on_start, sources={}, min_interval=0.0
        )
    }

    def over(channel: Channel) -> Channel:
        return recorder.over(channel if wrap_channel is None else wrap_channel(channel))

    waiter = _IdleWaiter(definition.full_name, log_report() if report is None else report)
    async with open_engine(store, alone, report=waiter, wrap_channel=over, check_isolation=True) as engine:
        await waiter.wait(engine)
        # Drop the requests for what was stored before: the test has not caused them.
        stub.requests.clear()
        yield OneShot(engine, definition, f"{app.name}/{controller}", recorder, stub, waiter)


class _IdleWaiter:
    """A report that ends the wait if the controller cannot become idle.

    Production retries forever; a test gets the error.
    """

    def __init__(self, controller: str, report: Report) -> None:
        self._controller = controller
        self._report = report
        self._waiting = trio.CancelScope()
        self._error: BaseException | None = None
        self._begun = False
        self.failures_only = not receives_successes(report)

    def __call__(self, event: object) -> None:
        self._report(event)
        if not isinstance(event, RunStarted | RunEnded | MappingFailed) or event.controller != self._controller:
            return
        failed = isinstance(event, MappingFailed) or (isinstance(event, RunEnded) and not self._begun)
        if not isinstance(event, MappingFailed):
            self._begun = isinstance(event, RunStarted)
        if failed and not isinstance(event, RunStarted) and event.error is not None:
            self._error = event.error
            self._waiting.cancel()

    async def wait(self, engine: Engine) -> None:
        """Wait until the controller is idle. Raises the error that keeps it from becoming idle."""
        self._error = None
        with trio.CancelScope() as self._waiting:
            await engine.wait_idle()
        if self._error is not None:
            raise self._error


class _StubReconciler:
    """A stand-in for the reconciler. It does nothing but record its requests."""

    def __init__(self, definition: Definition) -> None:
        self._on_start = definition.on_start
        self.runtime: Runtime | None = None
        self.requests: list[Request] = []

    async def on_start(self, rt: Runtime) -> None:
        self.runtime = rt
        if self._on_start is not None and (waited := self._on_start(rt)) is not None:
            await waited

    async def reconcile(self, _: Runtime, request: Request) -> None:
        self.requests.append(request)


class _Recorder(PassingChannel):
    """A wrapper for a channel, used to record its writes."""

    _written: list[Written] | None = None

    @contextmanager
    def recorded(self) -> Iterator[list[Written]]:
        """Record the writes made while the block runs."""
        self._written = []
        try:
            yield self._written
        finally:
            self._written = None

    @override
    async def unary(self, path: str, request: Any, reply_type: type[Any], *, metadata: Metadata | None = None) -> Any:
        what = _WRITES.get(path.rpartition("/")[2])
        if what is None or self._written is None:
            return await self.inner.unary(path, request, reply_type, metadata=metadata)
        noted = self._written
        # The service may change the message.
        sent = copy_message(request)
        id = resource_id(sent.resource.id if what == "write" else sent.id)
        try:
            reply = await self.inner.unary(path, request, reply_type, metadata=metadata)
        except HeadwayError as error:
            noted.append(Written(what, id, sent, error))
            raise
        noted.append(Written(what, id, sent, None))
        return reply
