"""Watches that are resumed by a program with other converters than the program that began them."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from grpclib.const import Status
from typing_extensions import override

from headway.client import Client, Deleted, Progress, SnapshotEnd, Upserted
from headway.errors import HistoryCompacted
from headway.resource import ANY_VERSIONS, Bookmark, Changes, Position, Registry, StreamItem, pb
from headway.rpc import InProcessChannel
from headway.service import ResourceService
from headway.storage import MemoryBackend, SqliteBackend, Watch, open_watch
from headway.versions import Versions
from tests.helpers.calls import Calls, at, refused, take
from tests.helpers.declared import a_type
from tests.helpers.versions import V1, V2, V3, a_team, crew, roster, versions, without_converters


def opened(tmp_path: Path) -> AbstractAsyncContextManager[SqliteBackend]:
    return SqliteBackend(str(tmp_path / "staff.db"))


async def left_off(calls: Calls) -> Position:
    """Return the position of a watch of v1 that has received everything."""
    async with calls.watch(a_type(V1)) as items:
        while True:
            (item,) = await take(items, 1)
            if not isinstance(item, Changes) and hasattr(item, "position"):
                at_last: Position = item.position
                return at_last


class Closing(Watch):
    """A watch that counts in ``closed`` when it is closed."""

    def __init__(self, inner: Watch, closed: list[Watch]) -> None:
        self._inner = inner
        self._closed = closed

    @override
    async def next(self) -> StreamItem:
        return await self._inner.next()

    @override
    def close(self) -> None:
        self._closed.append(self._inner)


async def test_watch_that_cannot_resume_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store may hold something for each watch."""
    closed: list[Watch] = []

    async def opening(*given: Any) -> Watch:
        return Closing(await open_watch(*given), closed)

    monkeypatch.setattr("headway.service._watch_list.open_watch", opening)
    async with MemoryBackend() as store:
        calls = Calls(store, versions())
        position = store.position._replace(versions="v7")
        async with calls.watch(a_type(V1), resume_after=position.message()) as items:
            await refused(take(items, 1), Status.OUT_OF_RANGE, "contained versions")
    assert len(closed) == 1


@pytest.mark.parametrize(
    ("before", "after"),
    [(without_converters, versions), (versions, without_converters), (lambda: versions(newest=V2), versions)],
)
async def test_watch_with_changed_converters_restarts_with_a_snapshot(tmp_path: Path, before: Any, after: Any) -> None:
    """A converter was declared or removed, or a further one was declared. Watches of other types continue.

    A position of another store is refused as such all the same: a snapshot would hide that it is another one.
    """
    async with opened(tmp_path) as store:
        calls = Calls(store, before())
        await calls.write(a_team(V1, roster("ada"), "a"))
        await calls.write(a_team(V2, crew(("bea", "")), "b"))
        position = await left_off(calls)
    async with opened(tmp_path) as store:
        calls = Calls(store, after())
        async with calls.watch(a_type(V1), resume_after=position.message()) as items:
            await refused(take(items, 1), Status.OUT_OF_RANGE, "contained versions", "begin with")
        async with calls.watch(a_type(V1), resume_after=position._replace(store_id="another").message()) as items:
            await refused(take(items, 1), Status.DATA_LOSS)
        now = await left_off(calls)
        async with calls.watch(a_type(V1), resume_after=now.message()) as items:
            assert await take(items, 1) == [Bookmark(now, resumed=True)]


@pytest.mark.parametrize("known", [without_converters, versions])
async def test_watch_with_the_same_converters_continues(tmp_path: Path, known: Any) -> None:
    async with opened(tmp_path) as store:
        position = await left_off(Calls(store, known()))
    async with opened(tmp_path) as store:
        calls = Calls(store, known())
        await calls.write(a_team(V1, roster("ada")))
        async with calls.watch(a_type(V1), resume_after=position.message()) as items:
            first, second = await take(items, 2)
            assert isinstance(first, Bookmark)
            assert first.resumed
            assert isinstance(second, Changes)


async def test_list_reports_its_versions(tmp_path: Path) -> None:
    """A watch from the list's position is refused, too. A caller that wants only deletions asks for any versions."""
    everywhere = pb.Tenancy(partition="*", namespace="*")
    async with opened(tmp_path) as store:
        position = at((await Calls(store, without_converters()).list_type(a_type(V1), everywhere)).position)
        assert position.versions == ""
        calls = Calls(store, versions())
        async with calls.watch(a_type(V1), resume_after=position.message()) as items:
            await refused(take(items, 1), Status.OUT_OF_RANGE, "contained versions v1;")
        assert at((await calls.list_type(a_type(V3), everywhere)).position).versions == "v1,v2,v3"
        async with calls.watch(a_type(V1), resume_after=position._replace(versions=ANY_VERSIONS).message()) as items:
            assert isinstance((await take(items, 1))[0], Bookmark)


async def test_client_gets_history_compacted_and_reads_every_object_in_a_new_watch(tmp_path: Path) -> None:
    def client(store: SqliteBackend, known: Registry) -> Client:
        return Client(InProcessChannel(ResourceService(store, known, forms=Versions(known))), known)

    async with opened(tmp_path) as store:
        former = client(store, without_converters())
        await former.write(V1.new("a", roster("ada")))
        await former.write(V2.new("b", crew(("bea", ""))))
        position: Position | None = None
        async with former.watch(V1) as events:
            async for event in events:
                if isinstance(event, SnapshotEnd | Progress):
                    position = event.position
                    break
    async with opened(tmp_path) as store:
        now = client(store, versions())
        with pytest.raises(HistoryCompacted, match="contained versions v1;"):
            async with now.watch(V1, resume_after=position) as events:
                await anext(events)
        seen: dict[str, list[str]] = {}
        async with now.watch(V1) as events:
            async for event in events:
                if isinstance(event, SnapshotEnd):
                    break
                assert isinstance(event, Upserted | Deleted)
                seen[event.resource.id.name] = event.resource.data.names
        assert seen == {"a": ["ada"], "b": ["bea"]}
