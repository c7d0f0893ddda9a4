"""The results and the effects of the client's calls."""

from __future__ import annotations

from typing import Any, cast

import pytest
import trio

from headway.client import Client
from headway.engine import open_engine
from headway.errors import Conflict, FailedPrecondition, InvalidArgument, NotFound
from headway.resource import (
    DELETION_TIMESTAMP,
    AnyMessage,
    Condition,
    ConditionState,
    Registry,
    Resource,
    ResourceId,
    pb,
)
from headway.storage import MemoryBackend
from tests.cli.served import OTHER_ACCOUNT, Account, apps
from tests.helpers.calls import Calls, Interrupted
from tests.helpers.declared import (
    CHILD,
    HOOKED,
    NOTE,
    NOTE_V2,
    PLANET,
    REGION,
    ULID,
    Memo,
    Note,
    a_note,
    an_id,
    registry,
)
from tests.helpers.versions import V1, V2, V3, roster, versions

READY = Condition(type="ready", state=ConditionState.TRUE)


async def test_id_of_another_kind_is_refused(client: Client) -> None:
    """An id of another version of the kind is read as this version."""
    with pytest.raises(InvalidArgument, match=r"Child one is not a tests\.v1\.Note: ask for it by its own type"):
        await client.get(NOTE, CHILD.id("one"))
    await client.write(NOTE_V2.new("one", Memo(urgent=True)))
    assert (await client.read(NOTE_V2, NOTE.id("one"))).data.urgent
    with pytest.raises(InvalidArgument, match=r"is stored as tests\.v2\.Note"):
        await client.get(NOTE, "one")


async def test_list_covers_every_tenancy_by_default(client: Client, calls: Calls) -> None:
    """The result is ordered. Tenancy and prefix restrict it, for every scope."""
    await calls.make_room(("default", "up"), ("up", ""))
    for type in (NOTE, REGION, PLANET):
        for name in ("b", "a", "ab"):
            await client.write(type.new(name))
    await client.write(NOTE.new("c", namespace="up"))
    await client.write(REGION.new("c", partition="up"))
    for type in (REGION, PLANET):
        assert [each.name for each in await client.list(type)][:3] == ["a", "ab", "b"]
    assert [each.name for each in await client.list(NOTE)] == ["a", "ab", "b", "c"]
    assert [each.name for each in await client.list(NOTE, name_prefix="a")] == ["a", "ab"]
    assert [each.name for each in await client.list(NOTE, namespace="up")] == ["c"]
    assert [each.name for each in await client.list(REGION, partition="up")] == ["c"]
    assert await client.list(CHILD) == []


async def test_list_by_owner_returns_typed_resources(client: Client, calls: Calls) -> None:
    """The result covers every registered type. A resource of an unregistered type is left out."""
    boss = await client.write(NOTE.new("boss"))
    await client.write(CHILD.new("one", owner=boss))
    await client.write(PLANET.new("two", owner=boss.id))
    await client.write(NOTE_V2.new("three", owner=boss))
    assert [(type(each.data), each.name) for each in await client.list_by_owner(boss)] == [
        (Note, "one"),
        (Memo, "three"),
        (Note, "two"),
    ]
    small = Registry()
    small.register(CHILD)
    assert [each.name for each in await Client(calls.channel, small).list_by_owner(boss.id)] == ["one"]
    with pytest.raises(InvalidArgument, match=r"owner\.uid is required"):
        await client.list_by_owner(boss.id.without_uid())


