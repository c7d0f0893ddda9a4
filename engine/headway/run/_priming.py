"""The caches of a run: priming them, and reading the deletions that the run has missed (C1, C6).

A deletion that happened while no run was active is in no cache. It is read from the store's history.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import trio

from headway.api import FAILED, Channel, Code, LimitedWaits, code_of
from headway.base import BoundedReport
from headway.cache import PRIORITY_INDEX, Applied, CachedType, Informer, OnFailure, Subscription, subscribe_by_turns
from headway.client import client_error, open_watch_list
from headway.controller import Definition
from headway.errors import (
    HeadwayError,
    PermissionDenied,
    PrimingStalled,
    RateLimited,
    StoreChanged,
    StoreRolledBack,
    Unavailable,
)
from headway.events import DeletionsUnknown, IndexFailed, Primed, Priming, Report
from headway.informers import Informers, StreamMachine, watch_request
from headway.resource import ANY_VERSIONS, Bookmark, Changes, Key, Position, TypeName, is_unreadable, pb, resource_key

STALL_LIMIT = 60.0
_SILENCE = 30.0
"""The time, in seconds, after which a stream that has sent nothing counts as failed."""

Deletions = dict[TypeName, list[Applied]]
"""Deletions by type, in order of revision."""


class RunCaches:
    """The caches of one run's types, shared with other runs.

    Args:
        stall_limit: the time, in seconds, within which a type being primed must receive something.

    Attributes:
        subscriptions: the subscription to each type that is primed.
        primed: the informer of each type; empty until all types are primed.
        by_type: the same by the names of the types.
    """

    def __init__(
        self,
        definition: Definition,
        informers: Informers,
        channel: Channel,
        report: Report,
        bounded: BoundedReport,
        stall_limit: float,
    ) -> None:
        self.informers = informers
        self.subscriptions: dict[TypeName, Subscription] = {}
        self.primed: Sequence[Informer] = ()
        self.by_type: Mapping[TypeName, Informer] = {}
        self._definition = definition
        self._channel = channel
        self._report = report
        self._bounded = bounded
        self._stall_limit = stall_limit

    def find(self, type: TypeName, key: Key) -> pb.Resource | None:
        """Return the cached resource of a type that is primed, or None."""
        return self.subscriptions[type].find(key) if type in self.subscriptions else None

    def check_store(self) -> None:
        """Raise if a type's store is known to be rolled back. This opens no stream."""
        for type in self._definition.types:
            for known in self.informers.opened(type):
                known.check()

    def newest(self) -> Mapping[Informer, Position]:
        """Return the newest position that each open store of the run's types has, also from replies to writes."""
        opened = (each for type in self._definition.types for each in self.informers.opened(type))
        return {each: each.store.position._replace(revision=each.store.newest) for each in opened}

    def check_new_commit(self, before: Mapping[Informer, Position], position: Position) -> None:
        """Raise StoreRolledBack if a new commit is not above what was cached before it.

        Invariant: a commit is above everything that the store had before. So data above it is of a history that
        the store has lost, even if its streams are still open and have not shown that yet. What came from another
        store says nothing about this one, even if the informer has changed over to it meanwhile.
        """
        lost = {
            informer: known.revision
            for informer, known in before.items()
            if known.store_id == position.store_id and known.revision >= position.revision
        }
        if not lost:
            return
        error = StoreRolledBack(
            f"store {position.store_id} has made a new commit at revision {position.revision}, but has delivered "
            f"changes up to {max(lost.values())} before"
        )
        # Every type of the run, because a later fence may be above the others.
        for informer in lost:
            informer.void(error, replaced=False)
        raise error

    def check(self) -> None:
        """Raise if the data of a subscription is void."""
        for subscription in self.subscriptions.values():
            subscription.check()

    async def wait_complete(self, revision: int) -> None:
        """Wait until every type has reached a revision."""
        for each in self.primed:
            await each.wait_complete(revision)

    @property
    def distrusted(self) -> bool:
        """True if the data of a type is being verified, because its store may have been rolled back."""
        return any(each.distrusted for each in self.primed)

    @property
    def known(self) -> Position | None:
        """The newest position that the data of any type depends on. A store that never had it has lost data."""
        known = [each.store.known for each in self.subscriptions.values()]
        return max((each for each in known if each is not None), default=None, key=lambda each: each.revision)

    def frontiers(self) -> dict[TypeName, int]:
        """Return the revision up to which each type is complete."""
        return {name: subscription.revision for name, subscription in self.subscriptions.items()}

    async def prime(self, start: Position) -> None:
        """Prime every type up to the starting revision, and then up to the highest that any of them shows (C1)."""
        async with trio.open_nursery() as nursery:
            for type in self._definition.types:
                nursery.start_soon(self._prime_type, type, start, name=f"priming {type.name}")
        self.primed = [self.informers.informer_for(type) for type in self._definition.types]
        self.by_type = {each.type.name: each for each in self.primed}
        await self.wait_complete(max(subscription.subscribed_at for subscription in self.subscriptions.values()))

    async def _prime_type(self, type: CachedType[Any], start: Position) -> None:
        """Fill the store of one type, and do nothing else (C1). This is one of the N+1 priming tasks."""
        name = self._definition.full_name
        self._report(Priming(name, type.name, start.revision))
        began = trio.current_time()
        informer = self.informers.informer_for(type)
        await wait_primed(informer, start.revision, self._stall_limit)
        cached = informer.store.store_id
        if cached != start.store_id:
            raise StoreChanged(f"the cache of {type.name} belongs to store {cached}, but the fence to {start.store_id}")
        # No checkpoint since the check, so every change from here on enters the feed.
        count, revision = len(informer.store.entries), informer.store.frontier
        await subscribe_by_turns(
            informer, self._definition.indexes_of(type), self._report_indexes(type.name), self.subscriptions
        )
        self._report(Primed(name, type.name, count, revision, trio.current_time() - began))

    async def open(self, types: Iterable[CachedType[Any]], may_have: Callable[[CachedType[Any]], bool]) -> None:
        """Open the informers of further types, and wait until they are primed. The next run shares them.

        Raises PermissionDenied if a type cannot be watched, and PrimingStalled like `prime`. If the wait ends early for
        another reason, a snapshot in progress continues, unless ``may_have`` says that no run will have the type.
        """
        with ExitStack() as stack:
            opened = [(type, stack.enter_context(self.informers.held(type))) for type in types]
            allowed = True
            try:
                for _, informer in opened:
                    await wait_primed(informer, 0, self._stall_limit)
            except PermissionDenied:
                allowed = False
                raise
            finally:
                for type, informer in opened:
                    # The others close with the block.
                    if allowed and informer.received and may_have(type):
                        self.informers.informer_for(type)

    def priority(self, key: Key) -> int:
        """Return the priority of a key, which is that of its cached resource."""
        table: Any = self.subscriptions[self._definition.manages.name].tables.get(PRIORITY_INDEX)
        return 0 if table is None else next((value for value in table.values() if key in table.keys(value)), 0)

    def _report_indexes(self, type: TypeName) -> OnFailure:
        def report(index: str, key: Key, error: BaseException) -> None:
            name = self._definition.full_name
            self._bounded(IndexFailed, of=(type, index), controller=name, index=index, type=type, key=key, error=error)

        return report

    async def deletions(self, start: Position, after: int, until: Mapping[TypeName, int]) -> Deletions:
        """Return the deletions after a revision, up to a revision for each type, as far as the history has them."""
        since = start._replace(revision=after)
        found: Deletions = {}

        async def read(type: CachedType[Any], up_to: int) -> None:
            deleted = await deletions_since(self._channel, type, since, up_to, self._report, self._definition.full_name)
            if deleted is not None:
                self._report_illegible(type, since.revision, deleted)
                held = self.informers.informer_for(type).cached_form
                found[type.name] = [each._replace(old=each.old and held(each.old)) for each in deleted]

        async with trio.open_nursery() as nursery:
            for type in self._definition.types:
                if (up_to := until[type.name]) > since.revision:
                    nursery.start_soon(read, type, up_to, name=f"reading deletions of {type.name}")
        return found

    def _report_illegible(self, type: CachedType[Any], after: int, deleted: list[Applied]) -> None:
        """Report the deletions that a mapper may not map, because it cannot read the last state of the resource."""
        illegible = [each for each in deleted if each.old is not None and is_unreadable(each.old)]
        if illegible and type.name in {each.name for each in self._definition.watches}:
            why = (
                f"{len(illegible)} of {len(deleted)} deleted resources, the last at revision {illegible[-1].revision}, "
                "had a state that can't be read"
            )
            self._report(DeletionsUnknown(self._definition.full_name, type.name, after, why))


