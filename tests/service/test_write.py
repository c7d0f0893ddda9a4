"""Write: what is refused, how a resource is created, who may change what."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import trio
import trio.testing
from grpclib.const import Status

from headway.resource import DELETION_TIMESTAMP, FINALIZERS, AnyMessage, ResourceType, pb
from headway.storage import MemoryBackend
from tests.helpers.calls import Calls, Interrupted, at, refused
from tests.helpers.declared import (
    CHILD,
    HOOKED,
    NOTE,
    NOTE_V2,
    PLANET,
    REGION,
    TYPES,
    ULID,
    UNKNOWN,
    a_note,
    a_status,
    a_type,
    an_id,
    id_of,
    registry,
    text_of,
    uid_of,
)

OWNER = an_id("boss")
MARK = "2024-02-02T10:00:00Z"


def wrong_resources() -> list[tuple[pb.Resource | None, str]]:
    """What no Write and no MutateAndValidate may take, and what they say of it."""
    foreign = a_note()
    foreign.data = AnyMessage(type_url="type.googleapis.com/acme.Else", value=b"")
    return [
        (None, "resource is required"),
        (pb.Resource(), "resource.id is required"),
        (pb.Resource(id=pb.Id(name="one")), "resource.id.type is required"),
        (a_note(""), "resource.id of tests.v1.Note: name is required"),
        (a_note("Ä"), "name 'Ä' is not a valid name"),
        (a_note(type=UNKNOWN), "resource.id.type: type tests.v1.Nothing is not registered"),
        (a_note(type=REGION, namespace="up"), "namespace 'up' must be empty: the type is partition-scoped"),
        (a_note(type=PLANET, partition="up"), "must be empty: the type is cluster-scoped"),
        (a_note(owner=pb.Id(name="boss")), "resource.owner.type is required"),
        (a_note(owner=an_id("Boss")), "resource.owner of tests.v1.Note: name 'Boss' is not a valid name"),
        (a_note(owner=an_id("boss", UNKNOWN)), "resource.owner.type: type tests.v1.Nothing is not registered"),
        (foreign, "resource.data of tests.v1.Note must be tests.helpers.declared.Note, not acme.Else"),
    ]


@pytest.mark.parametrize(("resource", "said"), wrong_resources())
async def test_a_wrong_resource_is_refused_by_a_sentence_that_names_the_field(
    in_memory: Calls, resource: pb.Resource | None, said: str
) -> None:
    """Nothing of it is stored. Unlike the origin, a cluster-scoped type with a tenancy too
    is refused here and not stored where no Read finds it.
    """
    await refused(in_memory.write(resource), Status.INVALID_ARGUMENT, said)
    assert in_memory.revision == 0


@pytest.mark.parametrize("type", TYPES, ids=lambda each: f"{each.name.version}{each.name.kind}")
async def test_the_server_gives_a_new_resource_its_uid_generation_and_version(
    calls: Calls, type: ResourceType[Any]
) -> None:
    """Whole as stored, in the default tenancy of its scope."""
    stored = await calls.stored(a_note("one", "x", type))
    assert len(uid_of(stored)) == len(stored.generation) == 26
    assert stored.version == str(calls.revision)
    assert (await calls.read(id_of(stored))).resource == stored


async def test_a_resource_without_data_is_stored(calls: Calls) -> None:
    """No payload is the payload of all defaults."""
    stored = await calls.stored(pb.Resource(id=an_id()))
    assert stored.data is None
    assert text_of(stored) == ""


@pytest.mark.parametrize(
    ("resource", "status", "said"),
    [
        (a_note(version="7"), Status.ABORTED, "Note one is not there, so it can't be at version '7'"),
        (
            a_note(status={"mine": a_status()}),
            Status.INVALID_ARGUMENT,
            "status must be empty on creation, not have mine",
        ),
        (
            a_note(metadata={DELETION_TIMESTAMP: MARK}),
            Status.INVALID_ARGUMENT,
            "deletionTimestamp can't be set on crea",
        ),
        (a_note(owner=OWNER), Status.INVALID_ARGUMENT, "resource.owner: Note boss is not there; create it first"),
    ],
)
async def test_what_may_not_be_created_is_refused(
    calls: Calls, resource: pb.Resource, status: Status, said: str
) -> None:
    """A version of nothing, a status, a mark, an owner that nobody can find."""
    await refused(calls.write(resource), status, said)
    assert calls.revision == 0


async def test_the_uid_of_a_deleted_incarnation_does_not_recreate_it(calls: Calls) -> None:
    """The origin makes a new incarnation; here "update it if it is still alive" can be said, by its uid."""
    stored = await calls.stored(a_note())
    await calls.delete(an_id())
    late = a_note(uid=uid_of(stored))
    await refused(calls.write(late), Status.FAILED_PRECONDITION, "Note one with uid", "is not there any more")
    assert await calls.names(NOTE) == []


@pytest.mark.parametrize("given", [True, False])
async def test_an_update_keeps_the_uid_and_changes_generation_and_version(calls: Calls, given: bool) -> None:
    """With the stored uid or none, and though nothing else changes."""
    first = await calls.stored(a_note("one", "same"))
    second = await calls.stored(a_note("one", "same", uid=uid_of(first) if given else ""))
    assert uid_of(second) == uid_of(first)
    assert second.generation != first.generation
    assert int(second.version) > int(first.version)


async def test_another_uid_than_the_stored_one_is_refused(calls: Calls) -> None:
    """A write for one incarnation never changes another, and says which is there."""
    stored = await calls.stored(a_note("one", "kept"))
    said = f"Note one is stored with uid {uid_of(stored)}, not {ULID}"
    await refused(calls.write(a_note("one", "lost", uid=ULID)), Status.FAILED_PRECONDITION, said)
    assert text_of((await calls.read(an_id())).resource) == "kept"


async def test_a_write_with_a_version_happens_only_at_that_version(calls: Calls) -> None:
    """Equal, it is stored under a new one; different, it is refused and the answer says what is stored."""
    first = await calls.stored(a_note("one", "a"))
    second = await calls.stored(a_note("one", "b", version=first.version))
    said = f"Note one is stored at version {second.version}, not {first.version}; read it again"
    await refused(calls.write(a_note("one", "c", version=first.version)), Status.ABORTED, said)
    assert text_of((await calls.read(an_id())).resource) == "b"


async def test_another_version_of_the_kind_replaces_this_one_and_keeps_its_uid(calls: Calls) -> None:
    """An upgrade is a write like any other."""
    first = await calls.stored(a_note("one", "a", NOTE))
    second = await calls.stored(a_note("one", "b", NOTE_V2))
    assert uid_of(second) == uid_of(first)
    assert id_of(second).type == a_type(NOTE_V2)
    assert await calls.names(NOTE) == []
    assert await calls.names(NOTE_V2) == ["one"]


async def test_a_status_may_be_absent_or_equal_but_not_changed(calls: Calls) -> None:
    """None given keeps what is stored; what differs is named."""
    first = await calls.stored(a_note())
    kept = (await calls.write_status(id_of(first), a_status(first.generation))).resource
    assert kept is not None
    assert (await calls.stored(a_note())).status == kept.status
    assert (await calls.stored(a_note(status=dict(kept.status)))).status == kept.status
    for status, named in (
        ({"mine": a_status(ULID)}, "mine differs"),
        ({**kept.status, "other": a_status()}, "other differs"),
        ({"other": a_status()}, "other, mine differs"),
    ):
        await refused(calls.write(a_note(status=status)), Status.INVALID_ARGUMENT, "use WriteStatus", named)


async def test_an_owner_is_found_by_name_and_kept_by_uid(calls: Calls) -> None:
    """Without a uid the owner's own is filled in, on creation and as a matter of course later."""
    boss = await calls.stored(a_note("boss"))
    first = await calls.stored(a_note("one", type=CHILD, owner=an_id("boss")))
    assert first.owner == boss.id
    again = await calls.stored(a_note("one", type=CHILD, owner=an_id("boss")))
    assert again.owner == boss.id
    assert (await calls.stored(a_note("one", type=CHILD, owner=boss.id))).owner == boss.id


