"""The handles of one `notify` block, and the iterator over those that have changed."""

from __future__ import annotations

import builtins
import contextlib
from collections.abc import Hashable
from typing import Any, TypeVar

import trio

from headway.base import (
    AsyncStream,
    Delay,
    async_problem,
    check_selection,
    check_text,
    check_trio,
    checked,
    current_run,
)
from headway.cache import CachedType, CacheReader, Index
from headway.errors import Closed, IndexIncomplete, InvalidArgument
from headway.notify._cuts import Cuts
from headway.notify._fetches import Answers, PollFetch, QueryFetch
from headway.notify._handle import Answer, Handle
from headway.notify._reads import GetRead, IndexRead, ListRead
from headway.notify._sources import BlockingQuery, Poll
from headway.resource import ResourceId
from headway.storage import Pulse

R = TypeVar("R")
T = TypeVar("T")
V = TypeVar("V", bound=Hashable)


class Updates(AsyncStream):
    """The handles of one block of `PrimedCache.notify`. Iterate over it to receive those that have changed.

    ``async for changed in updates`` yields each handle that has changed since it was last yielded, in the order of the
    changes. A handle waits at most once, however often it has changed. The iteration ends when the block ends.
    """

    _reads, _usage = "updates", "async for changed in updates"

    def __init__(self, cache: CacheReader, cuts: Cuts, answers: Answers) -> None:
        self._cache = cache
        self._cuts = cuts
        self._answers = answers
        self._ended = answers.ended
        self._handles: dict[Handle[Any], None] = {}
        self._changed: dict[Handle[Any], None] = {}
        # Cheaper than a parking lot, which counts with many blocks of notifications.
        self._pulse = Pulse()
        self._open = True
        self._cache_closed = False
        self._home = current_run()

    # --- handles ---

    def get(
        self,
        type: CachedType[R],
        id: str | ResourceId,
        *,
        partition: str = "",
        namespace: str = "",
        correlation_id: str = "",
    ) -> Handle[R | None]:
        """Return a handle for one resource, or None while it does not exist. Takes the arguments of `cache.get`."""
        self._check_open(correlation_id)
        self._cache.get(type, id, partition=partition, namespace=namespace)
        wanted = type.id(id, partition=partition, namespace=namespace) if isinstance(id, str) else id
        key = ("get", type, wanted)
        read: GetRead[R | None] = self._answers.find(key, lambda: GetRead(key, self._ended, type, self._cuts, wanted))
        return self._handle(read, correlation_id)

    def list(
        self,
        type: CachedType[R],
        *,
        partition: str = "*",
        namespace: str = "*",
        name_prefix: str = "",
        correlation_id: str = "",
    ) -> Handle[builtins.list[R]]:
        """Return a handle for all resources of a type within these bounds, as for `cache.list`."""
        self._check_open(correlation_id)
        check_selection(partition, namespace, name_prefix)
        self._cache.revision(type)
        key = ("list", type, partition, namespace, name_prefix)
        read: ListRead[builtins.list[R]] = self._answers.find(
            key, lambda: ListRead(key, self._ended, type, self._cuts, (partition, namespace, name_prefix))
        )
        return self._handle(read, correlation_id)

    def index(self, index: Index[R, V], value: V, *, correlation_id: str = "") -> Handle[builtins.list[R]]:
        """Return a handle for all resources with a value in an index, as for `cache.index`."""
        self._check_open(correlation_id)
        # The value of the handle raises this as well, until the resource has changed.
        with contextlib.suppress(IndexIncomplete):
            self._cache.index(index, value)
        key = ("index", index, value)
        read: IndexRead[builtins.list[R]] = self._answers.find(
            key, lambda: IndexRead(key, self._ended, self._cuts, index, value)
        )
        return self._handle(read, correlation_id)

    @checked(InvalidArgument, poll="headway.notify.Poll(function)", max_age="max_age=30")
    def poll(self, poll: Poll[T], *arguments: Hashable, max_age: Delay, correlation_id: str = "") -> Handle[T]:
        """Return a handle for the result of a function, which is called again when the result is too old.

        Args:
            poll: made by ``headway.notify.Poll(function)``.
            arguments: the arguments of the function. Handles of equal functions and arguments share the calls.
            max_age: the age, in seconds, at which the function is called again. Up to a sixteenth is added at random.
        """
        self._check_open(correlation_id)
        _check_arguments(poll.function, len(arguments), f"the {len(arguments)} arguments given to poll()")
        key = ("poll", poll, arguments)
        fetch: PollFetch[T] = self._answers.find(key, lambda: PollFetch(key, self._ended, poll, arguments))
        return self._handle(fetch, correlation_id, max_age)

    @checked(InvalidArgument, query="headway.notify.BlockingQuery(function)")
    def query(self, query: BlockingQuery[T], *arguments: Hashable, correlation_id: str = "") -> Handle[T]:
        """Return a handle for the result of a blocking query.

        Args:
            query: made by ``headway.notify.BlockingQuery(function)``.
            arguments: the further arguments of the function. Handles of equal functions and arguments share the calls.
        """
        self._check_open(correlation_id)
        _check_arguments(
            query.function, len(arguments) + 1, f"an index and the {len(arguments)} arguments given to query()"
        )
        key = ("query", query, arguments)
        fetch: QueryFetch[T] = self._answers.find(key, lambda: QueryFetch(key, self._ended, query, arguments))
        return self._handle(fetch, correlation_id)

    def _handle(self, answer: Answer[T], correlation_id: str, max_age: float | None = None) -> Handle[T]:
        handle = Handle(answer, self, correlation_id, max_age)
        self._handles[handle] = None
        handle.begin()
        return handle

    def _check_open(self, correlation_id: object) -> None:
        check_text("correlation_id", correlation_id, "'teams'")
        self._check_cache()
        if not self._open:
            raise Closed("the notify block has ended: create handles inside `async with cache.notify() as updates:`")

    def _check_cache(self) -> None:
        if self._cache_closed:
            raise Closed("the cache of these notifications is closed: its block has ended")
        # A handle may also be created between two turns of the loop, by the callback of a guest run's host.
        if trio.lowlevel.in_trio_task():
            check_trio("updates", self._home)

    # --- receiving ---

    async def primed(self) -> None:
        """Wait until every open handle has its first value, or an error. Raises Closed if the cache is closed."""
        await trio.lowlevel.checkpoint()
        while not all(handle.answered for handle in self._handles):
            self._check_cache()
            await self._pulse.wait()

    def __aiter__(self) -> Updates:
        return self

    @trio.lowlevel.enable_ki_protection
    async def __anext__(self) -> Handle[Any]:
        """Wait until a handle has changed, and return it. If this is canceled, no change is lost.

        Raises Closed if the cache is closed before the block has ended.
        """
        if self._changed or not self._open or self._cache_closed:
            await trio.lowlevel.checkpoint()
        # Waiting is a checkpoint. Another one would take each of many receivers another turn of the loop.
        while not self._changed:
            if not self._open:
                raise StopAsyncIteration
            self._check_cache()
            await self._pulse.wait()
        handle = next(iter(self._changed))
        del self._changed[handle]
        handle.deliver()
        return handle

    # --- called by the handles and the cache ---

    def changed(self, handle: Handle[Any]) -> None:
        """Note that a handle has changed."""
        self._changed[handle] = None
        self._pulse.beat()

    def closed(self, handle: Handle[Any]) -> None:
        """Note that a handle was closed."""
        self._handles.pop(handle, None)
        self._changed.pop(handle, None)
        self._pulse.beat()

    def end_with_cache(self) -> None:
        """Wake all waiters so that they raise Closed, because the cache is closed."""
        self._cache_closed = True
        self._pulse.beat()

    def close(self) -> None:
        """Close all handles, because the block has ended."""
        self._open = False
        for handle in list(self._handles):
            handle.close()
        self._pulse.beat()


def _check_arguments(function: object, count: int, takes: str) -> None:
    if problem := async_problem(function, count, takes):
        raise InvalidArgument(f"{getattr(function, '__name__', function)}: {problem}")
