"""Owners of fields in kinds with several versions: the fields are those of the version that has them."""

from __future__ import annotations

from typing import Any

import pytest

import headway
from headway import field
from headway.errors import FieldConflict, InvalidArgument
from headway.events import ignore
from headway.fields._owners import Request
from headway.fields._places import place_of
from headway.resource import FIELD_OWNERS
from headway.storage import MemoryBackend


@headway.message
class Old:
    size: int = field(1)
    note: str = field(2)


@headway.message
class New:
    count: int = field(1)
    note: str = field(2)
    zone: str = field(3)


def up(old: Old) -> New:
    return New(count=old.size, note=old.note)


def down(new: New) -> Old:
    if new.count == 13:
        raise ValueError("no such size")
    return Old(size=new.count, note=new.note)


def kinds(owned: str, *, converted: bool = True) -> tuple[headway.App, Any, Any]:
    app = headway.App("shop")
    old = app.type("shop", "v1", "Thing", Old, owned_fields=owned == "v1")
    new = app.type("shop", "v2", "Thing", New, owned_fields=owned == "v2")
    if converted:
        app.converter(old, new, up=up, down=down)
    return app, old, new


@pytest.mark.parametrize("owned", ["v1", "v2"])
async def test_write_in_another_version_takes_ownership_of_what_it_changes(owned: str) -> None:
    """Other fields keep their owners, and so does a field that has no counterpart in the writer's version."""
    app, old, new = kinds(owned)
    async with headway.open_engine("memory:", app, report=ignore) as engine:
        client = engine.client
        if owned == "v1":
            await client.apply(old.new("one", Old(size=3, note="n")), fields=["size", "note"], manager="ada")
            written = await client.read(new, "one")
            written.data.count = 4
        else:
            given = new.new("one", New(count=3, note="n", zone="z"))
            await client.apply(given, fields=["count", "note", "zone"], manager="ada")
            written = await client.read(old, "one")
            written.data.size = 4
        assert written.field_owners == {}
        await client.write(written)
        found = await client.read(old if owned == "v1" else new, "one")
        assert found.field_owners.keys() == ({"note"} if owned == "v1" else {"note", "zone"})
        # The next apply restores it, and nobody else's is in its way.
        restored = await client.apply(found, fields=["note"], manager="ada")
        assert restored.data == (Old(size=4, note="n") if owned == "v1" else New(count=4, note="n"))


async def test_apply_works_over_a_stored_version_other_than_its_own() -> None:
    """The resource is stored as v2, and the fields are those of v1."""
    app, old, new = kinds("v1")
    async with headway.open_engine("memory:", app, report=ignore) as engine:
        await engine.client.write(new.new("one", New(count=3, zone="z")))
        stored = await engine.client.apply(old.new("one", Old(note="n")), fields=["note"], manager="ada")
        assert stored.data == Old(size=3, note="n")
        assert (await engine.client.read(new, "one")).data == New(count=3, note="n", zone="z")
        assert (await engine.client.read(old, "one")).field_owners == {"note": ("ada",)}


async def test_write_that_cannot_be_read_as_the_owned_version_ends_all_ownership() -> None:
    """Nobody can say then what it has changed."""
    app, old, new = kinds("v1")
    async with headway.open_engine("memory:", app, report=ignore) as engine:
        await engine.client.apply(old.new("one", Old(size=3, note="n")), fields=["note"], manager="ada")
        written = await engine.client.read(new, "one")
        written.data.count = 13
        await engine.client.write(written)
        written = await engine.client.read(new, "one")
        assert FIELD_OWNERS not in written.metadata
        written.data.count = 3
        await engine.client.write(written)
        assert (await engine.client.read(old, "one")).data == Old(size=3, note="n")