async def test_apply_writes_only_a_difference(client: Client, calls: Calls) -> None:
    """Equal data, metadata and owner make no commit, even if they are encoded differently."""
    boss = await client.write(NOTE.new("boss"))
    wanted = CHILD.new("one", Note(text="a", counts={"x": 1, "y": 2}), owner=boss, metadata={"a": "b"})
    first = await client.apply(wanted)
    here = calls.revision
    for same in (
        wanted,
        CHILD.new("one", Note(text="a", counts={"y": 2, "x": 1}), owner=boss, metadata={"a": "b"}),
        CHILD.new("one", Note(text="a", counts={"x": 1, "y": 2}), owner=boss.id.without_uid(), metadata={"a": "b"}),
        CHILD.new("one", Note(text="a", counts={"x": 1, "y": 2}), metadata={"a": "b"}),
    ):
        assert await client.apply(same) == first
        assert calls.revision == here
    for number, other in enumerate(
        [
            CHILD.new("one", Note(text="b"), metadata={"a": "b"}),
            CHILD.new("one", Note(text="b"), metadata={"a": "c"}),
            CHILD.new("one", Note(text="b")),
        ],
        start=1,
    ):
        applied = await client.apply(other)
        assert applied.uid == first.uid
        assert calls.revision == here + number
    assert applied.owner == boss.id


async def test_apply_treats_versions_of_an_owner_as_equal() -> None:
    """An owner in another version of its kind counts as equal, so that there is no commit."""
    known = versions()
    calls = Calls(MemoryBackend(), known)
    client = Client(calls.channel, known)
    owner = await client.write(V1.new("boss", roster("ada")))
    first = await client.apply(NOTE.new("one", Note(text="a"), owner=owner))
    here = calls.revision
    for seen in (await client.read(V3, "boss"), V2.id("boss")):
        assert await client.apply(NOTE.new("one", Note(text="a"), owner=seen)) == first
    assert calls.revision == here
    changed = await client.apply(NOTE.new("one", Note(text="b"), owner=await client.read(V2, "boss")))
    assert (changed.data.text, changed.owner) == ("b", owner.id)


