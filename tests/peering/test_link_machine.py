"""Two real stores that peer, in virtual time, under cuts, delays, crashes, lost history and restores: they converge."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import trio
from hypothesis import given, note, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from headway._gen.headway.peering import v1 as wire
from headway.peering import STATE_KIND, PeerLimits, Role, copies_partition
from headway.peering.stream import Copying
from headway.protobuf import copy_message, decode
from headway.resource import pb, resource_key
from headway.storage import MemoryBackend, Put, Within
from tests.helpers.resources import ACCOUNT, TEAM, Team
from tests.peering.link_kit import Message, Side, open_side

HISTORY = 8
"""The number of changes that a store keeps."""

EVERYTHING = Within()
LIMITS = PeerLimits(batch=2, window=4)
NAMES = ["ada", "ben", "cyd"]


class Step(NamedTuple):
    """A step of a story: an action on side 0 or 1, the name of a team, and the time that passes afterwards."""

    action: str
    side: int
    name: str
    seconds: float


steps = st.lists(
    st.builds(
        Step,
        st.sampled_from(["write", "write", "write", "delete", "pair", "cut", "crash", "restore", "fill", "wait"]),
        st.integers(0, 1),
        st.sampled_from(NAMES),
        st.sampled_from([0.0, 0.01, 0.3, 2.0, 130.0]),
    ),
    min_size=5,
    max_size=25,
)


class End:
    """One side: a store that outlives crashes, and the process on it, if it runs."""

    def __init__(self, name: str, role: Role) -> None:
        self.name = name
        self.role = role
        self.store = MemoryBackend(max_changes=HISTORY)
        self.side: Side | None = None
        self.serial = 0
        # The store that the copies are from, and the highest version of each original that a copy has had.
        self.copied_from = ""
        self.seen: dict[str, int] = {}

    async def copies(self) -> dict[str, tuple[str, int, list[str]]]:
        """Return the copies: uid and version of the original, and the members."""
        assert self.side is not None
        found = await self.side.host.client.list(TEAM, partition=copies_partition(self.name))
        return {
            each.name: (each.metadata["originUid"], int(each.metadata["originVersion"]), each.data.members)
            for each in found
        }

    async def originals(self) -> dict[str, tuple[str, list[str]]]:
        """Return the originals: uid and members."""
        assert self.side is not None
        found = await self.side.host.client.list(TEAM, partition="default")
        return {each.name: (each.uid, each.data.members) for each in found}


class Story:
    """Two ends, with a link that the steps open and cut."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.ends = [End("west", Role.ACCEPTS), End("east", Role.DIALS)]
        self._nursery = nursery
        self._link = trio.CancelScope()
        self._processes = [trio.CancelScope(), trio.CancelScope()]

    async def start(self, at: int) -> None:
        """Start the process of a side."""
        await self._nursery.start(self._live, at)

    async def _live(self, at: int, *, task_status: trio.TaskStatus[None]) -> None:
        end = self.ends[at]
        with trio.CancelScope() as self._processes[at]:
            async with open_side(end.name, end.role, TEAM, registry=(TEAM, ACCOUNT), store=end.store) as end.side:
                task_status.started()
                await trio.sleep_forever()

    def connect(self, delay: float = 0.0) -> None:
        """Cut the link, and open another stream whose messages take this time."""
        self._link.cancel()
        a, b = self.ends[0].side, self.ends[1].side
        assert a is not None
        assert b is not None
        scope = self._link = trio.CancelScope()

        async def run() -> None:
            with scope:
                async with trio.open_nursery() as nursery:
                    to_a, at_a = await nursery.start(_wire, delay)
                    to_b, at_b = await nursery.start(_wire, delay)
                    async with trio.open_nursery() as streams:
                        streams.start_soon(_run, a, to_b, at_a)
                        streams.start_soon(_run, b, to_a, at_b)
                    nursery.cancel_scope.cancel()

        self._nursery.start_soon(run)

    async def take(self, step: Step) -> None:
        """Take a step."""
        end = self.ends[step.side]
        assert end.side is not None
        client = end.side.host.client
        end.serial += 1
        if step.action == "write":
            await client.apply(TEAM.new(step.name, Team(members=[str(end.serial)])))
        elif step.action == "delete":
            await client.delete(TEAM.id(step.name))
        elif step.action == "pair":
            self.connect(step.seconds if step.seconds < 1 else 0.0)
        elif step.action == "cut":
            self._link.cancel()
        elif step.action == "fill":
            # The changes so far are no longer kept.
            for _ in range(HISTORY + 2):
                end.serial += 1
                await client.apply(TEAM.new("filler", Team(members=[str(end.serial)]), namespace="default"))
        elif step.action in ("crash", "restore"):
            self._link.cancel()
            self._processes[step.side].cancel()
            if step.action == "restore":
                end.store = await _restored(end)
                end.seen = {}
            await self.start(step.side)
        await trio.sleep(step.seconds)

    async def check(self) -> None:
        """Check that no copy has become older while the other side has the same store."""
        for end in self.ends:
            assert end.side is not None
            imports = await imported(end.side)
            if imports is None or not imports.complete or imports.position is None:
                continue
            if imports.position.store_id != end.copied_from:
                end.copied_from, end.seen = imports.position.store_id, {}
            for name, (_, version, _) in (await end.copies()).items():
                assert version >= end.seen.get(name, 0), f"{end.name}: {name} went back to {version}"
                end.seen[name] = version

    async def converge(self) -> None:
        """Open a stream, and check that the copies become equal to the originals."""
        for _ in range(3):
            self.connect()
            await trio.sleep(100)
            if await self._equal(0) and await self._equal(1):
                return
        for at in (0, 1):
            assert await self._equal(at), (await self.ends[at].copies(), await self.ends[1 - at].originals())

    async def _equal(self, at: int) -> bool:
        mine, theirs = self.ends[at], self.ends[1 - at]
        progress = None if mine.side is None else mine.side.entry.progress
        if progress is None or progress.copying is not Copying.CURRENT:
            return False
        here = {name: (uid, members) for name, (uid, _, members) in (await mine.copies()).items()}
        return here == await theirs.originals()