async def test_without_a_converter_a_write_as_the_other_version_ends_all_ownership() -> None:
    app, old, new = kinds("v1", converted=False)
    async with headway.open_engine("memory:", app, report=ignore) as engine:
        await engine.client.apply(old.new("one", Old(size=3, note="n")), fields=["note"], manager="ada")
        stored = await engine.client.write(new.new("one", New(count=3, note="n")))
        assert FIELD_OWNERS not in stored.metadata


async def test_owners_of_another_version_count_for_nothing() -> None:
    """A program has moved the owned fields to v2. Values stay, and each manager owns what it applies next."""
    before, old, _ = kinds("v1")
    after, _, new = kinds("v2")
    async with MemoryBackend() as store:
        async with headway.open_engine(store, before, report=ignore) as engine:
            await engine.client.apply(old.new("one", Old(size=3, note="n")), fields=["size", "note"], manager="ada")
        async with headway.open_engine(store, after, report=ignore) as engine:
            assert (await engine.client.read(new, "one")).field_owners == {}
            stored = await engine.client.apply(new.new("one", New(count=5)), fields=["count"], manager="bob")
            assert stored.data == New(count=5, note="n")
            assert stored.field_owners == {"count": ("bob",)}


async def test_owners_of_another_version_are_gone_after_the_next_write() -> None:
    """They would count again, for fields that others have changed, if a program moved the owned fields back."""
    before, old, _ = kinds("v1")
    after, _, new = kinds("v2")
    async with MemoryBackend() as store:
        async with headway.open_engine(store, before, report=ignore) as engine:
            for name in ("written", "marked"):
                given = old.new(name, Old(size=3))
                given.finalizers = frozenset({"held", "kept"})
                await engine.client.apply(given, fields=["size"], manager="ada")
        async with headway.open_engine(store, after, report=ignore) as engine:
            written = await engine.client.read(new, "written")
            written.data.note = "n"
            assert FIELD_OWNERS not in (await engine.client.write(written)).metadata
            # A resource that is being deleted keeps its metadata.
            await engine.client.delete(new.id("marked"))
            marked = await engine.client.read(new, "marked")
            marked.finalizers = frozenset({"kept"})
            await engine.client.write(marked)
        async with headway.open_engine(store, before, report=ignore) as engine:
            assert (await engine.client.read(old, "written")).field_owners == {}
            assert (await engine.client.read(old, "marked")).field_owners == {"size": ("ada",)}


async def test_request_of_fields_of_another_version_is_refused() -> None:
    """As from a client whose program has the owned fields in v2, while the server's has them in v1."""
    app, old, new = kinds("v1")
    async with headway.open_engine("memory:", app, report=ignore) as engine:
        stored = await engine.client.write(new.new("one", New(count=3)))
        for type, version in ((new, "v2"), (new, "v1"), (old, "v2")):
            found = await engine.client.read(type, "one")
            found.metadata[FIELD_OWNERS] = Request(stored.version, version, "ada", ["note"]).text()
            with pytest.raises(InvalidArgument, match=r"for the fields of shop.v1.Thing, so apply them as that type"):
                await engine.client.write(found)


@pytest.mark.parametrize(
    "entry",
    [
        "", "x", "[]", "5", '{"v1":5}', '{"v1":{"ada":"note"}}', '{"v1":{"ada":[5]}}', '{"apply":5}', '{"apply":[]}',
        '{"apply":[1,"v1","ada",["note"]]}', '{"apply":["VERSION","v1","ada","note"]}', "[" * 100_000,
        '{"v1":{"ada":["size","note"],"eve":["size"]}}',
        '{"apply":["1","v1","ada",["size"]]}',
    ],
)  # fmt: skip
async def test_owners_cannot_be_forged(entry: str) -> None:
    """A writer can neither remove owners, nor add some, but by a request that is based on the stored version."""
    app, old, _ = kinds("v1")
    async with headway.open_engine("memory:", app, report=ignore) as engine:
        client = engine.client
        given = old.new("one", Old(size=3, note="n"))
        given.metadata[FIELD_OWNERS] = entry
        assert (await client.write(given)).field_owners == {}
        await client.apply(old.new("one", Old(note="n")), fields=["note"], manager="bob")
        for write in (client.write, client.apply):
            assert (await write(given)).field_owners == {"note": ("bob",)}
            assert (await write(old.new("one", Old(size=4, note="n")))).field_owners == {"note": ("bob",)}
        found = await client.read(old, "one")
        found.metadata[FIELD_OWNERS] = Request(found.version, "v1", "ada", ["nothing"]).text()
        with pytest.raises(InvalidArgument, match="Old has no field 'nothing'"):
            await client.write(found)
        many = [f"metadata:{number}" for number in range(1001)]
        found.metadata[FIELD_OWNERS] = Request(found.version, "v1", "ada", many).text()
        with pytest.raises(InvalidArgument, match="ada must own at most 1000 fields"):
            await client.write(found)