async def test_apply_ignores_the_defaults_of_a_mutate_hook(
    client: Client, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is asked for the defaults only if the type has a mutate hook. A real difference is written."""
    asked: list[str] = []
    validate = client.validate

    async def counted(resource: Resource[Note]) -> Resource[Note]:
        asked.append(resource.name)
        return await validate(resource)

    monkeypatch.setattr(client, "validate", counted)
    first = await client.apply(HOOKED.new("one", Note()))
    assert first.data != Note()
    here = calls.revision
    for same in (HOOKED.new("one", Note()), first):
        assert await client.apply(same) == first
    assert (calls.revision, asked) == (here, ["one"])

    await client.apply(NOTE.new("two", Note(text="a")))
    await client.apply(NOTE.new("two", Note(text="b")))
    other = await client.apply(HOOKED.new("one", Note(text="other")))
    assert (other.data.text, other.version != first.version) == ("other", True)
    assert asked == ["one", "one"]


async def test_apply_keeps_finalizers_and_deletion_mark(client: Client, calls: Calls) -> None:
    """Only metadata that contains these keys changes them."""
    resource = NOTE.new("one", Note(text="a"))
    resource.finalizers = {"cleanup"}
    await client.write(resource)
    assert (await client.apply(NOTE.new("one", Note(text="b")))).finalizers == {"cleanup"}
    await client.delete(NOTE.id("one"))
    here = calls.revision
    assert (await client.apply(NOTE.new("one", Note(text="b")))).is_deleting
    assert calls.revision == here
    with pytest.raises(InvalidArgument, match="marked for deletion"):
        await client.apply(NOTE.new("one", Note(text="c")))


async def test_apply_ignores_the_version_and_status_that_were_read(client: Client, calls: Calls) -> None:
    """The version and the status may be out of date. The uid still selects the incarnation."""
    await client.write(NOTE.new("one", Note(text="a")))
    read = await client.read(NOTE, "one")
    await client.write_status(read, "mine", [READY])
    await client.write(NOTE.new("one", Note(text="b")))
    applied = await client.apply(read)
    assert (applied.data.text, list(applied.status)) == ("a", ["mine"])
    here = calls.revision
    await client.apply(applied)
    assert calls.revision == here
    await client.delete(read)
    with pytest.raises(FailedPrecondition, match="no longer exists"):
        await client.apply(read)
    await client.write(NOTE.new("one"))
    with pytest.raises(FailedPrecondition, match="is stored with uid"):
        await client.apply(read)


async def test_apply_is_repeated_after_a_conflict(calls: Calls) -> None:
    """If the conflict persists, it is raised."""
    interrupted = Interrupted(calls.backend)
    client = Client(Calls(interrupted, registry()).channel, registry())
    await calls.write(a_note("one"))
    others = iter(range(100))

    async def other() -> None:
        await calls.write(a_note("one", f"theirs {next(others)}"))

    interrupted.before_commit = [other, other]
    assert (await client.apply(NOTE.new("one", Note(text="mine")))).data.text == "mine"
    interrupted.before_commit = [other] * 8
    with pytest.raises(Conflict, match="Note one kept being changed by others while it was applied"):
        await client.apply(NOTE.new("one", Note(text="never")))


async def test_apply_over_compares_with_the_given_state(client: Client, calls: Calls) -> None:
    """Conflict is raised if that state is out of date. Later changes to the caller's own copy don't count."""
    assert (await client.apply_over(None, NOTE.new("one", Note(text="a")))).data.text == "a"
    current = await client.read(NOTE, "one")
    current.data.text = "changed"
    current.metadata["more"] = "x"
    here = calls.revision
    unchanged = await client.apply_over(current, NOTE.new("one", Note(text="a")))
    assert (unchanged.data.text, unchanged.metadata, calls.revision) == ("a", {}, here)
    assert (await client.apply_over(current, NOTE.new("one", Note(text="changed")))).data.text == "changed"
    with pytest.raises(Conflict):
        await client.apply_over(current, NOTE.new("one", Note(text="late")))


async def test_status_equal_to_the_one_read_is_still_written(client: Client) -> None:
    """A reconcile that writes "busy" and then the status that it had read must end with that status."""
    await client.write(NOTE.new("one"))
    ready = await client.write_status(await client.read(NOTE, "one"), "mine", [READY])
    busy = Condition(type="ready", state=ConditionState.FALSE)
    await client.write_status(ready, "mine", [busy])
    again = await client.write_status(ready, "mine", [READY])
    assert again.status["mine"].conditions == [READY]
    assert (await client.read(NOTE, "one")).status["mine"].conditions == [READY]


async def test_equal_status_makes_no_second_commit(client: Client, calls: Calls) -> None:
    """The observed generation defaults to the resource's generation."""
    one = await client.write(NOTE.new("one"))
    first = await client.write_status(one, "mine", [READY])
    assert first.status["mine"].observed_generation == one.generation
    here = calls.revision
    assert await client.write_status(one, "mine", [READY]) == first
    assert calls.revision == here
    other = await client.write_status(one, "other", [READY], observed_generation=ULID)
    assert other.status["other"].observed_generation == ULID
    await client.delete(one)
    with pytest.raises(NotFound, match=f"Note one with uid {one.uid} not found"):
        await client.write_status(one, "mine", [READY])


async def test_delete_returns_the_marked_resource_or_none(client: Client) -> None:
    """A resource with finalizers is returned with its mark. For a deleted resource, None is returned."""
    plain = await client.write(NOTE.new("one"))
    with pytest.raises(Conflict, match="is stored at version 1, not 7"):
        await client.delete(plain, version="7")
    assert await client.delete(plain, version=plain.version) is None
    assert await client.delete(plain) is None
    assert await client.delete(NOTE.id("one")) is None
    held = NOTE.new("one")
    held.finalizers = {"cleanup"}
    held = await client.write(held)
    assert await client.delete(plain) is None, "delete() returned another incarnation"
    left = await client.delete(held)
    assert left is not None
    assert left.is_deleting
    assert DELETION_TIMESTAMP in left.metadata


async def test_delete_ignores_a_later_incarnation_of_the_name(calls: Calls) -> None:
    """Another incarnation that was created in between is not returned."""
    interrupted = Interrupted(calls.backend)
    client = Client(Calls(interrupted, registry()).channel, registry())
    await calls.write(a_note("one"))

    async def replace() -> None:
        await calls.delete(an_id("one"))
        await calls.write(a_note("one"))

    interrupted.before_commit = [replace]
    assert await client.delete(NOTE.id("one")) is None
    assert await calls.names(NOTE) == ["one"]


async def test_unregistered_type_is_refused_with_a_hint(client: Client) -> None:
    """The client and the server send the same message."""
    with pytest.raises(
        InvalidArgument, match=r"type tests\.v1\.Noté is not registered; did you mean 'tests\.v1\.Note'"
    ):
        await client.delete(ResourceId(NOTE.name._replace(kind="Noté"), "one"))


async def test_raw_messages_and_the_client_follow_the_same_rules(client: Client, calls: Calls) -> None:
    """The client reads what raw messages have stored, and hooks apply to both."""
    await calls.write(a_note("one", "", HOOKED))
    assert (await client.read(HOOKED, "one")).data.text == "untitled"
    resource = a_note("two", "", NOTE)
    resource.data = AnyMessage(type_url=NOTE.type_url, value=b"")
    await calls.write(resource)
    assert (await client.read(NOTE, "two")).data == Note()
    await calls.write(pb.Resource(id=an_id("three")))
    assert (await client.read(NOTE, "three")).data == Note()


async def test_concurrent_writers_lose_no_write(client: Client) -> None:
    """Each writer of one resource gets a version of its own, with and without a version in the request."""
    await client.write(NOTE.new("one", Note(counts={})))
    conflicts = 0

    async def count(name: str) -> None:
        nonlocal conflicts
        for _ in range(5):
            while True:
                resource = await client.read(NOTE, "one")
                resource.data.counts[name] = resource.data.counts.get(name, 0) + 1
                try:
                    await client.write(resource)
                    break
                except Conflict:
                    conflicts += 1

    async with trio.open_nursery() as nursery:
        for number in range(4):
            nursery.start_soon(count, f"writer-{number}")
    assert (await client.read(NOTE, "one")).data.counts == {f"writer-{number}": 5 for number in range(4)}
    assert conflicts > 0


async def test_write_refuses_a_payload(client: Client) -> None:
    """The error names the payload and shows how to make a resource of it."""
    for call in (client.write, client.apply):
        with pytest.raises(InvalidArgument, match=r"as made by TYPE\.new\(name, data\), got Note\(text='a'\)"):
            await call(cast("Any", Note(text="a")))


@pytest.mark.parametrize("wrong", [READY, "ready", ["ready"], None])
async def test_invalid_conditions_are_refused(client: Client, wrong: Any) -> None:
    """The values include some that could be iterated by accident."""
    note = await client.write(NOTE.new("one", Note(text="a")))
    with pytest.raises(InvalidArgument, match=r"conditions must be a list, such as \[headway\.Condition\(\.\.\.\)\]"):
        await client.write_status(note, "tests", wrong)


async def test_validate_returns_what_a_write_would_store() -> None:
    """Nothing is stored, and the argument is not changed."""
    async with open_engine("memory:", *apps) as engine:
        given = OTHER_ACCOUNT.new("ada")
        would_be = await engine.client.validate(given)
        assert (would_be.data.login, given.data.login, would_be.version) == ("ada", "", "")
        assert await engine.client.get(OTHER_ACCOUNT, "ada") is None
        with pytest.raises(InvalidArgument, match="reserved"):
            await engine.client.validate(OTHER_ACCOUNT.new("eve", Account(login="root")))
        with pytest.raises(InvalidArgument, match="expected a resource, as made by"):
            await engine.client.validate("ada")  # type: ignore[arg-type]
