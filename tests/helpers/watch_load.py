"""Concurrent writers and watchers of one store, with a schedule made from a seed, and the history of their reads.

Watchers of several types, tenancies and prefixes start, leave in the middle of a snapshot or of a commit, resume after
a position that was delivered to them, read slowly, and lose their connection. Several writers write the same names; one
writer makes commits of several types.
"""

from __future__ import annotations

import contextlib
import itertools
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from random import Random
from typing import Any, NamedTuple

import trio
from grpclib.const import Status

import headway
from headway.client import Client, open_watch_list
from headway.errors import HeadwayError
from headway.resource import (
    NAMESPACE,
    Bookmark,
    Changes,
    EndOfSnapshot,
    Key,
    Kind,
    Position,
    Registry,
    ResourceType,
    SnapshotChunk,
    pb,
    resource_key,
)
from headway.rpc import Channel
from headway.storage import Backend, Put, Remove
from headway.testing import ChangesDelivered, Fact, History, RecordingChannel, WatchOpened
from headway.testing.conformance import kind_of, putting, removing
from tests.helpers.declared import Note, a_note
from tests.helpers.service_errors import status_of

TYPES = [ResourceType("load", "v1", kind, Note) for kind in ("Job", "Copy", "Page")]
PLACES = ("default", "other")
NAMES = [f"{first}{second}" for first in "ab" for second in "012"]
SPECS = [
    ("*", "*", "", ""),
    ("*", "*", "a", ""),
    ("default", "other", "", ""),
    ("default", "default", "b", ""),
    ("", "", "m", ""),
    ("*", "*", "", "tier=gold"),
    ("default", "other", "", "tier=free"),
]
"""The filters of the watches: partition, namespace, the prefix of the name, and metadata."""
TIERS = ("gold", "free", "")

WRITERS, WATCHERS = 3, 4
HISTORY = 60
"""The number of changes that the store keeps. It is so small that some watches cannot resume."""

Connect = Callable[[int], AbstractAsyncContextManager[Channel]]
"""A function that opens the channel with a number."""


def load_registry() -> Registry:
    registry = Registry()
    for type in TYPES:
        registry.register(type)
    return registry


class _Resumable(NamedTuple):
    """A watch, and a position to resume it after."""

    type: ResourceType[Any]
    spec: tuple[str, str, str, str]
    at: Position