async def test_an_owner_with_a_uid_must_be_there_too(calls: Calls) -> None:
    """The origin takes any uid, and what is created under one that has gone is owned by nobody for ever."""
    for owner in (an_id("boss", uid=ULID), an_id("boss")):
        await refused(
            calls.write(a_note(owner=owner)), Status.INVALID_ARGUMENT, "resource.owner: Note boss", "not there"
        )
    boss = await calls.stored(a_note("boss"))
    said = f"resource.owner: Note boss with uid {ULID} is not there"
    await refused(calls.write(a_note(owner=an_id("boss", uid=ULID))), Status.INVALID_ARGUMENT, said)
    assert (await calls.stored(a_note(owner=boss.id))).owner == boss.id
    assert await calls.names(NOTE) == ["boss", "one"]


@pytest.mark.parametrize("with_uid", [False, True])
async def test_an_owner_that_goes_before_the_commit_refuses_the_child(
    calls: Calls,
    racing: Calls,
    interrupted: Interrupted,
    autojump_clock: trio.testing.MockClock,
    with_uid: bool,
) -> None:
    """Whether it is there is asked in the child's own commit, so that no child comes too late to be found."""
    boss = await calls.stored(a_note("boss"))
    interrupted.before_commit = [lambda: calls.delete(an_id("boss"))]
    owner = an_id("boss", uid=uid_of(boss) if with_uid else "")
    await refused(racing.write(a_note(owner=owner)), Status.INVALID_ARGUMENT, "resource.owner: Note boss", "not there")
    assert await calls.names(NOTE) == []
    assert autojump_clock.current_time() < 0.2


