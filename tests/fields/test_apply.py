"""Fields with owners through a running engine, in process and over the network, and on every store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import headway
from headway import field
from headway.access import Access, Authorizer, Policy, Rule, new_token
from headway.client import until_gone
from headway.errors import (
    Conflict,
    DeclarationError,
    FieldConflict,
    InvalidArgument,
    NotFound,
    NotHeadway,
    OutcomeUnknown,
    PermissionDenied,
)
from headway.events import ignore
from headway.fields import Applied, apply_fields
from headway.resource import FIELD_OWNERS
from headway.storage import MemoryBackend
from headway.testing import Fault, ScriptedChannel
from tests.fields.things import Spec, Thing
from tests.helpers.etcd_server import EtcdServer


@headway.message(name="tests.Part")
class Part:
    name: str = field(1)


@headway.message
class NewPart:
    name: str = field(1)
    extra: str = field(2)


@headway.message
class Whole:
    size: int = field(1)
    part: Part | None = field(2)
    password: str = field(3, secret=True)
    numbers: dict[int, str] = field(4)


@headway.message
class NewWhole:
    size: int = field(1)
    part: NewPart | None = field(2)
    password: str = field(3, secret=True)
    numbers: dict[int, str] = field(4)
    zone: str = field(5)


def shop(payload: type[Any] = Thing, **options: Any) -> tuple[headway.App, headway.ResourceType[Any]]:
    app = headway.App("shop")
    options = {"owned_fields": True} | options
    return app, app.type("shop", "v1", "Thing", payload, **options)


@pytest.fixture(params=["memory", *(pytest.param(name, marks=pytest.mark.wide) for name in ("sqlite", "etcd"))])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "etcd":
        server: EtcdServer = request.getfixturevalue("etcd")
        return f"etcd://{server.endpoint}{server.new_prefix()}"
    return "memory:" if request.param == "memory" else f"sqlite:{tmp_path / 'shop.db'}"


@asynccontextmanager
async def remote(app: headway.App, url: str = "memory:", **options: Any) -> AsyncIterator[headway.Client]:
    """Open an engine, and a client of it over the network."""
    network = headway.Network(["127.0.0.1:0"], insecure=True)
    async with (
        headway.open_engine(url, app, network=network, report=ignore, **options) as engine,
        headway.connect(engine.addresses[0], app, insecure=True) as client,
    ):
        yield client


async def test_two_managers_share_a_resource_and_keep_their_fields_apart(url: str) -> None:
    app, thing = shop()
    async with remote(app, url) as client:
        await client.apply(thing.new("one", Thing(size=3, note="ignored")), fields=["size"], manager="ada")
        labels = {"team.name": "red", "x": "y"}
        stored = await client.apply(
            thing.new("one", Thing(spec=Spec(image="web"), labels=labels), metadata={"tier": "gold", "x": "y"}),
            fields=["spec.image", "labels.team.name", "metadata:tier"],
            manager="bob",
        )
        assert stored.data == Thing(size=3, spec=Spec(image="web"), labels={"team.name": "red"})
        assert stored.field_owners == {
            "size": ("ada",),
            "spec.image": ("bob",),
            "labels.team.name": ("bob",),
            "metadata:tier": ("bob",),
        }
        assert stored.metadata.keys() == {"tier", FIELD_OWNERS}
        with pytest.raises(FieldConflict, match="Thing one: size belongs to ada: leave it out") as caught:
            await client.apply(thing.new("one", Thing(size=5)), fields=["size"], manager="bob")
        assert caught.value.conflicts == (("ada", "size"),)
        assert isinstance(caught.value, Conflict)
        assert (await client.read(thing, "one")).version == stored.version

        taken = await client.apply(thing.new("one", Thing(size=5)), fields=["size"], manager="bob", force=True)
        assert taken.data == Thing(size=5)
        assert taken.field_owners == {"size": ("bob",)}
        assert taken.metadata.keys() == {FIELD_OWNERS}
        given_up = await client.apply(thing.new("one"), fields=[], manager="bob")
        assert (given_up.data, given_up.metadata, given_up.field_owners) == (Thing(), {}, {})


async def test_many_appliers_at_once_lose_nothing(url: str) -> None:
    """Each of twelve managers owns an entry of a map, and all of them change a resource at the same time."""
    app, thing = shop()
    managers = [f"m{number}" for number in range(12)]

    async def apply(client: headway.Client, manager: str) -> None:
        for count in range(5):
            given = thing.new("one", Thing(labels={manager: str(count)}))
            await client.apply(given, fields=[f"labels.{manager}"], manager=manager)

    async with remote(app, url) as client:
        async with trio.open_nursery() as nursery:
            for manager in managers:
                nursery.start_soon(apply, client, manager)
        found = await client.read(thing, "one")
        assert found.data.labels == dict.fromkeys(managers, "4")
        assert found.field_owners == {f"labels.{manager}": (manager,) for manager in managers}


@pytest.mark.parametrize("faster", [40, 100])
async def test_apply_pauses_longer_each_time_that_another_writer_is_faster_and_not_for_ever(
    faster: int, autojump_clock: MockClock
) -> None:
    _, thing = shop()
    tries: list[float] = []

    class Client:
        async def get(self, _type: headway.ResourceType[Any], _id: headway.ResourceId, /) -> None:
            return None

        async def create(self, resource: headway.Resource[Any], /) -> headway.Resource[Any]:
            tries.append(trio.current_time())
            if len(tries) <= faster:
                raise Conflict("another writer was faster")
            made = resource.copy()
            made.metadata[FIELD_OWNERS] = "owners"
            return made

        validate = write = create

    applied = Applied(thing.new("one", Thing(size=3)), ["size"], "ada")
    if faster == 40:
        assert (await apply_fields(Client(), None, applied)).metadata == {FIELD_OWNERS: "owners"}
        assert len(tries) == 41
    else:
        with pytest.raises(Conflict, match="Thing one kept being changed by others while it was applied"):
            await apply_fields(Client(), None, applied)
        assert len(tries) == 64
    pauses = [after - before for before, after in pairwise(tries)]
    assert 0 < pauses[0] < 0.005
    assert 0.1 < max(pauses) < 0.25
    assert len(set(pauses)) == len(pauses)


async def test_fields_that_all_managers_own_are_bounded() -> None:
    """Each write and each apply looks at all of them."""
    app, thing = shop()
    async with headway.open_engine("memory:", app, report=ignore) as engine:
        for manager in range(5):
            labels = {f"{manager}-{number}": "" for number in range(1000)}
            applied = (thing.new("one", Thing(labels=labels)), [f"labels.{key}" for key in labels])
            if manager < 4:
                await engine.client.apply(applied[0], fields=applied[1], manager=str(manager))
        with pytest.raises(InvalidArgument, match="all managers would own 5000 fields: they must own at most 4000"):
            await engine.client.apply(applied[0], fields=applied[1], manager="4")
        found = await engine.client.apply(applied[0], fields=["labels"], manager="4", force=True)
        assert found.field_owners == {"labels": ("4",)}


async def test_statuses_and_finalizers_leave_the_owners_alone() -> None:
    app, thing = shop()
    async with remote(app) as client:
        given = thing.new("one", Thing(size=3))
        given.finalizers = frozenset({"held"})
        stored = await client.apply(given, fields=["size"], manager="ada")
        assert stored.finalizers == {"held"}
        stored = await client.write_status(stored, "shop", [])
        assert stored.field_owners == {"size": ("ada",)}
        await client.delete(stored.id)
        marked = await client.read(thing, "one")
        # Another manager cannot become an owner now, but the apply changes nothing, either.
        assert await client.apply(given, fields=["size"], manager="bob") == marked
        with pytest.raises(InvalidArgument, match="marked for deletion"):
            await client.apply(thing.new("one", Thing(size=4)), fields=["size"], manager="ada")
        marked.finalizers = frozenset()
        await client.write(marked)
        with trio.fail_after(30):
            await until_gone(client, thing, "one")


async def test_reconciler_applies_as_its_controller_and_makes_no_call_for_what_is_unchanged(
    autojump_clock: MockClock,
) -> None:
    app, thing = shop()
    reads: list[str] = []
    seen: list[headway.Resource[Thing]] = []

    class Counting(ScriptedChannel):
        async def unary(self, path: str, request: Any, reply_type: type[Any], *, metadata: Any = None) -> Any:
            reads.append(path.rpartition("/")[2])
            return await super().unary(path, request, reply_type, metadata=metadata)

    @app.controller(manages=thing)
    async def sizer(rt: headway.Runtime, request: headway.Request[Thing]) -> None:
        wanted = thing.new(request.id.name, Thing(size=7))
        await rt.client.apply(wanted, fields=["size"])
        before = len(reads)
        seen.append(await rt.client.apply(wanted, fields=["size"]))
        assert reads[before:] == []

    channel = Counting()
    async with headway.testing.open_engine("memory:", app, wrap_channel=channel.over) as engine:
        await engine.client.write(thing.new("one", Thing(note="n")))
        await engine.wait_idle()
        assert seen[-1].data == Thing(size=7, note="n")
        assert seen[-1].field_owners == {"size": ("shop/sizer",)}
        assert seen[-1] == await engine.client.read(thing, "one")
        assert reads.count("Write") == 1


async def test_apply_whose_outcome_is_unknown_is_resolved_and_then_applied_again(autojump_clock: MockClock) -> None:
    app, thing = shop()
    channel = ScriptedChannel()
    unknown: list[OutcomeUnknown] = []

    @app.controller(manages=thing)
    async def sizer(rt: headway.Runtime, request: headway.Request[Thing]) -> None:
        try:
            await rt.client.apply(thing.new(request.id.name, Thing(size=7)), fields=["size"])
        except OutcomeUnknown as error:
            unknown.append(error)
            raise

    async with headway.testing.open_engine("memory:", app, wrap_channel=channel.over, report=ignore) as engine:
        channel.writes(Fault.LOST, Fault.LATE)
        await engine.client.apply(thing.new("one", Thing(note="n")), fields=["note"], manager="ada")
        await engine.client.apply(thing.new("two", Thing(note="n")), fields=["note"], manager="ada")
        await engine.wait_idle()
        assert len(unknown) == 2
        for name in ("one", "two"):
            found = await engine.client.read(thing, name)
            assert found.data == Thing(size=7, note="n")
            assert found.field_owners == {"size": ("shop/sizer",), "note": ("ada",)}


async def test_values_that_a_hook_changes_are_compared_after_the_hook() -> None:
    """Neither an apply again nor another manager's apply of the same value is a difference."""

    def lower(resource: headway.Resource[Thing]) -> None:
        resource.data.note = resource.data.note.lower()

    app, thing = shop(hooks=headway.Hooks(mutate=lower))
    async with remote(app) as client:
        stored = await client.apply(thing.new("one", Thing(note="Ada")), fields=["note"], manager="ada")
        assert stored.data.note == "ada"
        assert (await client.apply(thing.new("one", Thing(note="ADA")), fields=["note"], manager="ada")) == stored
        shared = await client.apply(thing.new("one", Thing(note="aDa")), fields=["note"], manager="bob")
        assert shared.field_owners == {"note": ("ada", "bob")}
        with pytest.raises(FieldConflict, match="note belongs to ada"):
            await client.apply(thing.new("one", Thing(note="Bob")), fields=["note"], manager="bob")


