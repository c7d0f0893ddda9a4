"""Streams of a real API server: snapshots, changes, bookmarks on demand, and changes that come late."""

from __future__ import annotations

import gc
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from headway import kubernetes
from headway.api import Code, NotBegun, of_call
from headway.client import Client, Deleted, Progress, SnapshotEnd, Upserted
from headway.errors import (
    FailedPrecondition,
    HistoryCompacted,
    NotFound,
    PayloadError,
    PermissionDenied,
    StoreChanged,
    Unavailable,
)
from headway.kubernetes import KubernetesType, _cluster, _watch, _watched
from headway.kubernetes._objects import resource_of
from headway.kubernetes._open import open_channel
from headway.kubernetes._watch import TypeWatch
from headway.kubernetes._watched import Watched
from headway.resource import Bookmark, Changes, EndOfSnapshot, SnapshotChunk, StreamItem, Within, pb
from tests.helpers.kube_server import KubeServer
from tests.kubernetes.connected import Program, connected, deployment
from tests.kubernetes.gates import GatedServer
from tests.kubernetes.test_kube_contract import until

SOON = 20.0


def new_watch(server: Any, type: KubernetesType[Any], range: Within, **options: Any) -> TypeWatch:
    def made(object: dict[str, Any], _: bool) -> pb.Resource:
        return resource_of(type, object, lambda *_: None)

    return TypeWatch(server, Watched(type, range), made, "store", **options)


@asynccontextmanager
async def begun(watch: TypeWatch) -> AsyncIterator[AsyncIterator[StreamItem]]:
    """Open a stream and read its snapshot."""
    async with watch.items() as items:
        while not isinstance(await anext(items), EndOfSnapshot):
            pass
        yield items


async def read_on(watch: TypeWatch) -> None:
    """Read a stream to its end."""
    async with watch.items() as items:
        async for _ in items:
            pass


def told(item: StreamItem) -> list[tuple[str, bool]]:
    """Return the names of changed objects, and whether each was deleted."""
    assert isinstance(item, Changes)
    return [(change.resource.id.name, change.deleted) for change in item.changes if change.resource.id is not None]


