"""Controllers of several versions of a kind, with converters and without."""

from __future__ import annotations

import trio
from trio.testing import MockClock

import headway
from headway.events import ConversionFailed, IndexFailed, PayloadUndecodable, Reconciled
from headway.protobuf import decode
from headway.resource import ResourceType
from headway.storage import MemoryBackend


@headway.message
class Old:
    text: str = headway.field(1)


@headway.message
class New:
    text: str = headway.field(1)
    more: str = headway.field(2)


@headway.message
class Job:
    name: str = headway.field(1)


async def test_c5_write_in_another_version_is_visible_in_both(autojump_clock: MockClock) -> None:
    """After the write, the resource is absent in the old version and present in the new version."""
    app = headway.App("versions")
    old: ResourceType[Old] = app.type("versions", "v1", "Note", Old)
    new: ResourceType[New] = app.type("versions", "v2", "Note", New)
    job = app.type("versions", "v1", "Job", Job)
    seen: list[tuple[bool, bool]] = []
    done = trio.Event()

    @app.controller(
        manages=job,
        watches=[headway.watch(old, headway.mappers.same_name()), headway.watch(new, headway.mappers.same_name())],
    )
    async def convert(rt: headway.Runtime, _: headway.Request) -> None:
        found = rt.cache.get(old, "one")
        if found is not None:
            await rt.client.write(new.new("one", New(text=found.data.text)))
            seen.append((rt.cache.get(old, "one") is None, rt.cache.get(new, "one") is not None))
            done.set()

    async with headway.open_engine("memory:", app) as engine:
        await engine.client.write(old.new("one", Old(text="x")))
        await engine.client.write(job.new("go", Job()))
        with trio.fail_after(60):
            await done.wait()
    assert seen == [(True, True)]


def converted(name: str = "converted") -> tuple[headway.App, ResourceType[Old], ResourceType[New]]:
    """Return an app whose two versions have converters. A text of digits cannot be converted."""
    app = headway.App(name)
    old: ResourceType[Old] = app.type("versions", "v1", "Note", Old)
    new: ResourceType[New] = app.type("versions", "v2", "Note", New)

    def up(note: Old) -> New:
        if note.text.isdecimal():
            raise ValueError("no text")
        return New(text=note.text, more="")

    app.converter(old, new, up=up, down=lambda note: Old(text=note.text))
    return app, old, new


async def test_c5_write_is_visible_at_once_in_every_convertible_version(autojump_clock: MockClock) -> None:
    """The controller that made the write sees it in its caches of both versions. An update removes it from no cache."""
    app, old, new = converted()
    job = app.type("versions", "v1", "Job", Job)
    seen: list[tuple[str, str]] = []
    last: list[headway.Resource[New] | None] = []
    gone: list[tuple[bool, bool]] = []
    done = trio.Event()

    @app.controller(
        manages=job,
        watches=[headway.watch(old, headway.mappers.same_name()), headway.watch(new, headway.mappers.same_name())],
    )
    async def convert(rt: headway.Runtime, request: headway.Request) -> None:
        if rt.cache.get(job, request.id) is None or done.is_set():
            return
        for text in ("a", "b"):
            found = rt.cache.get(old, "one") or old.new("one", Old())
            found.data.text = text
            await rt.client.write(found)
            seen.append((_text(rt.cache.get(old, "one")), _text(rt.cache.get(new, "one"))))
            newer = rt.cache.get(new, "one")
            assert newer is not None
            newer.data.text += "!"
            newer.data.more = "kept"
            await rt.client.write(newer)
            seen.append((_text(rt.cache.get(old, "one")), _text(rt.cache.get(new, "one"))))
        last.append(rt.cache.get(new, "one"))
        await rt.client.delete(old.id("one"))
        gone.append((rt.cache.get(old, "one") is None, rt.cache.get(new, "one") is None))
        done.set()

    async with headway.open_engine("memory:", app) as engine:
        await engine.client.write(job.new("go", Job()))
        with trio.fail_after(60):
            await done.wait()
    assert seen == [("a", "a"), ("a!", "a!"), ("b", "b"), ("b!", "b!")]
    assert last[0] is not None
    assert last[0].data.more == "kept"
    assert gone == [(True, True)]


def _text(found: headway.Resource[Old] | headway.Resource[New] | None) -> str:
    assert found is not None
    return found.data.text


async def test_c6_controllers_of_each_version_reconcile_changes_of_all_versions(autojump_clock: MockClock) -> None:
    """The changes include deletions, and resources that were stored before the converter was declared."""
    former = headway.App("former")
    plain: ResourceType[Old] = former.type("versions", "v1", "Note", Old)
    app, old, new = converted()
    seen: dict[str, list[str]] = {"v1": [], "v2": []}

    @app.controller(manages=old)
    async def olds(rt: headway.Runtime, request: headway.Request) -> None:
        found = rt.cache.get(old, request.id)
        seen["v1"].append("gone" if found is None else found.data.text)

    @app.controller(manages=new)
    async def news(rt: headway.Runtime, request: headway.Request) -> None:
        found = rt.cache.get(new, request.id)
        seen["v2"].append("gone" if found is None else found.data.text)

    store = MemoryBackend()
    async with headway.open_engine(store, former) as engine:
        await engine.client.write(plain.new("one", Old(text="a")))
    async with headway.open_engine(store, app) as engine:
        with trio.fail_after(60):
            await engine.wait_idle()
            await engine.client.apply(new.new("one", New(text="b")))
            await engine.wait_idle()
            await engine.client.apply(old.new("one", Old(text="c")))
            await engine.wait_idle()
            await engine.client.delete(old.id("one"))
            await engine.wait_idle()
    assert seen == {"v1": ["a", "b", "c", "gone"], "v2": ["a", "b", "c", "gone"]}