async def imported(side: Side) -> wire.Imported | None:
    """Return what is stored beside the copies of a side."""
    stored, _ = await side.host.backend.read(STATE_KIND, ("", "", side.entry.peering.id.uid.lower()))
    return None if stored is None or stored.data is None else decode(wire.Imported, stored.data.value)


async def _run(side: Side, send: Any, receive: Any) -> None:
    await side.run(send, receive, limits=LIMITS)


async def _wire(delay: float, *, task_status: trio.TaskStatus[Any]) -> None:
    """Carry messages in order, each with a delay."""
    send, taken = trio.open_memory_channel[Message](0)
    put, receive = trio.open_memory_channel[Message](0)
    task_status.started((send, receive))
    async with put:
        async for message in taken:
            await trio.sleep(delay)
            try:
                await put.send(message)
            except trio.BrokenResourceError:
                return


async def _restored(end: End) -> MemoryBackend:
    """Return another store with the resources of a side, as a restored backup is. The newest write is lost."""
    restored = MemoryBackend(max_changes=HISTORY)
    newest = max(
        [int(each.version) for each in (await end.store.list(TEAM.kind, EVERYTHING))[0] if _is_original(each)],
        default=0,
    )
    for kind in await end.store.kinds():
        for each in (await end.store.list(kind, EVERYTHING))[0]:
            if kind == TEAM.kind and _is_original(each) and int(each.version) == newest:
                continue
            copied = copy_message(each)
            copied.version = ""
            await restored.commit((Put(kind, resource_key(each), copied, ""),))
    return restored


def _is_original(resource: pb.Resource) -> bool:
    return resource_key(resource)[0] == "default"


def story(found: list[Step]) -> Callable[[], Awaitable[None]]:
    """Return a function that plays a story."""

    async def play() -> None:
        with trio.fail_after(20_000):
            async with trio.open_nursery() as nursery:
                told = Story(nursery)
                for at in (0, 1):
                    await told.start(at)
                told.connect()
                for step in found:
                    note(str(step))
                    await told.take(step)
                    await told.check()
                await told.converge()
                nursery.cancel_scope.cancel()

    return play


@settings(max_examples=max(10, settings.default.max_examples // 2))  # type: ignore[union-attr]  # a profile is loaded
@given(steps)
def test_two_stores_converge_whatever_happens_to_the_link_and_the_processes(found: list[Step]) -> None:
    """No copy becomes older, except by a restore. In the end, both sides have exactly the other's originals."""
    trio.run(story(found), clock=MockClock(autojump_threshold=0))