async def wait_primed(informer: Informer, revision: int, stall_limit: float) -> None:
    """Wait until a type is primed up to a revision.

    A large type may take as long as it needs. Raises PrimingStalled only if nothing arrives for ``stall_limit``
    seconds.
    """
    while True:
        received = informer.received
        with trio.move_on_after(stall_limit):
            await informer.wait_complete(revision)
            return
        # A stream that is asked has sent no bookmarks meanwhile.
        informer.ask_on()
        if informer.received == received:
            why = f"; {informer.cut_off[0]}" if informer.cut_off else ""
            raise PrimingStalled(
                f"priming {informer.type.name} stalled: nothing was received for {stall_limit} s; "
                f"{informer.resources} resources have arrived, and "
                f"its revision is {informer.store.frontier} of {revision}{why}"
            )


async def deletions_since(
    channel: Channel, type: CachedType[Any], since: Position, until: int, report: Report, controller: str
) -> list[Applied] | None:
    """Return the deletions of a type after ``since`` and up to ``until``, each with the last state of the resource.

    If the store's history does not reach back that far, report it and return None. In that case only a finalizer keeps
    deletions from being missed. Raises Unavailable if the stream fails or is silent for `_SILENCE` seconds. That ends
    the run, and the next one reads the deletions again. If a limit of the server refuses the stream, wait until the
    limit allows it: the run keeps its lease meanwhile.
    """
    waits = LimitedWaits()
    while True:
        try:
            return await _deletions_since(channel, type, since, until, report, controller)
        except RateLimited as refused:
            await waits.wait(refused)


