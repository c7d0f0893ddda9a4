"""WriteStatus: replaces one status of one incarnation."""

from __future__ import annotations

import datetime
import itertools

import pytest
import trio.testing
from grpclib.const import Status

from headway.api import Reason
from headway.resource import EVENT, FINALIZERS, pb
from headway.storage import Put
from tests.helpers.calls import Calls, Interrupted, at, refused, take
from tests.helpers.declared import (
    NOTE,
    PLANET,
    REGION,
    ULID,
    UNKNOWN,
    a_note,
    a_status,
    a_type,
    an_id,
    id_of,
    uid_of,
)


def with_reference(reference: pb.Reference) -> pb.Status:
    return pb.Status(observed_generation=ULID, conditions=[pb.Condition(type="ready", resource=reference)])


def a_reference(
    name: str = "one", type: pb.Type | None = None, partition: str = "", namespace: str = ""
) -> pb.Reference:
    tenancy = pb.Tenancy(partition=partition, namespace=namespace)
    return pb.Reference(type=a_type() if type is None else type, tenancy=tenancy, name=name)


THE = an_id(uid=ULID)


@pytest.mark.parametrize(
    ("id", "key", "status", "said"),
    [
        (None, "k", a_status(), "id is required"),
        (pb.Id(name="one", uid=ULID), "k", a_status(), "id.type is required"),
        (an_id("", uid=ULID), "k", a_status(), "id of tests.v1.Note: name is required"),
        (an_id(type=UNKNOWN, uid=ULID), "k", a_status(), "id.type: type tests.v1.Nothing is not registered"),
        (an_id(type=REGION, namespace="up", uid=ULID), "k", a_status(), "namespace 'up' must be empty"),
        (an_id(type=PLANET, partition="up", uid=ULID), "k", a_status(), "must be empty: the type is cluster-scoped"),
        (an_id(type=EVENT, uid=ULID), "k", a_status(), "id.type: an Event has no status: write the status of the"),
        (an_id(), "k", a_status(), "id.uid is required: a status belongs to one incarnation"),
        (THE, "", a_status(), "key is required: the name under which this controller keeps its status"),
        (THE, "a\0", a_status(), r"key 'a\x00' has a character that cannot be printed: use the name of"),
        (THE, "a\nb", a_status(), r"key 'a\nb' has a character that cannot be printed: use the name of"),
        (THE, "k", None, "status is required"),
        (THE, "k", a_status(""), "status.observed_generation '' must be a generation of the resource"),
        (THE, "k", a_status("7"), "status.observed_generation '7' must be a generation"),
        (THE, "k", a_status("8" + ULID[1:]), "must be a generation"),
        (THE, "k", a_status(ULID[:-1] + "I"), "must be a generation"),
        (THE, "k", a_status(ULID[:-1] + "\N{LATIN SMALL LETTER LONG S}"), "must be a generation"),
        (
            THE,
            "k",
            pb.Status(observed_generation=ULID, updated_at=datetime.datetime(2024, 2, 2, tzinfo=datetime.UTC)),
            "status.updated_at 2024-02-02T00:00:00+00:00 must be empty: the server sets it",
        ),
        (THE, "k", with_reference(pb.Reference(name="one")), "status.conditions[0].resource.type is required"),
        (THE, "k", with_reference(a_reference("")), "status.conditions[0].resource: name is required"),
        (THE, "k", with_reference(a_reference("One")), "resource: name 'One' is not a valid name"),
        (THE, "k", with_reference(a_reference(partition="Up")), "resource: partition 'Up' is not a valid name"),
        (THE, "k", with_reference(a_reference(namespace="Up")), "resource: namespace 'Up' is not a valid name"),
        (THE, "k", with_reference(a_reference(type=pb.Type())), "resource: group '' must be snake_case"),
        (THE, "k", with_reference(a_reference(type=a_type(UNKNOWN), partition="Up")), "partition 'Up' is not a valid"),
    ],
)
async def test_invalid_request_is_refused_with_the_field(
    in_memory: Calls, id: pb.Id | None, key: str, status: pb.Status | None, said: str
) -> None:
    """Every missing or invalid field is refused."""
    await refused(in_memory.write_status(id, status, key=key), Status.INVALID_ARGUMENT, said)


async def test_every_invalid_condition_is_named(in_memory: Calls) -> None:
    """Consul names only the last one."""
    bad = [pb.Condition(type="bad", resource=a_reference(name)) for name in ("First", "Second")]
    status = pb.Status(observed_generation=ULID, conditions=[pb.Condition(type="good"), *bad, pb.Condition()])
    await refused(
        in_memory.write_status(THE, status),
        Status.INVALID_ARGUMENT,
        "status.conditions[1].resource: name 'First'",
        "; status.conditions[2].resource: name 'Second'",
        "; status.conditions[3].type is required",
    )