async def test_an_owner_is_set_at_creation_only(calls: Calls) -> None:
    """Neither added, nor removed, nor replaced, and the answer says what it is."""
    boss = await calls.stored(a_note("boss"))
    await calls.write(a_note("other"))
    await calls.write(a_note("owned", owner=an_id("boss")))
    await calls.write(a_note("free"))
    uid = uid_of(boss)
    for resource, said in (
        (a_note("owned"), f"it is Note boss with uid {uid}, not none"),
        (a_note("owned", owner=an_id("other")), f"it is Note boss with uid {uid}, not Note other with uid {uid}"),
        (
            a_note("owned", owner=an_id("boss", uid=ULID)),
            f"it is Note boss with uid {uid}, not Note boss with uid {ULID}",
        ),
        (a_note("free", owner=an_id("boss", uid=uid)), f"it is none, not Note boss with uid {uid}"),
    ):
        await refused(calls.write(resource), Status.INVALID_ARGUMENT, "owner can only be set at creation", said)


async def test_a_blanket_write_keeps_finalizers_and_mark_that_it_does_not_mention(calls: Calls) -> None:
    """Absent keys are left alone; a key that is there, even empty, replaces."""
    await calls.write(a_note(metadata={FINALIZERS: "a b", "colour": "red"}))
    kept = await calls.stored(a_note("one", "changed", metadata={"colour": "blue"}))
    assert kept.metadata == {FINALIZERS: "a b", "colour": "blue"}
    assert (await calls.stored(a_note(metadata={FINALIZERS: ""}))).metadata == {FINALIZERS: ""}
    await calls.write(a_note(metadata={FINALIZERS: "a b"}))
    await calls.delete(an_id())
    marked = await calls.stored(a_note(metadata={FINALIZERS: "b"}))
    assert marked.metadata.keys() == {FINALIZERS, DELETION_TIMESTAMP}


async def test_a_write_with_a_version_says_all_metadata(calls: Calls) -> None:
    """Its writer has seen the reserved keys, so leaving them out removes them."""
    first = await calls.stored(a_note(metadata={FINALIZERS: "a"}))
    assert (await calls.stored(a_note(version=first.version))).metadata == {}


FROZEN = {FINALIZERS: "a b", "colour": "red"}


@pytest.mark.parametrize(
    ("text", "metadata", "said"),
    [
        ("", {}, "removes none of its finalizers (a, b)"),
        ("", {FINALIZERS: "a b c"}, "adds finalizers c"),
        ("", {FINALIZERS: "a c"}, "adds finalizers c"),
        ("changed", {FINALIZERS: "a"}, "changes data"),
        ("", {FINALIZERS: "a", "colour": "blue"}, "changes metadata.colour"),
        ("", {FINALIZERS: "a", "more": ""}, "changes metadata.more"),
        ("", {FINALIZERS: "a", DELETION_TIMESTAMP: "2030-01-01T00:00:00Z"}, "changes metadata.deletionTimestamp"),
        ("", {FINALIZERS: "a", DELETION_TIMESTAMP: ""}, "changes metadata.deletionTimestamp"),
    ],
)
async def test_a_marked_resource_is_frozen(calls: Calls, text: str, metadata: dict[str, str], said: str) -> None:
    """Nothing but the removal of finalizers passes, and the answer says what was wrong."""
    await calls.write(a_note(metadata=FROZEN))
    await calls.delete(an_id())
    before = (await calls.read(an_id())).resource
    write = a_note("one", text, metadata={"colour": "red", **metadata})
    frozen = "Note one is marked for deletion: only finalizers may be removed from it now"
    await refused(calls.write(write), Status.INVALID_ARGUMENT, frozen, said)
    assert (await calls.read(an_id())).resource == before