async def test_validation_sees_the_whole_resource() -> None:
    def check(resource: headway.Resource[Thing]) -> None:
        if resource.data.size and not resource.data.note:
            raise ValueError("a thing with a size needs a note")

    app, thing = shop(hooks=headway.Hooks(validate=check))
    async with remote(app) as client:
        with pytest.raises(InvalidArgument, match="needs a note"):
            await client.apply(thing.new("one", Thing(size=3)), fields=["size"], manager="ada")
        await client.apply(thing.new("one", Thing(note="n")), fields=["note"], manager="bob")
        await client.apply(thing.new("one", Thing(size=3)), fields=["size"], manager="ada")
        with pytest.raises(InvalidArgument, match="needs a note"):
            await client.apply(thing.new("one"), fields=[], manager="bob")


async def test_secret_fields_have_owners_and_no_error_or_owner_shows_their_value() -> None:
    app, thing = shop(Whole)
    async with remote(app) as client:
        stored = await client.apply(thing.new("one", Whole(password="s3cret")), fields=["password"], manager="ada")
        assert "s3cret" not in str(stored.metadata)
        with pytest.raises(FieldConflict, match="password belongs to ada") as caught:
            await client.apply(thing.new("one", Whole(password="0ther")), fields=["password"], manager="bob")
        assert "s3cret" not in str(caught.value)
        assert "0ther" not in str(caught.value)