@pytest.mark.parametrize("same", [False, True])
async def test_observed_generation_never_goes_back(calls: Calls, same: bool) -> None:
    """Consul accepts an older generation. Here, its writer is asked to read again, whatever else it writes."""
    old = await calls.stored(a_note())
    new = await calls.stored(a_note("one", "changed"))
    stored = (await calls.write_status(id_of(new), a_status(new.generation, "seen"))).resource
    late = a_status(old.generation, "seen" if same else "missed")
    said = f"Note one: status mine already observes generation {new.generation}, above {old.generation}; read it again"
    await refused(calls.write_status(id_of(new), late), Status.ABORTED, said)
    assert (await calls.read(an_id())).resource == stored
    await calls.write_status(id_of(new), a_status(old.generation), key="another")
    await calls.write_status(id_of(new), a_status(new.generation, "more"))


async def test_generations_of_one_resource_only_grow(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds within one millisecond, and after the clock is set back.

    A mark for deletion is a new generation, too.
    """
    first = await calls.stored(a_note(metadata={FINALIZERS: "a"}))
    monkeypatch.setattr("headway.service._writing.ulid_now", lambda: ULID)
    grown = [first.generation]
    for _ in range(70):
        grown.append((await calls.stored(a_note())).generation)
    marked = (await calls.delete(an_id())).resource
    assert marked is not None
    grown.append(marked.generation)
    assert all(one < two for one, two in itertools.pairwise(grown))
    assert {len(each) for each in grown} == {26}


@pytest.mark.parametrize(
    ("reference", "stored_as"),
    [
        (a_reference(), a_reference(partition="default", namespace="default")),
        (a_reference(partition="here", namespace="there"), None),
        (a_reference(type=a_type(PLANET)), None),
        (a_reference(type=a_type(REGION), partition="here"), None),
        (a_reference(type=a_type(UNKNOWN), partition="here"), None),
    ],
)
async def test_condition_may_refer_to_any_scope_and_to_unregistered_types(
    calls: Calls, reference: pb.Reference, stored_as: pb.Reference | None
) -> None:
    """Consul requires a partition and a namespace, which not every resource has."""
    stored = await calls.stored(a_note())
    reply = await calls.write_status(id_of(stored), with_reference(reference))
    assert reply.resource is not None
    assert reply.resource.status["mine"].conditions == with_reference(stored_as or reference).conditions


async def test_request_is_not_changed_and_later_changes_of_it_change_nothing(calls: Calls) -> None:
    stored = await calls.stored(a_note())
    status = with_reference(a_reference())
    await calls.write_status(id_of(stored), status)
    assert status == with_reference(a_reference())
    status.conditions[0].type = "other"
    status.conditions.clear()
    known = (await calls.read(an_id())).resource
    assert known is not None
    assert [each.type for each in known.status["mine"].conditions] == ["ready"]


async def test_one_status_is_replaced_and_the_others_stay(calls: Calls) -> None:
    """The version changes and the generation does not. The server sets the time."""
    stored = await calls.stored(a_note(metadata={"a": "b"}))
    begun = datetime.datetime.now(datetime.UTC)
    await calls.write_status(id_of(stored), a_status(stored.generation), key="theirs")
    for types in (("ready",), ("ready", "happy")):
        reply = await calls.write_status(id_of(stored), a_status(stored.generation, *types), key="mine")
        written = reply.resource
        assert written is not None
        assert written.status.keys() == {"mine", "theirs"}
        assert [each.type for each in written.status["mine"].conditions] == list(types)
        assert written.status["mine"].updated_at is not None
        assert written.status["mine"].updated_at >= begun
        assert (written.generation, written.data, written.metadata) == (stored.generation, stored.data, {"a": "b"})
        assert written.version == str(at(reply.position).revision) == str(calls.revision)
        assert (await calls.read(an_id())).resource == written


async def test_unchanged_status_makes_no_commit_and_no_event(calls: Calls) -> None:
    """Consul makes a new version each time, so a controller that writes a status at each change loops forever."""
    stored = await calls.stored(a_note())
    first = await calls.write_status(id_of(stored), a_status(stored.generation))
    async with calls.watch(a_type()) as items:
        await take(items, 2)
        again = await calls.write_status(id_of(stored), a_status(stored.generation))
        assert again.resource == first.resource
        assert (first.unchanged, again.unchanged) == (False, True)
        assert at(again.position) == at(first.position) == calls.backend.position
        other = await calls.write_status(id_of(stored), a_status(stored.generation, state=pb.ConditionState.FALSE))
        assert not other.unchanged
        (heard,) = await take(items, 1)
        assert [change.resource for change in heard.changes] == [other.resource]  # type: ignore[union-attr]  # a Changes
    newer = await calls.stored(a_note())
    reply = await calls.write_status(id_of(stored), a_status(newer.generation, state=pb.ConditionState.FALSE))
    assert at(reply.position).revision == int(newer.version) + 1


async def test_marked_resource_accepts_a_status(calls: Calls) -> None:
    """A status can report the progress of the cleanup."""
    stored = await calls.stored(a_note(metadata={FINALIZERS: "a"}))
    await calls.delete(an_id())
    reply = await calls.write_status(id_of(stored), a_status(stored.generation))
    assert reply.resource is not None
    assert "mine" in reply.resource.status


async def test_lower_fence_is_refused_even_if_nothing_would_change(calls: Calls) -> None:
    """C8: a superseded run learns by any write that it is superseded, and none of its writes changes anything."""
    old = (await calls.raise_fence()).fence
    stored = await calls.stored(a_note())
    await calls.write_status(id_of(stored), a_status(stored.generation), fence=old)
    await calls.write_status(id_of(stored), a_status(stored.generation), fence=old)
    await calls.raise_fence()
    here = calls.revision
    for status in (a_status(stored.generation), a_status(stored.generation, "other")):
        call = calls.write_status(id_of(stored), status, fence=old)
        await refused(call, Status.FAILED_PRECONDITION, "the fence of painter", reason=Reason.FENCED)
    assert calls.revision == here


async def test_status_for_another_store_is_refused(calls: Calls) -> None:
    """The rule is the same as in Write."""
    stored = await calls.stored(a_note())
    call = calls.write_status(id_of(stored), a_status(), store_id="elsewhere")
    await refused(call, Status.FAILED_PRECONDITION, "store_id: the write is for store elsewhere")


async def test_lost_race_is_retried(
    calls: Calls, racing: Calls, interrupted: Interrupted, autojump_clock: trio.testing.MockClock
) -> None:
    """A concurrent write between read and commit costs a wait. No change of either writer is lost."""
    stored = await calls.stored(a_note())
    interrupted.before_commit = [lambda: calls.write_status(id_of(stored), a_status(), key="theirs")]
    reply = await racing.write_status(id_of(stored), a_status(), key="mine")
    assert reply.resource is not None
    assert reply.resource.status.keys() == {"mine", "theirs"}
    assert 0.075 <= autojump_clock.current_time() <= 0.12


@pytest.mark.parametrize("versioned", [False, True])
async def test_lost_race_against_a_recreation_reports_the_deleted_incarnation(
    calls: Calls, racing: Calls, interrupted: Interrupted, autojump_clock: trio.testing.MockClock, versioned: bool
) -> None:
    """Consul answers INTERNAL."""
    stored = await calls.stored(a_note())

    async def recreate() -> None:
        await calls.delete(an_id())
        await calls.write(a_note())

    interrupted.before_commit = [recreate]
    version = stored.version if versioned else ""
    call = racing.write_status(id_of(stored), a_status(), version=version)
    await refused(call, Status.NOT_FOUND, f"Note one with uid {uid_of(stored)} not found")
    assert (autojump_clock.current_time() > 0) is not versioned


async def test_observed_generation_may_be_in_lower_case(calls: Calls) -> None:
    """The generation is stored in the same case as the resource's, so that readers can compare the two."""
    stored = await calls.stored(a_note())
    for generation in (stored.generation.lower(), stored.generation):
        reply = await calls.write_status(id_of(stored), a_status(generation))
        assert reply.resource is not None
        assert reply.resource.status["mine"].observed_generation == stored.generation
    assert calls.revision == 2
    await refused(calls.write_status(id_of(stored), a_status("0" + ULID[1:].lower())), Status.ABORTED, "read it again")


async def test_stored_status_whose_key_cannot_be_written_stays(calls: Calls) -> None:
    """An earlier version stored any key. Readers get it, and other statuses are written beside it."""
    stored = await calls.stored(a_note())
    key = ("default", "default", "one")
    odd = pb.Resource(id=stored.id, generation=stored.generation, data=stored.data, status={"a\nb": a_status()})
    await calls.backend.commit((Put(NOTE.kind, key, odd, stored.version),))
    await calls.write_status(id_of(stored), a_status(stored.generation), key="mine")
    read = (await calls.read(an_id())).resource
    assert read is not None
    assert read.status.keys() == {"a\nb", "mine"}