@headway.message
class Nested:
    size: int = field(1)
    n: Nested | None = field(2)
    labels: dict[str, str] = field(3)


async def test_request_is_checked_by_the_server_like_the_arguments_of_an_apply() -> None:
    """A forged one can have neither a name that no client would send, nor a path that costs too much."""
    app = headway.App("shop")
    type = app.type("shop", "v1", "Nested", Nested, owned_fields=True)
    cases = [
        ("", ["size"], "manager '' must be the name of the writer"),
        ("a\nb", ["size"], r"manager 'a\\nb' must be"),
        ("\ud800", ["size"], r"manager '\\ud800' must be"),
        ("x" * 201, ["size"], "of up to 200 printable characters"),
        ("ada", ["size", "size"], "the fields of ada must be listed once each"),
        ("ada", ["labels.\ud800"], "half of a surrogate pair"),
        ("ada", ["metadata:\ud800"], "half of a surrogate pair"),
        ("ada", [".".join(["n"] * 100 + ["size"])], "must have at most 100 levels"),
    ]
    async with headway.open_engine("memory:", app, report=ignore) as engine:
        client = engine.client
        stored = await client.write(type.new("one", Nested(size=3)))
        for manager, paths, said in cases:
            for name, based_on in (("new", ""), ("one", stored.version)):
                given = type.new(name, Nested(size=4))
                given.metadata[FIELD_OWNERS] = Request(based_on, "v1", manager, paths).text()
                with pytest.raises(InvalidArgument, match=said):
                    await client.write(given)
        assert await client.read(type, "one") == stored
        assert await client.get(type, "new") is None


@pytest.mark.parametrize("leaf", ["size", "labels.a.b"])
def test_path_has_at_most_100_levels_and_its_place_is_found_once(leaf: str) -> None:
    """Each write looks at all fields with owners, and an apply does so several times."""
    app = headway.App("shop")
    type = app.type("shop", "v1", "Nested", Nested, owned_fields=True)
    deepest = ".".join([*["n"] * 99, leaf])
    assert place_of(type, deepest) is place_of(type, deepest)
    with pytest.raises(InvalidArgument, match=r"field 'n\.n.*… must have at most 100 levels"):
        place_of(type, f"n.{deepest}")


async def test_conflict_shows_a_name_with_control_characters_in_quotes() -> None:
    """It may be the key of a map, which others choose."""
    app = headway.App("shop")
    type = app.type("shop", "v1", "Nested", Nested, owned_fields=True)
    async with headway.open_engine("memory:", app, report=ignore) as engine:
        await engine.client.apply(
            type.new("one", Nested(labels={"\x1b[2J": "x"})), fields=["labels.\x1b[2J"], manager="ada"
        )
        with pytest.raises(FieldConflict, match=r"'labels\.\\x1b\[2J' belongs to ada"):
            await engine.client.apply(
                type.new("one", Nested(labels={"\x1b[2J": "y"})), fields=["labels.\x1b[2J"], manager="bob"
            )