async def test_message_that_may_be_absent_is_owned_with_its_presence() -> None:
    app, thing = shop(Whole)
    async with remote(app) as client:
        stored = await client.apply(thing.new("one", Whole(part=Part())), fields=["part"], manager="ada")
        assert stored.data.part == Part()
        with pytest.raises(FieldConflict, match="part belongs to ada"):
            await client.apply(thing.new("one", Whole(part=Part(name="x"))), fields=["part.name"], manager="bob")
        await client.apply(thing.new("one", Whole()), fields=["part.name"], manager="bob")
        stored = await client.apply(thing.new("one"), fields=[], manager="ada")
        assert stored.data.part is None
        stored = await client.apply(thing.new("one", Whole(numbers={-5: "x"})), fields=["numbers.-5"], manager="ada")
        assert stored.data == Whole(numbers={-5: "x"})


async def test_listed_default_makes_the_message_around_it_which_stays_when_it_is_given_up() -> None:
    app, thing = shop(Whole)
    async with remote(app) as client:
        stored = await client.apply(thing.new("one", Whole(part=Part())), fields=["part.name"], manager="ada")
        assert (stored.data, stored.field_owners) == (Whole(part=Part()), {"part.name": ("ada",)})
        stored = await client.apply(thing.new("one"), fields=[], manager="ada")
        assert (stored.data, stored.field_owners) == (Whole(part=Part()), {})
        stored = await client.apply(thing.new("two"), fields=["part.name"], manager="ada")
        assert (stored.data, stored.field_owners) == (Whole(), {"part.name": ("ada",)})