async def _deletions_since(
    channel: Channel, type: CachedType[Any], since: Position, until: int, report: Report, controller: str
) -> list[Applied] | None:
    machine = StreamMachine(since.store_id, since)
    deleted: list[Applied] = []
    # Deletions count regardless of the versions that the previous run used.
    since = since._replace(versions=ANY_VERSIONS)
    try:
        async with open_watch_list(channel, watch_request(type, since)) as items:
            while (item := await _next(items, type)) is not None:
                checked = machine.feed(item)
                if isinstance(checked, Changes):
                    deleted += [
                        Applied(resource_key(change.resource), change.resource, None, change.revision)
                        for change in checked.changes
                        if change.deleted and change.revision <= until
                    ]
                elif checked is not None and not isinstance(checked, Bookmark):
                    report(DeletionsUnknown(controller, type.name, since.revision, "the server can't resume"))
                    return None
                if machine.frontier >= until:
                    return deleted
    except HeadwayError as error:
        if code_of(error) in (Code.OUT_OF_RANGE, Code.DATA_LOSS):
            report(DeletionsUnknown(controller, type.name, since.revision, str(error)))
            return None
        if isinstance(error, FAILED):
            raise client_error(error) from error
        raise
    raise Unavailable(f"the server ended the stream of {type.name} at {machine.frontier}, before revision {until}")


async def _next(items: AsyncIterator[Any], type: CachedType[Any]) -> Any:
    """Return the next item of a stream, or None at its end."""
    with trio.move_on_after(_SILENCE):
        return await anext(items, None)
    raise Unavailable(f"the stream of {type.name} sent nothing of its history for {_SILENCE:g} s")