async def test_c6_new_converter_hides_no_deletion(autojump_clock: MockClock) -> None:
    """A run reads the deletions since the previous run, whichever versions that run used."""
    seen: list[str] = []

    def declare(app: headway.App, type: ResourceType[Old]) -> None:
        @app.controller(manages=type)
        async def olds(rt: headway.Runtime, request: headway.Request) -> None:
            found = rt.cache.get(type, request.id)
            seen.append("gone" if found is None else found.data.text)

    former, idle = headway.App("program"), headway.App("idle")
    plain: ResourceType[Old] = former.type("versions", "v1", "Note", Old)
    idle.type("versions", "v1", "Note", Old)
    declare(former, plain)
    app, old, _ = converted("program")
    declare(app, old)
    store = MemoryBackend()
    async with headway.open_engine(store, former) as engine:
        await engine.client.write(plain.new("one", Old(text="a")))
        with trio.fail_after(60):
            await engine.wait_idle()
    async with headway.open_engine(store, idle) as engine:
        await engine.client.delete(plain.id("one"))
    async with headway.open_engine(store, app) as engine:
        with trio.fail_after(60):
            await engine.wait_idle()
    assert seen == ["a", "gone"]


async def test_unconvertible_resource_fails_only_its_own_reconciles(autojump_clock: MockClock) -> None:
    """The reconciles fail with an error that names the resource. Indexes leave it out, and it is reported once."""
    former = headway.App("former")
    plain: ResourceType[Old] = former.type("versions", "v1", "Note", Old)
    app, old, new = converted()
    done: list[str] = []
    heard: list[object] = []
    settled = trio.Event()

    def hear(event: object) -> None:
        heard.append(event)
        if len(done) >= 2 and any(isinstance(each, Reconciled) and each.error for each in heard):
            settled.set()

    by_text = headway.indexes.by(new, "text", lambda note: note.data.text)

    @app.controller(manages=new, indexes=[by_text])
    async def news(rt: headway.Runtime, request: headway.Request) -> None:
        found = rt.cache.get(new, request.id)
        assert found is not None
        done.append(found.data.text)

    store = MemoryBackend()
    async with headway.open_engine(store, former) as engine:
        for name, text in (("a", "a"), ("bad", "123"), ("c", "c")):
            await engine.client.write(plain.new(name, Old(text=text)))
    async with headway.open_engine(store, app, report=hear) as engine:
        with trio.fail_after(60):
            await settled.wait()
        assert sorted(done) == ["a", "c"]
        failed = next(each for each in heard if isinstance(each, Reconciled) and each.error)
        assert isinstance(failed.error, headway.errors.ConversionFailed)
        assert "Note bad is stored as versions.v1.Note" in str(failed.error)
        reported = [(str(each.type), each.id.name, each.wanted) for each in heard if isinstance(each, ConversionFailed)]
        assert reported == [("versions.v1.Note", "bad", "v2")]
        await engine.client.write(old.new("bad", Old(text="good")))
        with trio.fail_after(60):
            await engine.wait_idle()
    assert "good" in done


@headway.message
class Apple:
    text: str = headway.field(1)


@headway.message
class Pear:
    text: str = headway.field(1)


async def test_index_leaves_out_an_unconvertible_resource_whatever_its_type_is_called(
    autojump_clock: MockClock,
) -> None:
    """The marker in place of its payload has the name of the stored type. By chance, this one decodes as a message."""
    former, app = headway.App("former"), headway.App("later")
    plain: ResourceType[Apple] = former.type("apple", "v1", "Ha", Apple)
    decode(Pear, str(plain.name).encode())
    old: ResourceType[Apple] = app.type("apple", "v1", "Ha", Apple)
    new: ResourceType[Pear] = app.type("apple", "v2", "Ha", Pear)

    def up(_: Apple) -> Pear:
        raise ValueError("no text")

    app.converter(old, new, up=up, down=lambda note: Apple(text=note.text))
    by_text = headway.indexes.by(new, "text", lambda note: note.data.text)
    found: list[list[str]] = []
    heard: list[object] = []

    @app.controller(manages=new, indexes=[by_text])
    async def news(rt: headway.Runtime, _: headway.Request) -> None:
        found.append([each.name for each in rt.cache.index(by_text, "a")])

    store = MemoryBackend()
    async with headway.open_engine(store, former) as engine:
        await engine.client.write(plain.new("one", Apple(text="a")))
    async with headway.open_engine(store, app, report=heard.append) as engine:
        with trio.fail_after(60):
            await engine.wait_idle()
    assert found == [[]]
    (undecodable,) = (each for each in heard if isinstance(each, PayloadUndecodable))
    assert "is stored as apple.v1.Ha" in undecodable.problem
    assert not any(isinstance(each, IndexFailed) for each in heard)