async def test_nothing_is_given_up_of_a_resource_that_does_not_exist() -> None:
    app, thing = shop()
    async with remote(app) as client:
        with pytest.raises(
            NotFound, match="Thing one not found, so there is nothing to give up: list fields to create"
        ):
            await client.apply(thing.new("one", Thing(size=3)), fields=[], manager="ada")
        assert await client.get(thing, "one") is None


async def test_fields_of_a_newer_program_are_kept_and_stay_owned() -> None:
    """The older program neither removes what the newer one owns under the same name, nor loses it."""
    older, old = shop(Whole)
    newer, new = shop(NewWhole)
    async with MemoryBackend() as store:
        async with headway.open_engine(store, older, report=ignore):
            """The store knows the older program."""
        async with headway.open_engine(store, newer, report=ignore) as engine:
            data = NewWhole(size=3, zone="z", part=NewPart(name="n", extra="e"))
            await engine.client.apply(new.new("one", data), fields=["size", "zone", "part"], manager="ada")
        async with headway.open_engine(store, older, report=ignore) as engine:
            await engine.client.apply(old.new("one", Whole(part=Part(name="m"))), fields=["part"], manager="ada")
            plain = await engine.client.read(old, "one")
            plain.data.size = 9
            await engine.client.write(plain)
        async with headway.open_engine(store, newer, report=ignore) as engine:
            found = await engine.client.read(new, "one")
            assert found.data == NewWhole(size=9, zone="z", part=NewPart(name="m", extra="e"))
            assert found.field_owners == {"zone": ("ada",), "part": ("ada",)}
            found = await engine.client.apply(new.new("one"), fields=[], manager="ada")
            assert found.data == NewWhole(size=9)


async def test_caller_needs_the_rights_to_read_and_to_write() -> None:
    app, thing = shop()

    def policy(name: str, *verbs: str) -> tuple[str, Any, Policy]:
        text, token = new_token([name])
        return text, token, Policy(name, [Rule(verbs=verbs, type="shop.v1.Thing", partition="*", namespace="*")])

    policies = [policy("reader", "view"), policy("writer", "write"), policy("both", "view", "edit")]
    access = Authorizer(Access([each[2] for each in policies], [each[1] for each in policies]))
    network = headway.Network(["127.0.0.1:0"], access=access)
    async with headway.open_engine("memory:", app, network=network, report=ignore) as engine:
        await engine.client.apply(thing.new("one", Thing(size=3)), fields=["size"], manager="ada")
        for text, _, of in policies:
            async with headway.connect(engine.addresses, app, token=text) as client:
                given = thing.new("one", Thing(note=of.name))
                if of.name == "both":
                    assert (await client.apply(given, fields=["note"], manager="bob")).data.note == "both"
                else:
                    with pytest.raises(PermissionDenied):
                        await client.apply(given, fields=["note"], manager="bob")