class WatchLoad:
    """A run of the load.

    Args:
        seed: the seed of every choice. The seeds of `random` and of Trio's scheduler are set elsewhere.
        store: the store, for the writer that makes commits of several types.
        connect: opens the channel of each other writer and watcher to that store.
        writes: the number of writes by each writer.
        between: wraps the channel of a ``watcher`` or a ``witness`` below its recording, for example in a channel that
            lies.

    Attributes:
        history: the facts recorded by all writers and watchers.
        did: the number of times that each event of interest has happened.
    """

    def __init__(
        self,
        seed: int,
        store: Backend,
        connect: Connect,
        *,
        writes: int = 50,
        between: Callable[[str, Channel], Channel] = lambda _, channel: channel,
    ) -> None:
        self._seed = seed
        self._store = store
        self._connect = connect
        self._writes = writes
        self._between = between
        self.history = History()
        self.did: Counter[str] = Counter()
        # The changes made by the commits of several types.
        self._joint_changes: set[tuple[Kind, Key, int]] = set()
        self._end_at = 0
        self._ending = trio.Event()
        # One process runs everything, so a counter orders all calls.
        self._clock = map(float, itertools.count()).__next__

    async def run(self, ending: Callable[[], None] = lambda: None) -> None:
        """Write and watch until every watcher has received every write. Calls ``ending`` when all is written."""
        async with AsyncExitStack() as stack:
            connected = [await stack.enter_async_context(self._connect(each)) for each in range(WRITERS + WATCHERS)]
            watched = [await stack.enter_async_context(self._connect(0)) for _ in TYPES]
            clients = [
                Client(self._recording(f"writer {number}").over(channel), load_registry())
                for number, channel in enumerate(connected[:WRITERS])
            ]
            for place in PLACES[1:]:
                # No watcher watches namespaces.
                await Client(connected[0], load_registry()).apply(NAMESPACE.new(place))
            await self._fill(clients[0])
            async with trio.open_nursery() as nursery:
                for type, channel in zip(TYPES, watched, strict=True):
                    await nursery.start(self._witness, type, channel)
                for number, channel in enumerate(connected[WRITERS:]):
                    nursery.start_soon(self._watcher, f"watcher {number}", channel)
                async with trio.open_nursery() as writers:
                    for number, client in enumerate(clients):
                        writers.start_soon(self._writer, f"writer {number}", client)
                    writers.start_soon(self._committer)
                ending()
                self._end_at = (await self._last("last")).revision
                self._ending.set()
                # A watcher that received that commit before it was known to be the last waits for another one.
                await self._last("after")

    def check(self) -> None:
        """Check the history against every rule. Raises AssertionError with the seed."""
        try:
            self.history.check()
            assert not self.did["DATA_LOSS"], "a watch was refused because its position is of another store"
            missed = self._joint_changes - delivered_changes(self.history.facts)
            assert not missed, f"no watch has delivered {sorted(missed)[:5]}"
        except AssertionError as error:
            raise AssertionError(f"with seed {self._seed}: {error}") from None

    def _recording(self, who: str) -> RecordingChannel:
        return RecordingChannel(who, self.history.add, clock=self._clock)

    # --- writers ---

    async def _fill(self, client: Client) -> None:
        """Write the resources that snapshots begin with."""
        for type in TYPES:
            for name in NAMES:
                for number in range(3):
                    await client.apply(type.new(f"{name}-{number}", Note(text=f"{name} {number} as it began")))

    async def _writer(self, who: str, client: Client) -> None:
        rng = Random(f"{self._seed} {who}")
        for number in range(self._writes):
            type, name, place = rng.choice(TYPES), rng.choice(NAMES), rng.choice(PLACES)
            note, what = Note(text=f"{who} {number}"), rng.choice(["apply", "apply", "apply", "change", "delete"])
            try:
                if what == "apply":
                    await client.apply(type.new(name, note, namespace=place, metadata={"tier": rng.choice(TIERS)}))
                elif what == "delete":
                    await client.delete(type.id(name, namespace=place))
                elif (found := await client.get(type, name, namespace=place)) is not None:
                    await _pause(rng)
                    found.data = note
                    found.metadata["tier"] = rng.choice(TIERS)
                    with contextlib.suppress(headway.errors.FailedPrecondition):
                        # It is refused so if it was deleted and created again after the read.
                        await client.write(found)
            except (headway.Conflict, headway.NotFound):
                self.did["refused"] += 1
            except (headway.errors.OutcomeUnknown, headway.errors.Unavailable):
                self.did["not answered"] += 1
            await _pause(rng)

    async def _committer(self) -> None:
        """Make commits of up to six operations on two types, on names that no other writer uses."""
        rng = Random(f"{self._seed} committer")
        there: dict[tuple[Kind, Key], pb.Resource] = {}
        for number in range(self._writes):
            operations: list[Put | Remove] = []
            for type in rng.sample(TYPES, 2):
                for name in rng.sample(["m0", "m1", "n0"], rng.randint(0, 3)):
                    made = stored_as(type, name, f"commit {number}")
                    made.metadata["tier"] = rng.choice(TIERS)
                    place = (type.kind, resource_key(made))
                    before = there.get(place)
                    if before is not None and rng.random() < 0.3:
                        operations.append(removing(before, before.version))
                    else:
                        operations.append(putting(made, before.version if before is not None else ""))
                        if before is not None and made.id is not None and before.id is not None:
                            made.id.uid = before.id.uid
            if not operations:
                continue
            at = await self._store.commit(operations)
            for operation in operations:
                place = (operation.kind, operation.key)
                self._joint_changes.add((*place, at.revision))
                there.pop(place, None)
                stored, _ = await self._store.read(*place)
                if stored is not None:
                    there[place] = stored
            await _pause(rng)

    async def _last(self, name: str) -> Position:
        made = stored_as(TYPES[0], name, "the end")
        return await self._store.commit([putting(made)])

    # --- watchers ---

    async def _witness(self, type: ResourceType[Any], channel: Channel, *, task_status: trio.TaskStatus[None]) -> None:
        """Watch everything of a type without delay, from before the concurrent writes on."""
        recording = self._recording(f"witness of {type.name.kind}")
        watcher = _Watcher(self, recording.over(self._between("witness", channel)), Random(self._seed))
        await watcher.session(type, SPECS[0], None, None, slow=0, on_live=task_status.started)

    async def _watcher(self, who: str, channel: Channel) -> None:
        rng = Random(f"{self._seed} {who}")
        recording = self._recording(who)
        watcher = _Watcher(self, recording.over(self._between("watcher", channel)), rng)
        while not watcher.done:
            known, again = watcher.resumable, rng.random() < 0.6
            if known and again:
                # The last position, or an old one.
                type, spec, after = known[-1] if rng.random() < 0.6 else rng.choice(known)
            else:
                type, spec, after = rng.choice(TYPES), rng.choice(SPECS), None
            leave = rng.choice([1, 1, 2, 3, 8, 30])
            await watcher.session(type, spec, after, leave, slow=rng.choice([0, 0, 3, 40]))