async def test_a_snapshot_and_its_changes(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    program = Program()
    type = program.config_map
    async with connected(kube, program, namespace, tmp_path) as (client, server, _):
        first = await client.write(type.new("first", {"data": {"nel": "a\x85b\u2028c"}}, namespace=namespace))
        watch = new_watch(server, type, Within(namespace=namespace))
        with trio.fail_after(SOON):
            async with watch.items() as items:
                chunk = await anext(items)
                assert isinstance(chunk, SnapshotChunk)
                assert [type.view(each).data["data"] for each in chunk.resources] == [{"nel": "a\x85b\u2028c"}]
                end = await anext(items)
                assert isinstance(end, EndOfSnapshot)
                assert end.position.revision >= int(first.version)
                second = await client.write(type.new("second", namespace=namespace))
                item = await anext(items)
                assert told(item) == [("second", False)]
                assert isinstance(item, Changes)
                assert item.changes[0].revision == int(second.version)
                await client.delete(second)
                assert told(await anext(items)) == [("second", True)]
                assert set(watch.delivered) == {("default", namespace, "first")}


@pytest.mark.parametrize("small", [500, 1])
async def test_an_idle_stream_tells_how_far_it_is(
    kube: KubeServer, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: int
) -> None:
    """C4 rests on it: by a list if there are few objects, and else by a second watch."""
    monkeypatch.setattr(_watch, "SMALL", small)
    monkeypatch.setattr(_watch, "_MOST_LISTED", small)
    program = Program()
    async with connected(kube, program, namespace, tmp_path) as (client, server, _):
        for name in ("a", "b", "c"):
            await client.write(program.config_map.new(name, namespace=namespace))
        gated = GatedServer(server)
        watch = new_watch(gated, program.config_map, Within(namespace=namespace))
        async with begun(watch) as items:
            other = await client.write(program.deployment.new("web", deployment(), namespace=namespace))
            with trio.move_on_after(0.5) as silence:
                await anext(items)
            assert silence.cancelled_caught
            watch.ask(int(other.version))
            with trio.fail_after(SOON):
                bookmark = await anext(items)
            assert isinstance(bookmark, Bookmark)
            assert bookmark.position.revision >= int(other.version)
        watches = [method for method, _ in gated.calls].count("WATCH")
        assert watches == (1 if small > 1 else 2)


class SlowPosition(GatedServer):
    """An API server whose answers to reads of one object wait for ``may``."""

    def __init__(self, server: Any) -> None:
        super().__init__(server)
        self.may = trio.Event()

    async def call(self, method: str, path: str, **options: Any) -> Any:
        answer = await super().call(method, path, **options)
        if options.get("params", {}).get("limit") == "1":
            await self.may.wait()
        return answer


async def test_a_stream_that_resumes_says_so_before_a_barrier(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    """Its reader may ask how far it is at once. Another item before the bookmark would break the stream."""
    program = Program()
    async with connected(kube, program, namespace, tmp_path) as (client, server, _):
        first = await client.write(program.config_map.new("first", namespace=namespace))
        second = await client.write(program.config_map.new("second", namespace=namespace))
        slow = SlowPosition(server)
        watch = new_watch(slow, program.config_map, Within(namespace=namespace), resume=int(first.version))
        async with watch.items() as items:
            watch.ask(int(second.version))
            with trio.move_on_after(1.5) as silence:
                await anext(items)
            assert silence.cancelled_caught
            slow.may.set()
            with trio.fail_after(SOON):
                bookmark = await anext(items)
                assert isinstance(bookmark, Bookmark)
                assert (bookmark.resumed, bookmark.position.revision) == (True, int(first.version))
                assert told(await anext(items)) == [("second", False)]


@pytest.mark.parametrize("small", [500, 1])
async def test_no_late_change_is_lost(
    kube: KubeServer, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: int
) -> None:
    """C6: an object that was created and deleted while the stream was behind is delivered, and no change twice."""
    monkeypatch.setattr(_watch, "SMALL", small)
    monkeypatch.setattr(_watch, "_MOST_LISTED", small)
    program = Program()
    type = program.config_map
    async with connected(kube, program, namespace, tmp_path) as (client, server, _):
        gated = GatedServer(server)
        gated.gate = gate = trio.Event()
        for name in ("a", "b"):
            await client.write(type.new(name, namespace=namespace))
        watch = new_watch(gated, type, Within(namespace=namespace))
        async with begun(watch) as items:
            # Further watches are not delayed.
            gated.gate = None
            await client.delete(await client.write(type.new("short", namespace=namespace)))
            watch.ask(await watch.position())
            found: list[list[tuple[str, bool]]] = []
            with trio.fail_after(SOON):
                # The list ends with a bookmark, and the second watch perhaps with the last change.
                while not isinstance(item := await anext(items), Bookmark):
                    found.append(told(item))
                    if found[-1] == [("short", True)]:
                        break
            assert found == ([] if small > 1 else [[("short", False)], [("short", True)]])
            assert [key[2] for key in watch.delivered] == ["a", "b"]
            gate.set()
            await client.write(type.new("next", namespace=namespace))
            with trio.fail_after(SOON):
                while isinstance(item := await anext(items), Bookmark):
                    pass
            last = told(item)
            late = [("short", False), ("short", True)] if small > 1 else []
            assert last == [*late, ("next", False)]


async def test_a_late_change_needs_no_other(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    """C6: a second watch tells whether more is late, and its bookmark is where it is delivered."""
    program = Program()
    type = program.config_map
    async with connected(kube, program, namespace, tmp_path) as (client, server, _):
        gated = GatedServer(server)
        gated.gate = gate = trio.Event()
        watch = new_watch(gated, type, Within(namespace=namespace))
        async with begun(watch) as items:
            gated.gate = None
            await client.delete(await client.write(type.new("short", namespace=namespace)))
            watch.ask(await watch.position())
            with trio.fail_after(SOON):
                while not isinstance(await anext(items), Bookmark):
                    pass
                gate.set()
                # Of another type: only the revision moves.
                await client.write(program.deployment.new("web", deployment(), namespace=namespace))
                while isinstance(item := await anext(items), Bookmark):
                    pass
            assert told(item) == [("short", False), ("short", True)]


async def test_a_late_change_survives_a_new_stream(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    """C6: the next stream begins where the open watch stood, and not where a list has moved the frontier."""
    program = Program()
    type = program.config_map
    async with connected(kube, program, namespace, tmp_path) as (client, server, _):
        gated = GatedServer(server)
        gated.gate = trio.Event()
        first = new_watch(gated, type, Within(namespace=namespace))
        async with begun(first) as items:
            gated.gate = None
            await client.delete(await client.write(type.new("short", namespace=namespace)))
            first.ask(await first.position())
            with trio.fail_after(SOON):
                while not isinstance(await anext(items), Bookmark):
                    pass
        second = new_watch(gated, type, Within(namespace=namespace), resume=first.frontier, before=first)
        await client.write(program.deployment.new("web", deployment(), namespace=namespace))
        async with second.items() as items:
            with trio.fail_after(SOON):
                while isinstance(item := await anext(items), Bookmark):
                    pass
        assert told(item) == [("short", False), ("short", True)]


async def test_a_late_change_that_was_not_read_survives_a_new_stream(
    kube: KubeServer, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C6: a stream ends before its reader has taken all. The server would send the others again, but not this one."""
    program = Program()
    type = program.config_map
    scope = type.within(namespace=namespace)
    watches: list[TypeWatch] = []
    begin = TypeWatch.__init__

    def noted(self: TypeWatch, *args: Any, **options: Any) -> None:
        begin(self, *args, **options)
        watches.append(self)

    monkeypatch.setattr(TypeWatch, "__init__", noted)
    async with connected(kube, program, namespace, tmp_path) as (person, server, _):
        gated = GatedServer(server)
        gated.gate = gate = trio.Event()
        async with open_channel(gated, program.app.registry, namespace) as channel:  # type: ignore[arg-type]  # the same methods
            client = Client(channel, program.app.registry)
            with trio.fail_after(SOON):
                async with client.watch(scope) as events:
                    assert isinstance(await anext(events), SnapshotEnd)
                    await person.delete(await person.write(type.new("short", namespace=namespace)))
                    watches[0].ask(await watches[0].position())
                    reached = await anext(events)
                    assert isinstance(reached, Progress)
                    following = await person.write(type.new("next", namespace=namespace))
                    gate.set()
                    await until(lambda: watches[0].frontier >= int(following.version))
                found: list[tuple[str, bool]] = []
                async with client.watch(scope, resume_after=reached.position) as events:
                    while ("next", False) not in found:
                        event = await anext(events)
                        if isinstance(event, Upserted | Deleted):
                            found.append((event.resource.name, isinstance(event, Deleted)))
                assert found == [("short", False), ("short", True), ("next", False)]


async def test_a_barrier_waits_for_what_the_list_has_shown(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    """A list says only how far the server is, and not what the stream has delivered."""
    program = Program()
    type = program.config_map
    async with connected(kube, program, namespace, tmp_path) as (client, server, _):
        gated = GatedServer(server)
        gated.gate = gate = trio.Event()
        watch = new_watch(gated, type, Within(namespace=namespace))
        async with begun(watch) as items:
            made = await client.write(type.new("held", namespace=namespace))
            watch.ask(int(made.version))
            with trio.move_on_after(1.0) as silence:
                await anext(items)
            assert silence.cancelled_caught
            gate.set()
            with trio.fail_after(SOON):
                assert told(await anext(items)) == [("held", False)]
            assert watch.frontier == int(made.version)


async def test_a_stream_that_is_stuck_is_helped_by_a_second_watch(
    kube: KubeServer, namespace: str, tmp_path: Path
) -> None:
    program = Program()
    type = program.config_map
    async with connected(kube, program, namespace, tmp_path) as (client, server, _):
        gated = GatedServer(server)
        gated.gate = gate = trio.Event()
        watch = new_watch(gated, type, Within(namespace=namespace))
        async with begun(watch) as items:
            gated.gate = None
            made = await client.write(type.new("held", namespace=namespace))
            watch.ask(int(made.version))
            with trio.fail_after(SOON):
                assert told(await anext(items)) == [("held", False)]
            gate.set()
            await client.delete(made)
            with trio.fail_after(SOON):
                while isinstance(item := await anext(items), Bookmark):
                    pass
                assert told(item) == [("held", True)]


async def test_a_type_with_an_order_of_its_own_is_an_error(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    program = Program()
    async with connected(kube, program, namespace, tmp_path) as (_, server, _):
        watch = new_watch(server, program.config_map, Within(namespace=namespace))
        async with begun(watch) as items:
            watch.ask(10**15)
            with trio.fail_after(SOON), pytest.raises(FailedPrecondition, match=r"core\.v1\.ConfigMap is at revision"):
                await anext(items)


async def test_an_object_that_leaves_a_selector_is_deleted_in_its_old_state(
    kube: KubeServer, namespace: str, tmp_path: Path
) -> None:
    program = Program()
    type = program.config_map
    async with connected(kube, program, namespace, tmp_path) as (client, server, _):
        made = await client.write(type.new("web", namespace=namespace, metadata={"tier": "gold"}))
        watch = new_watch(server, type, Within("*", namespace, "", (("tier", "gold"),)))
        async with begun(watch) as items:
            made.metadata["tier"] = "iron"
            changed = await client.write(made)
            with trio.fail_after(SOON):
                item = await anext(items)
            assert isinstance(item, Changes)
            (change,) = item.changes
            assert (change.deleted, change.revision) == (True, int(changed.version))
            assert change.resource.metadata["tier"] == "gold"


async def test_a_type_that_the_cluster_lacks_is_not_empty(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    from headway import App, kubernetes

    app = App("lacking")
    type = kubernetes.builtin(app, "absent.example.org/v1", "Gadget")
    async with connected(kube, Program(), namespace, tmp_path) as (_, server, _):
        watch = new_watch(server, type, Within(namespace=namespace))
        with trio.fail_after(SOON), pytest.raises(NotFound, match="does not serve"):
            async with begun(watch):
                pass


async def test_a_stream_above_the_cluster_is_refused(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    """An API server would answer it with silence."""
    program = Program()
    async with connected(kube, program, namespace, tmp_path) as (_, server, _):
        watch = new_watch(server, program.config_map, Within(namespace=namespace), resume=10**15)
        with trio.fail_after(SOON), pytest.raises(StoreChanged, match="were delivered"):
            async with watch.items() as items:
                await anext(items)


async def test_a_stream_goes_on_after_the_server_has_ended_the_watch(
    kube: KubeServer, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_watched, "_LASTS", (1, 1))
    program = Program()
    type = program.config_map
    async with connected(kube, program, namespace, tmp_path) as (client, server, _):
        gated = GatedServer(server)
        watch = new_watch(gated, type, Within(namespace=namespace))
        async with begun(watch) as items:
            with trio.fail_after(SOON):
                while [method for method, _ in gated.calls].count("WATCH") < 3:  # noqa: ASYNC110  # the server ends them
                    await trio.sleep(0.05)
                await client.write(type.new("web", namespace=namespace))
                while isinstance(item := await anext(items), Bookmark):
                    pass
                assert told(item) == [("web", False)]
        # Before each watch, a consistent read: the server may have been put back.
        again = [number for number, (method, _) in enumerate(gated.calls) if method == "WATCH"][1:]
        assert {gated.calls[number - 1] for number in again} == {("GET", type.path(namespace))}


async def test_a_server_without_streamed_lists(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    """The snapshot comes in pages, and the watch begins where they were read."""
    program = Program()
    type = program.config_map
    with kube.second(["--feature-gates=WatchList=false"]) as other:
        async with connected(other, program, namespace, tmp_path) as (client, server, _):
            for number in range(3):
                await client.write(type.new(f"m{number}", namespace=namespace))
            gated = GatedServer(server)
            watch = new_watch(gated, type, Within(namespace=namespace))
            async with begun(watch) as items:
                assert len(watch.delivered) == 3
                await client.write(type.new("m3", namespace=namespace))
                with trio.fail_after(SOON):
                    assert told(await anext(items)) == [("m3", False)]
            assert ("GET", type.path(namespace)) in gated.calls


async def test_a_history_that_is_gone_is_said(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    """Another server on the same etcd has none from before its start."""
    program = Program()
    type = program.config_map
    async with connected(kube, program, namespace, tmp_path) as (client, _, _):
        made = await client.write(type.new("web", namespace=namespace))
    with kube.second() as other:
        async with connected(other, program, namespace, tmp_path) as (_, server, _):
            watch = new_watch(server, type, Within(namespace=namespace), resume=int(made.version) - 1)
            with trio.fail_after(SOON), pytest.raises(HistoryCompacted):
                await read_on(watch)


async def test_an_object_that_cannot_be_read_stops_no_other(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    program = Program()
    type = kubernetes.builtin(program.app, "apps/v1", "ControllerRevision")
    levels = 3000
    deep = '{"a":' * levels + "1" + "}" * levels

    def revision(name: str, data: str | bytes) -> bytes:
        body = data.encode() if isinstance(data, str) else data
        return b'{"metadata":{"name":"%s"},"revision":1,"data":%s}' % (name.encode(), body)

    async with connected(kube, program, namespace, tmp_path) as (client, server, _):
        path = f"/apis/apps/v1/namespaces/{namespace}/controllerrevisions"

        def make(name: str, data: str | bytes) -> None:
            headers = {"Content-Type": "application/json"}
            with kube.client() as person:
                person.post(path, content=revision(name, data), headers=headers).raise_for_status()

        make("deep", deep)
        make("flat", '{"a": ["[{", "\\"]"]}')
        watch = new_watch(server, type, Within(namespace=namespace))
        async with begun(watch) as items:
            make("deeper", deep)
            make("bytes", b'{"a": "\xff"}')
            make("last", "{}")
            with trio.fail_after(SOON):
                assert [told(await anext(items)) for _ in range(3)] == [
                    [("deeper", False)],
                    [("bytes", False)],
                    [("last", False)],
                ]
        readable: dict[str, object] = {}
        for name in ("bytes", "deep", "deeper", "flat", "last"):
            found = await client.read(type, name, namespace=namespace)
            try:
                readable[name] = found.data["data"]
            except PayloadError:
                readable[name] = None
        unreadable = dict.fromkeys(("bytes", "deep", "deeper"))
        assert readable == {**unreadable, "flat": {"a": ["[{", '"]']}, "last": {}}


class Cut(GatedServer):
    """An API server whose first watch ends in the middle of its snapshot."""

    @asynccontextmanager
    async def watch(self, path: str, params: Any = None, **options: Any) -> AsyncIterator[AsyncIterator[bytes]]:
        async def some(lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
            for _ in range(3):
                yield await anext(lines)
            raise of_call(NotBegun(Code.UNAVAILABLE, "the connection was lost"))

        async with super().watch(path, params, **options) as lines:
            yield some(lines)


async def test_c1_a_snapshot_that_is_cut_off_is_not_continued_by_a_list(
    kube: KubeServer, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was sent before may be gone when the list is read, and nothing would say so."""
    monkeypatch.setattr(_watch, "_CHUNK", 2)
    program = Program()
    async with connected(kube, program, namespace, tmp_path) as (client, server, _):
        for name in ("a", "b", "c", "d"):
            await client.write(program.config_map.new(name, namespace=namespace))
        with trio.fail_after(SOON), pytest.raises(Unavailable, match="connection was lost"):
            await read_on(new_watch(Cut(server), program.config_map, Within(namespace=namespace)))


async def test_a_stream_that_cannot_be_opened_says_not_that_it_has_resumed(
    kube: KubeServer, namespace: str, tmp_path: Path
) -> None:
    """Its reader would take it for one that works, and try the next one without a delay."""

    class Refused(GatedServer):
        @asynccontextmanager
        async def watch(self, *_: Any, **__: Any) -> AsyncIterator[AsyncIterator[bytes]]:
            raise of_call(PermissionDenied("you may not watch"))
            yield

    program = Program()
    async with connected(kube, program, namespace, tmp_path) as (client, server, _):
        made = await client.write(program.config_map.new("a", namespace=namespace))
        watch = new_watch(Refused(server), program.config_map, Within(namespace=namespace), resume=int(made.version))
        async with watch.items() as items:
            with trio.fail_after(SOON), pytest.raises(PermissionDenied):
                await anext(items)


async def test_a_larger_list_is_not_made_again_at_once(
    kube: KubeServer, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change that comes alone does not wait for a second watch, and many changes do not cost a list each."""
    monkeypatch.setattr(_watch, "SMALL", 1)
    monkeypatch.setattr(_watch, "_REST", 1000.0)
    program = Program()
    async with connected(kube, program, namespace, tmp_path) as (client, server, _):
        for name in ("a", "b"):
            await client.write(program.config_map.new(name, namespace=namespace))
        gated = GatedServer(server)
        watch = new_watch(gated, program.config_map, Within(namespace=namespace))
        async with begun(watch) as items:
            for watches in (1, 2):
                other = await client.write(program.deployment.new(f"web-{watches}", deployment(), namespace=namespace))
                watch.ask(int(other.version))
                with trio.fail_after(SOON):
                    bookmark = await anext(items)
                assert isinstance(bookmark, Bookmark)
                assert bookmark.position.revision >= int(other.version)
                assert [method for method, _ in gated.calls].count("WATCH") == watches


async def test_what_is_large_is_not_listed_to_ask_a_stream(
    kube: KubeServer, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenant's annotations would be read at each question."""
    monkeypatch.setattr(_watch, "_LIGHT", 1000)
    program = Program()
    async with connected(kube, program, namespace, tmp_path) as (client, server, _):
        for name in ("a", "b"):
            metadata = {"annotation:example.org/note": "x" * 600}
            await client.write(program.config_map.new(name, namespace=namespace, metadata=metadata))
        gated = GatedServer(server)
        watch = new_watch(gated, program.config_map, Within(namespace=namespace))
        async with begun(watch) as items:
            other = await client.write(program.deployment.new("web", deployment(), namespace=namespace))
            watch.ask(int(other.version))
            with trio.fail_after(SOON):
                assert isinstance(await anext(items), Bookmark)
        assert [method for method, _ in gated.calls].count("WATCH") == 2


async def test_ended_watches_are_forgotten(
    kube: KubeServer, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_cluster, "_CONTINUED", 0.0)
    program = Program()
    async with connected(kube, program, namespace, tmp_path) as (client, _, _):
        kept: list[weakref.ref[TypeWatch]] = []
        begin = TypeWatch.__init__

        def noted(self: TypeWatch, *args: Any, **options: Any) -> None:
            begin(self, *args, **options)
            kept.append(weakref.ref(self))

        monkeypatch.setattr(TypeWatch, "__init__", noted)
        for prefix in ("a", "b", "c"):
            async with client.watch(program.config_map.within(namespace=namespace, name_prefix=prefix)) as events:
                await anext(events)
        gc.collect()
        assert [each() is None for each in kept[:2]] == [True, True]