async def test_a_mark_cannot_be_dropped_with_a_version_either(calls: Calls) -> None:
    """A deletion that has been asked for is not taken back."""
    await calls.write(a_note(metadata={FINALIZERS: "a b"}))
    marked = (await calls.delete(an_id())).resource
    assert marked is not None
    write = a_note(version=marked.version, metadata={FINALIZERS: "a"})
    await refused(calls.write(write), Status.INVALID_ARGUMENT, "changes metadata.deletionTimestamp")


async def test_finalizers_go_one_by_one_and_together(calls: Calls) -> None:
    """Any proper part of them may stay."""
    await calls.write(a_note(metadata={FINALIZERS: "a b c"}))
    await calls.delete(an_id())
    assert (await calls.stored(a_note(metadata={FINALIZERS: "b c"}))).metadata[FINALIZERS] == "b c"
    assert (await calls.stored(a_note(metadata={FINALIZERS: ""}))).metadata[FINALIZERS] == ""


@pytest.mark.parametrize("text", ["", "changed"])
async def test_a_marked_resource_without_finalizers_is_frozen_too(calls: Calls, text: str) -> None:
    """The origin lets it be changed for ever; here only Delete is left, and the answer says so."""
    await calls.write(a_note(metadata={FINALIZERS: "a"}))
    await calls.delete(an_id())
    await calls.write(a_note(metadata={FINALIZERS: ""}))
    await refused(calls.write(a_note("one", text)), Status.INVALID_ARGUMENT, "marked for deletion")
    await calls.delete(an_id())
    assert await calls.names(NOTE) == []


async def test_a_marked_resource_does_not_change_its_version_of_the_kind(calls: Calls) -> None:
    """An upgrade changes what is stored as much as new data does."""
    empty = pb.Resource(id=an_id(type=NOTE), metadata={FINALIZERS: "a b"})
    await calls.write(empty)
    await calls.delete(an_id())
    upgrade = pb.Resource(id=an_id(type=NOTE_V2), metadata={FINALIZERS: "a"})
    await refused(calls.write(upgrade), Status.INVALID_ARGUMENT, "changes the type's version")


async def test_data_that_says_the_same_in_other_bytes_is_no_change_of_a_marked_resource(calls: Calls) -> None:
    """A finalizer's owner that reads and re-encodes what another program wrote can still let go of it."""
    one, two = b"\n\x01a\x10\x01", b"\n\x01b\x10\x02"
    entries = [b"\x1a" + bytes([len(each)]) + each for each in (one, two)]
    resource = a_note(metadata={FINALIZERS: "a"})
    resource.data = AnyMessage(type_url=NOTE.type_url, value=entries[0] + entries[1])
    await calls.write(resource)
    await calls.delete(an_id())
    other = a_note(metadata={FINALIZERS: ""})
    other.data = AnyMessage(type_url=NOTE.type_url, value=entries[1] + entries[0])
    assert (await calls.stored(other)).metadata[FINALIZERS] == ""


@pytest.mark.parametrize(
    ("text", "metadata", "said"),
    [
        ("", {DELETION_TIMESTAMP: MARK}, None),
        ("changed", {DELETION_TIMESTAMP: MARK}, "changes data"),
        ("", {DELETION_TIMESTAMP: MARK, "colour": "red"}, "changes metadata.colour"),
        ("", {DELETION_TIMESTAMP: MARK, FINALIZERS: "b"}, "changes metadata.finalizers"),
        ("", {DELETION_TIMESTAMP: "soon"}, "deletionTimestamp 'soon' must be a time such as '2024-02-02T10:00:00Z'"),
        ("", {DELETION_TIMESTAMP: "2024-02-02T10:00:00"}, "must be a time such as"),
    ],
)
async def test_a_write_may_mark_a_resource_by_nothing_but_a_time(
    calls: Calls, text: str, metadata: dict[str, str], said: str | None
) -> None:
    """What Delete does may be done by hand, alone; unlike the origin's it must be a time."""
    await calls.write(a_note(metadata={FINALIZERS: "a"}))
    write = a_note("one", text, metadata=metadata)
    if said is None:
        assert (await calls.stored(write)).metadata[DELETION_TIMESTAMP] == MARK
    else:
        await refused(calls.write(write), Status.INVALID_ARGUMENT, said)