async def test_server_whose_program_keeps_no_owners_is_noticed() -> None:
    """It has stored the field, and nothing else."""
    app, thing = shop()
    other, plain = shop(owned_fields=False)
    network = headway.Network(["127.0.0.1:0"], insecure=True)
    async with headway.open_engine("memory:", other, network=network, report=ignore) as engine:
        await engine.client.write(plain.new("one", Thing(note="n")))
        async with headway.connect(engine.addresses[0], app, insecure=True) as client:
            with pytest.raises(NotHeadway, match=r"shop.v1.Thing. It has stored Thing one, .*owned_fields=True"):
                await client.apply(thing.new("one", Thing(size=3)), fields=["size"], manager="ada")
        found = await engine.client.read(plain, "one")
        assert found.data == Thing(note="n", size=3)
        assert found.field_owners == {}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ("size", r"fields must be a list of paths, such as \['size'\], not 'size'"),
        ([1], "fields must be a list of paths"),
        (5, "fields must be a list of paths"),
        (["sizes"], "field 'sizes': Thing has no field 'sizes'.*size"),
        (["spec.count"], "Spec has no field 'count'"),
        (["size.x"], "Thing.size is not a message, so it has no fields: use 'size'"),
        (["hosts.0"], "Thing.hosts is a list, which is owned as a whole: use 'hosts'"),
        (["labels.none"], "field 'labels.none' is not in the resource: set it there, or leave it out"),
        (["metadata:none"], "field 'metadata:none' is not in the resource"),
        (["metadata:finalizers"], "must name an entry of the program's own"),
        ([f"metadata:{FIELD_OWNERS}"], "must name an entry of the program's own"),
        ([""], "Thing has no field ''"),
        (["x" * 401], "must have at most 400 characters"),
        ([str(number) for number in range(1001)], "fields has 1001 paths: it must have at most 1000"),
    ],
)
async def test_invalid_fields_are_refused_with_what_would_be_right(fields: Any, said: str) -> None:
    app, thing = shop()
    async with headway.open_engine("memory:", app) as engine:
        with pytest.raises(InvalidArgument, match=said):
            await engine.client.apply(thing.new("one"), fields=fields, manager="ada")
        assert await engine.client.get(thing, "one") is None


async def test_invalid_keys_managers_and_types_are_refused() -> None:
    app, thing = shop(Whole)
    plain = app.type("shop", "v1", "Plain", Part)
    async with headway.open_engine("memory:", app) as engine:
        apply = engine.client.apply
        with pytest.raises(InvalidArgument, match="the key '05' must be a whole number, such as 5"):
            await apply(thing.new("one"), fields=["numbers.05"], manager="ada")
        with pytest.raises(InvalidArgument, match="manager '' must be the name of the writer"):
            await apply(thing.new("one"), fields=["size"])
        with pytest.raises(InvalidArgument, match=r"manager 'a\\nb'"):
            await apply(thing.new("one"), fields=["size"], manager="a\nb")
        with pytest.raises(InvalidArgument, match="pass the fields, such as"):
            await apply(thing.new("one"), manager="ada")
        with pytest.raises(
            InvalidArgument, match=r"shop\.v1\.Plain keeps no owners: declare it with owned_fields=True"
        ):
            await apply(plain.new("one"), fields=["size"], manager="ada")


def test_only_one_version_of_a_kind_has_owned_fields() -> None:
    app, _ = shop()
    with pytest.raises(DeclarationError, match=r"shop\.v2\.Thing: owned_fields=True is taken by shop\.v1\.Thing"):
        app.type("shop", "v2", "Thing", Part, owned_fields=True)


async def test_hook_that_removes_the_entry_of_the_owners_is_named() -> None:
    def forget(resource: headway.Resource[Thing]) -> None:
        resource.metadata.clear()

    app, thing = shop(hooks=headway.Hooks(mutate=forget))
    async with headway.open_engine("memory:", app, report=ignore) as engine:
        said = r"a mutate hook of shop\.v1\.Thing has removed the entry fieldOwners .* let the hook keep the entry"
        with pytest.raises(NotHeadway, match=said):
            await engine.client.apply(thing.new("one", Thing(size=3)), fields=["size"], manager="ada")
        assert (await engine.client.read(thing, "one")).data == Thing(size=3)