class _Watcher:
    """A watcher, which opens one watch after the other.

    Attributes:
        resumable: the positions to resume after.
        done: true when the last commit has been delivered to it.
    """

    def __init__(self, load: WatchLoad, channel: Channel, rng: Random) -> None:
        self._load = load
        self._channel = channel
        self._rng = rng
        self.resumable: list[_Resumable] = []
        self.done = False

    async def session(
        self,
        type: ResourceType[Any],
        spec: tuple[str, str, str, str],
        after: Position | None,
        leave: int | None,
        *,
        slow: int,
        on_live: Callable[[], None] = lambda: None,
    ) -> None:
        """Watch until ``leave`` items have come, or everything. Waits ``slow`` turns of the event loop per item."""
        load = self._load
        request = pb.WatchListRequest(
            type=type.name.message(),
            tenancy=pb.Tenancy(partition=spec[0], namespace=spec[1]),
            name_prefix=spec[2],
            metadata_filter=spec[3],
            resume_after=None if after is None else after.message(),
            bookmarks=True,
        )
        try:
            async with open_watch_list(self._channel, request) as items:
                at = _Resumable(type, spec, after or Position("", "", 0))
                await self._read(items, at, leave, slow, on_live)
        except HeadwayError as error:
            if status_of(error) not in (Status.OUT_OF_RANGE, Status.DATA_LOSS, Status.UNAVAILABLE):
                raise
            load.did[status_of(error).name] += 1
            if status_of(error) is not Status.UNAVAILABLE:
                self.resumable.clear()
            await _pause(self._rng)

    async def _read(
        self, items: AsyncIterator[Any], reached: _Resumable, leave: int | None, slow: int, on_live: Callable[[], None]
    ) -> None:
        load, live, count = self._load, False, 0
        async for item in items:
            count += 1
            if isinstance(item, EndOfSnapshot | Bookmark):
                reached = reached._replace(at=item.position)
                load.did["resumed"] += isinstance(item, Bookmark) and item.resumed
            elif isinstance(item, Changes) and not item.changes[-1].more:
                # The revision of the last change would not do: a watch that delivers in the wrong order must end, too.
                revision = max(each.revision for each in item.changes)
                reached = reached._replace(at=reached.at._replace(revision=revision))
            if not isinstance(item, SnapshotChunk):
                if not live:
                    on_live()
                live = True
                self.resumable.append(reached)
                self.done = 0 < load._end_at <= reached.at.revision
            if self.done:
                return
            if leave is not None and count >= leave and not load._ending.is_set():
                load.did["left"] += 1
                load.did["left in its snapshot"] += not live
                return
            for _ in range(0 if load._ending.is_set() else slow):
                await trio.lowlevel.checkpoint()


def delivered_changes(facts: Sequence[Fact]) -> set[tuple[Kind, Key, int]]:
    """Return the changes that some watch has delivered."""
    kinds = {fact.watch: fact.kind for fact in facts if isinstance(fact, WatchOpened)}
    return {
        (kinds[fact.watch], each.key, each.revision)
        for fact in facts
        if isinstance(fact, ChangesDelivered)
        for each in fact.changes
    }


def stored_as(type: ResourceType[Any], name: str, text: str) -> pb.Resource:
    """Return a resource as a store keeps it, without a version."""
    made = a_note(name, text, type, partition="default", namespace="default", uid=uuid.uuid4().hex)
    assert kind_of(made) == type.kind
    return made


async def _pause(rng: Random) -> None:
    for _ in range(rng.choice([0, 1, 1, 2, 6])):
        await trio.lowlevel.checkpoint()


class FragileWires:
    """A TCP proxy on loopback. Until `mend` is called, each of its connections breaks after a number of bytes.

    Attributes:
        broken: the number of connections that it has broken.
    """

    def __init__(self, seed: int, target: str) -> None:
        self._rng = Random(f"{seed} wires")
        self._host, _, port = target.rpartition(":")
        self._port = int(port)
        self._mended = False
        self.broken = 0

    def mend(self) -> None:
        """Break no more connections."""
        self._mended = True

    @asynccontextmanager
    async def open(self) -> AsyncIterator[str]:
        """Serve while the block runs. Yields the address of the proxy."""
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, self._connection, listeners)
            yield f"127.0.0.1:{listeners[0].socket.getsockname()[1]}"
            nursery.cancel_scope.cancel()

    async def _connection(self, stream: trio.SocketStream) -> None:
        left = self._rng.choice([700, 3_000, 6_000, 12_000])
        try:
            async with stream, await trio.open_tcp_stream(self._host, self._port) as inner, trio.open_nursery() as both:
                both.start_soon(_pump, stream, inner)
                async for piece in inner:
                    if len(piece) > left and not self._mended:
                        await stream.send_all(piece[:left])
                        self.broken += 1
                        both.cancel_scope.cancel()
                    await stream.send_all(piece)
                    left -= len(piece)
                both.cancel_scope.cancel()
        except* (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            # One end is closed, and leaving this block closes the other one.
            pass


async def _pump(source: trio.SocketStream, sink: trio.SocketStream) -> None:
    async for piece in source:
        await sink.send_all(piece)