async def test_hooks_fill_in_and_refuse(calls: Calls) -> None:
    """What mutate leaves is validated and stored; what validate does to its own copy is not."""
    stored = await calls.stored(a_note("one", "", HOOKED))
    assert text_of(stored) == "untitled"
    assert stored.metadata == {}
    await refused(
        calls.write(a_note("one", "bad", HOOKED)),
        Status.INVALID_ARGUMENT,
        "Hooked one: data.text 'bad' must be something good",
    )
    said = "the mutate hook of tests.v1.Hooked raised RuntimeError('the hook is broken')"
    await refused(calls.write(a_note("one", "crash", HOOKED)), Status.INTERNAL, said)


async def test_hooks_see_an_empty_message_where_there_is_no_data(calls: Calls) -> None:
    """In the origin one that changes it crashes."""
    stored = await calls.stored(pb.Resource(id=an_id(type=HOOKED)))
    assert text_of(stored) == "untitled"


async def test_data_that_hooks_cannot_look_at_is_the_callers_fault(calls: Calls) -> None:
    """Bytes that are no payload are named as such, not as a broken hook."""
    resource = a_note("one", "", HOOKED)
    resource.data = AnyMessage(type_url=HOOKED.type_url, value=b"\xff\xff")
    await refused(calls.write(resource), Status.INVALID_ARGUMENT, "resource.data of Hooked one: not a Note")


async def test_what_no_bytes_can_hold_is_refused_before_it_is_stored(calls: Calls) -> None:
    """A request made in this process may hold what no wire would have carried; SQLite's store says so by name."""
    resource = a_note(metadata={"broken": "\ud800"})
    if isinstance(calls.backend, MemoryBackend):
        await calls.write(resource)  # which needs no bytes
    else:
        await refused(calls.write(resource), Status.INVALID_ARGUMENT, "metadata")
        assert calls.revision == 0


async def test_a_writes_position_is_that_of_its_own_commit(calls: Calls) -> None:
    """Even while others write at the same time: it is the version, and no two are the same."""
    replies: list[pb.WriteResponse] = []

    async def write(name: str) -> None:
        for _ in range(5):
            replies.append(await calls.write(a_note(name)))

    async with trio.open_nursery() as nursery:
        for number in range(8):
            nursery.start_soon(write, f"note-{number}")
    positions = [at(reply.position) for reply in replies]
    for reply, position in zip(replies, positions, strict=True):
        assert reply.resource is not None
        assert reply.resource.version == str(position.revision)
    assert len({position.revision for position in positions}) == 40
    assert {position[:2] for position in positions} == {calls.backend.position[:2]}


async def test_a_lower_fence_is_refused_and_changes_nothing(calls: Calls) -> None:
    """C8: the equal fence passes, the lower one is refused by the store, for creations and updates alike."""
    old = (await calls.raise_fence()).fence
    await calls.write(a_note("one", "kept"), fence=old)
    await calls.raise_fence()
    here = calls.revision
    for name in ("one", "new"):
        await refused(calls.write(a_note(name, "lost"), fence=old), Status.FAILED_PRECONDITION, "fenced: the fence of")
    assert calls.revision == here
    assert text_of((await calls.read(an_id("one"))).resource) == "kept"
    assert await calls.names(NOTE) == ["one"]


@pytest.mark.parametrize(
    ("fence", "said"),
    [
        (pb.Fence(term=1), "fence.controller is required"),
        (pb.Fence(controller="painter"), "fence.term 0 is no term"),
    ],
)
async def test_half_a_fence_is_refused(in_memory: Calls, fence: pb.Fence, said: str) -> None:
    """A fence that compares with nothing protects nothing."""
    await refused(in_memory.write(a_note(), fence=fence), Status.INVALID_ARGUMENT, said, "Raise")


async def test_a_write_for_another_store_is_refused(calls: Calls) -> None:
    """Versions and uids of two stores say nothing of each other: with a store id only that store is written to."""
    first = await calls.stored(a_note())
    here = calls.backend.position.store_id
    await calls.write(a_note(version=first.version), store_id=here)
    said = f"store_id: the write is for store elsewhere, and this is {here}"
    await refused(calls.write(a_note(), store_id="elsewhere"), Status.FAILED_PRECONDITION, said)


