"""Ready-made sources, which turn events outside the store into keys to reconcile."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, aclosing
from typing import Any, Protocol, TypeVar

import trio

from headway.base import BoundedReport, Delay, Fraction, chance, checked, ordinary, plain_problem
from headway.controller._definition import Enqueue, Source
from headway.errors import DeclarationError, InvalidArgument
from headway.events import SourceFailed
from headway.mapper import listed
from headway.reconcile import Runtime
from headway.resource import Resource, ResourceId, redact_error

E = TypeVar("E")

Affected = ResourceId | Resource[Any] | None | Iterable[ResourceId | Resource[Any]]
"""An id or resource of the managed type, an iterable of them, or None. They need not be in the store."""


class _Source:
    """An implementation of `Source`."""

    def __init__(self, name: str, run: Callable[[Runtime, Enqueue], Awaitable[None]]) -> None:
        self._name = name
        self._run = run

    async def __call__(self, rt: Runtime, enqueue: Enqueue) -> None:
        await self._run(rt, enqueue)

    def __repr__(self) -> str:
        return self._name


@checked(channel="`receive` of send, receive = trio.open_memory_channel(100)")
def from_channel(channel: trio.abc.ReceiveChannel[E], key: Callable[[E], Affected]) -> Source:
    """``sources={"orders": headway.sources.from_channel(receive, lambda order: TEAM.id(order.team))}``

    For every value that you send into the channel, reconcile the key or keys that ``key(value)`` returns. If ``key``
    raises or returns an invalid value, `SourceFailed` is reported and that value is ignored. If the channel ends, the
    source ends without an error. If only the run ends, the channel stays open for the next run.
    """
    _check("from_channel", key)

    async def run(rt: Runtime, enqueue: Enqueue) -> None:
        bounded = BoundedReport(rt.report)
        try:
            while True:
                _enqueue_affected(rt, enqueue, "from_channel", await channel.receive(), key, bounded)
        except (trio.EndOfChannel, trio.ClosedResourceError):
            return

    return _Source("from_channel", run)


@checked()
def from_iterator(events: Callable[[], AsyncIterator[E]], key: Callable[[E], Affected]) -> Source:
    """``sources={"lines": headway.sources.from_iterator(lambda: follow(path), lambda line: TEAM.id(line))}``

    Call ``events()`` in each run, and reconcile the keys of each event of the async iterator that it returns. The
    iterator, such as a generator, is closed when the run ends. If it ends first, the source ends without an error. If
    it raises, the run ends and is restarted. ``key`` is used as in `from_channel`.
    """
    _check("from_iterator", key)
    if not inspect.isasyncgenfunction(events):
        form = "from_iterator expects a function that returns an async iterator: from_iterator(lambda: follow(), key)"
        _check_form(events, 0, form)

    async def run(rt: Runtime, enqueue: Enqueue) -> None:
        iterator: Any = events()
        if not hasattr(iterator, "__anext__"):
            raise DeclarationError(
                f"{rt.full_name}: from_iterator's function returned {iterator!r}, not an async iterator"
            )
        bounded = BoundedReport(rt.report)
        async with AsyncExitStack() as stack:
            if hasattr(iterator, "aclose"):
                await stack.enter_async_context(aclosing(iterator))
            async for event in iterator:
                _enqueue_affected(rt, enqueue, "from_iterator", event, key, bounded)
                # An iterator that never waits would let no other task run. One that catches its own cancellation is
                # closed when this raises it.
                await trio.lowlevel.checkpoint()

    return _Source("from_iterator", run)


@checked()
def every(
    seconds: Delay,
    keys: Callable[[Runtime], Iterable[ResourceId | Resource[Any]]] | None = None,
    *,
    jitter: Fraction = 0.1,
) -> Source:
    """``sources={"resync": headway.sources.every(3600)}``: reconcile keys periodically.

    Args:
        seconds: the interval. The first time is one interval after the run's start.
        keys: returns the ids or resources to reconcile each time. Default: all managed resources.
        jitter: vary each interval at random by up to this fraction of ``seconds``.
    """
    if keys is not None:
        _check_form(keys, 1, "every: keys needs a function of a runtime: every(60, lambda rt: rt.cache.list(TEAM))")

    def affected(rt: Runtime) -> Affected:
        return rt.cache.list(rt.cache.manages) if keys is None else keys(rt)

    async def run(rt: Runtime, enqueue: Enqueue) -> None:
        bounded = BoundedReport(rt.report)
        while True:
            await trio.sleep(seconds * chance.uniform(1 - jitter, 1 + jitter))
            _enqueue_affected(rt, enqueue, "every", rt, affected, bounded)

    return _Source(f"every({seconds})", run)


class Waitable(Protocol):
    """An object that you can wait for, such as a `trio.Process` or anything else with ``async def wait()``."""

    async def wait(self) -> object:
        """Return when it has ended."""
        ...


class ProcessExits:
    """A source that reconciles a key when a process that belongs to it has ended. Created by `process_exits`.

    Processes that are watched stay watched in the controller's next run.
    """

    def __init__(self) -> None:
        # All processes that are watched, and those that still need a task in the current run.
        self._watched: set[tuple[ResourceId, Waitable]] = set()
        self._new: list[tuple[ResourceId, Waitable]] = []
        self._added = trio.Event()

    def watch(self, id: ResourceId | Resource[Any], process: Waitable) -> None:
        """Reconcile ``id`` when ``process`` ends. Repeating the call has no effect."""
        if not inspect.iscoroutinefunction(getattr(process, "wait", None)):
            raise InvalidArgument(
                f"watch() needs an object with `async def wait()`, such as a trio.Process, not {process!r}: "
                "await trio.lowlevel.open_process(...)"
            )
        watched = ((id.id if isinstance(id, Resource) else id).without_uid(), process)
        if watched not in self._watched:
            self._watched.add(watched)
            self._new.append(watched)
            self._added.set()

    @property
    def watched(self) -> int:
        """The number of processes that are watched."""
        return len(self._watched)

    async def __call__(self, rt: Runtime, enqueue: Enqueue) -> None:  # noqa: ARG002  # the signature of a source
        """Wait for the watched processes. This is the source."""
        self._new = list(self._watched)
        async with trio.open_nursery() as nursery:
            while True:
                new, self._new, self._added = self._new, [], trio.Event()
                for watched in new:
                    nursery.start_soon(self._wait, watched, enqueue, name=f"the exit of {watched[1]!r}")
                await self._added.wait()

    async def _wait(self, watched: tuple[ResourceId, Waitable], enqueue: Enqueue) -> None:
        await watched[1].wait()
        self._watched.discard(watched)
        enqueue(watched[0])

    def __repr__(self) -> str:
        return "process_exits()"


@checked()
def process_exits() -> ProcessExits:
    """Reconcile a key when a process that belongs to it exits.

    ``exits = sources.process_exits()``, ``sources={"exits": exits}``, and ``exits.watch(request.id, process)``.
    """
    return ProcessExits()


def _enqueue_affected(
    rt: Runtime, enqueue: Enqueue, source: str, event: E, key: Callable[[E], Affected], bounded: BoundedReport
) -> None:
    try:
        affected = key(event)
        for each in listed(() if affected is None else affected):
            enqueue(each.id if isinstance(each, Resource) else each)
    except BaseException as raised:
        # A user's function may raise anything; the other events are still handled.
        error = ordinary(raised)
        if error is None:
            raise
        if isinstance(event, Resource):
            redact_error(error, [event])
        bounded(SourceFailed, controller=rt.full_name, source=source, value=event, error=error)


def _check(source: str, key: object) -> None:
    _check_form(key, 1, f"{source} expects a function of an event to an id: {source}(..., lambda name: TEAM.id(name))")


def _check_form(function: object, arguments: int, form: str) -> None:
    problem = plain_problem(function, arguments, "no argument" if arguments == 0 else "one argument", may_yield=True)
    if problem:
        raise DeclarationError(f"{form}; the function {problem}")