async def test_a_lost_race_to_create_is_run_again(
    calls: Calls, racing: Calls, interrupted: Interrupted, autojump_clock: trio.testing.MockClock
) -> None:
    """The origin's loser gets "wrong uid"; here it updates what the winner has made."""
    interrupted.before_commit = [lambda: calls.write(a_note("one", "winner"))]
    stored = await racing.stored(a_note("one", "loser"))
    assert text_of(stored) == "loser"
    assert uid_of(stored) == await calls.uid("one", NOTE)
    assert 0.075 <= autojump_clock.current_time() <= 0.12


async def test_a_blanket_write_is_run_five_times(autojump_clock: trio.testing.MockClock) -> None:
    """It waits between its attempts, longer each time, and not after the last."""
    backend = MemoryBackend()
    calls, interrupted = Calls(backend, registry()), Interrupted(backend)
    racing = Calls(interrupted, registry())
    await calls.write(a_note())
    times = itertools.repeat(lambda: calls.write(a_note()))
    interrupted.before_commit = list(itertools.islice(times, 4))
    await racing.write(a_note("one", "in the end"))
    assert text_of((await calls.read(an_id())).resource) == "in the end"
    assert interrupted.commits == 5
    assert 1.125 <= autojump_clock.current_time() <= 1.125 * 1.5
    interrupted.before_commit = list(itertools.islice(times, 5))
    started = autojump_clock.current_time()
    await refused(racing.write(a_note()), Status.ABORTED, "lost 5 races against other writers")
    assert interrupted.commits == 10
    assert 1.125 <= autojump_clock.current_time() - started <= 1.125 * 1.5


async def test_a_cancelled_retry_is_cancelled_and_has_written_nothing(autojump_clock: trio.testing.MockClock) -> None:
    """Who gives up while it waits gets the cancellation, not the conflict."""
    backend = MemoryBackend()
    calls, interrupted = Calls(backend, registry()), Interrupted(backend)
    interrupted.before_commit = [lambda: calls.write(a_note("one", "theirs"))]
    with trio.move_on_after(0.01) as scope:
        await Calls(interrupted, registry()).write(a_note("one", "mine"))
    assert scope.cancelled_caught
    await trio.sleep(10)
    assert text_of((await calls.read(an_id())).resource) == "theirs"
    assert autojump_clock.current_time() == pytest.approx(10.01)


@pytest.mark.parametrize("recreate", [False, True])
async def test_a_race_lost_with_a_version_is_a_conflict_that_says_what_is_stored(
    calls: Calls, racing: Calls, interrupted: Interrupted, recreate: bool
) -> None:
    """Also when another incarnation has come in between, which the caller did not name by uid."""
    first = await calls.stored(a_note())

    async def other() -> None:
        if recreate:
            await calls.delete(an_id())
        await calls.write(a_note("one", "theirs"))

    interrupted.before_commit = [other]
    write = a_note("one", "mine", version=first.version)
    said = f"Note one is stored at version {calls.revision + 1 + recreate}, not {first.version}"
    await refused(racing.write(write), Status.ABORTED, said)
    assert text_of((await calls.read(an_id())).resource) == "theirs"


async def test_a_second_attempt_begins_from_the_request_as_it_came(
    calls: Calls, racing: Calls, interrupted: Interrupted, autojump_clock: trio.testing.MockClock
) -> None:
    """An owner that was found for the first attempt is found anew for the second, by its name."""
    await calls.write(a_note("boss"))

    async def other() -> None:
        await calls.delete(an_id("boss"))
        await calls.write(a_note("boss"))
        await calls.write(a_note("one", type=CHILD, owner=an_id("boss")))

    interrupted.before_commit = [other]
    stored = await racing.stored(a_note("one", type=CHILD, owner=an_id("boss")))
    assert stored.owner is not None
    assert stored.owner.uid == await calls.uid("boss", NOTE)
    assert autojump_clock.current_time() > 0


async def test_a_write_that_has_begun_to_commit_is_not_cancelled_half_way(calls: Calls) -> None:
    """C5: cancelled before, it has written nothing; otherwise its answer comes."""
    with trio.CancelScope() as scope:
        scope.cancel()
        await calls.write(a_note())
    assert scope.cancelled_caught
    assert await calls.names(NOTE) == []
