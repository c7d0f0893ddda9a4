"""List and ListByOwner."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from grpclib.const import Status

from headway._gen.headway.store import v1 as store_pb
from headway.protobuf import encode
from headway.resource import Position, pb
from headway.service import POSITION
from headway.service._position import current_position
from headway.storage import MemoryBackend, open_watch, owned_parts
from tests.helpers.calls import Calls, at, refused
from tests.helpers.declared import (
    CHILD,
    NOTE,
    NOTE_V2,
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
from tests.helpers.restorable import RestorableBackend
from tests.service.conftest import reached

EVERYWHERE = pb.Tenancy(partition="*", namespace="*")


def within(partition: str = "", namespace: str = "") -> pb.Tenancy:
    return pb.Tenancy(partition=partition, namespace=namespace)


WRONG: list[tuple[pb.Type | None, pb.Tenancy, str, str]] = [
    (None, EVERYWHERE, "", "type is required"),
    (pb.Type(), EVERYWHERE, "", "type.group is required"),
    (a_type(UNKNOWN), EVERYWHERE, "", "type: type tests.v1.Nothing is not registered"),
    (a_type(), within("Up"), "", "tenancy of tests.v1.Note: partition 'Up' is not a valid name"),
    (a_type(), within("", "up*"), "", "tenancy of tests.v1.Note: namespace 'up*' is not a valid name"),
    (a_type(), EVERYWHERE, "Up", "name_prefix 'Up' must be lower case"),
    (a_type(REGION), within("", "up"), "", "tenancy of tests.v1.Region: namespace 'up' must be empty"),
    (a_type(PLANET), within("up"), "", "tenancy of tests.v1.Planet: partition 'up' and namespace '' must be empty"),
    (a_type(PLANET), within("", "up"), "", "must be empty: the type is cluster-scoped"),
    (a_type(PLANET), within("*"), "", "must be empty: the type is cluster-scoped"),
]
"""Types, tenancies and prefixes that List and WatchList refuse, with their errors.

Consul's List accepts a tenancy on a cluster-scoped type.
"""


@pytest.mark.parametrize(("type", "tenancy", "prefix", "said"), WRONG)
async def test_invalid_request_is_refused_with_the_field(
    in_memory: Calls, type: pb.Type | None, tenancy: pb.Tenancy, prefix: str, said: str
) -> None:
    """A star stands for any unit. Every other value must be a valid name."""
    await refused(in_memory.list_type(type, tenancy, prefix), Status.INVALID_ARGUMENT, said)


async def test_tenancy_is_required(in_memory: Calls) -> None:
    """A request for everything must say so with stars."""
    said = "tenancy is required; its units may be '*' for any"
    await refused(in_memory.list_type(a_type()), Status.INVALID_ARGUMENT, said)


async def test_list_has_one_version_of_the_kind_in_order_and_by_prefix(calls: Calls) -> None:
    """Resources of other versions are left out. The order is by partition, namespace and name."""
    for name, type in (("ab", NOTE), ("b", NOTE), ("a", NOTE), ("abc", NOTE_V2)):
        await calls.write(a_note(name, type=type))
    await calls.make_room(("a", ""))
    await calls.write(a_note("z", partition="a"))
    assert await calls.names(NOTE) == ["z", "a", "ab", "b"]
    assert await calls.names(NOTE_V2) == ["abc"]
    assert await calls.names(CHILD) == []
    reply = await calls.list_type(a_type(), EVERYWHERE, "a")
    assert [id_of(each).name for each in reply.resources] == ["a", "ab"]


async def test_min_revision_is_met_or_refused(calls: Calls) -> None:
    """A reader that has seen a revision never gets an answer from below it."""
    await calls.write(a_note())
    here = calls.revision
    assert len((await calls.list_type(a_type(), EVERYWHERE, min_revision=here)).resources) == 1
    call = calls.list_type(a_type(), EVERYWHERE, min_revision=here + 1)
    await refused(call, Status.UNAVAILABLE, f"below min_revision {here + 1}")


@pytest.mark.parametrize(
    ("owner", "said"),
    [
        (None, "owner is required"),
        (pb.Id(name="one", uid=ULID), "owner.type is required"),
        (an_id(), "owner.uid is required: ownership is by incarnation; read the owner first"),
        (an_id("One", uid=ULID), "owner of tests.v1.Note: name 'One' is not a valid name"),
        (an_id("One", type=UNKNOWN, uid=ULID), "owner of tests.v1.Nothing: name 'One' is not a valid name"),
        (pb.Id(name="one", type=a_type(kind="nothing"), uid=ULID), "owner.type: type tests.v1.nothing is not reg"),
        (an_id(type=REGION, namespace="up", uid=ULID), "namespace 'up' must be empty"),
        (an_id(type=PLANET, partition="up", uid=ULID), "must be empty: the type is cluster-scoped"),
    ],
)
async def test_invalid_owner_is_refused(in_memory: Calls, owner: pb.Id | None, said: str) -> None:
    """An owner must be a complete id, with a uid."""
    await refused(in_memory.list_by_owner(owner), Status.INVALID_ARGUMENT, said)


async def test_owned_resources_are_found_in_every_type_tenancy_and_version(calls: Calls) -> None:
    """The resources are found by the uid of the owner, and so also after its deletion."""
    await calls.make_room(("default", "up"))
    boss = await calls.stored(a_note("boss"))
    other = await calls.stored(a_note("other"))
    owned = [
        await calls.stored(resource)
        for resource in (
            a_note("a", type=CHILD, owner=an_id("boss")),
            a_note("b", type=NOTE_V2, owner=id_of(boss), namespace="up"),
            a_note("c", type=PLANET, owner=an_id("boss")),
        )
    ]
    await calls.write(a_note("d", owner=an_id("other")))
    await calls.write(a_note("e"))

    async def found(id: pb.Id) -> list[str]:
        reply = await calls.list_by_owner(id)
        assert at(reply.position) == calls.backend.position
        return sorted(uid_of(each) for each in reply.resources)

    expected = sorted(map(uid_of, owned))
    assert await found(id_of(boss)) == expected
    assert len(await found(id_of(other))) == 1
    assert await found(id_of(owned[0])) == []
    await calls.write_status(id_of(owned[0]), a_status(owned[0].generation))
    await calls.delete(an_id("boss"))
    assert await found(id_of(boss)) == expected
    again = await calls.stored(a_note("boss"))
    assert await found(id_of(again)) == []
    await calls.delete(id_of(owned[1]))
    assert len(await found(id_of(boss))) == 2


async def test_uid_owns_nothing_under_another_name_or_in_another_tenancy(anywhere: Calls) -> None:
    """In a tenancy that does not exist, an owner owns nothing, whatever uid the request names. Consul does the same.

    Otherwise, a caller that may read one owner could list the children of another.
    """
    calls = anywhere
    boss = await calls.stored(a_note("boss"))
    child = await calls.stored(a_note("a", type=CHILD, owner=boss.id))
    uid = uid_of(boss)
    for owner in (
        an_id("boss", partition="nowhere", namespace="default", uid=uid),
        an_id("boss", namespace="nowhere", uid=uid),
        an_id("other", uid=uid),
        an_id("boss", CHILD, uid=uid),
        an_id("boss", UNKNOWN, uid=uid),
        an_id("boss", uid=ULID),
    ):
        assert (await calls.list_by_owner(owner)).resources == [], owner
        assert (await calls.as_consul().list_by_owner(owner)).resources == [], owner
    for owner in (id_of(boss), an_id("boss", uid=uid), an_id("boss", NOTE_V2, uid=uid)):
        assert (await calls.list_by_owner(owner)).resources == [child], owner


async def test_known_position_of_another_history_is_refused(calls: Calls) -> None:
    """The position detects a store that was rolled back and has been written to since."""
    nobody = an_id("nobody", uid="none")
    here = calls.backend.position
    assert at((await calls.list_by_owner(nobody, here)).position) == here
    for lost in (here._replace(store_id="elsewhere"), here._replace(session="lost")):
        await refused(calls.list_by_owner(nobody, lost), Status.DATA_LOSS, f"position {lost.revision}")


async def test_size_of_a_reply_is_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """The size of a resource is an estimate when it is cached, and exact once it is encoded."""
    monkeypatch.setattr("headway.service._pages._AT_ONCE", 0)
    async with reached("network", MemoryBackend()) as calls:
        stored = await calls.stored(a_note())
        status = a_status(stored.generation, *["c"] * 30)
        for condition in status.conditions:
            condition.resource = pb.Reference(type=a_type(), name="other", section="part")
        await calls.write_status(id_of(stored), status)
        everything = (await calls.list_type(a_type(), pb.Tenancy())).resources
        whole = len(encode(pb.ListResponse(resources=everything)))
        monkeypatch.setattr("headway.service._pages.MAX_REPLY", whole)
        assert (await calls.list_type(a_type(), pb.Tenancy())).resources == everything
        monkeypatch.setattr("headway.service._pages.MAX_REPLY", whole - 1)
        await refused(calls.list_type(a_type(), pb.Tenancy()), Status.RESOURCE_EXHAUSTED, "ask for pages")


async def test_position_of_a_list_is_that_of_what_it_shows(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write after the beginning of the list is not in it, so a watch that resumes there must deliver it."""
    await calls.write(a_note("early"))

    def written_after(read: Any) -> Any:
        async def reading(*given: Any) -> Any:
            found = await read(*given)
            await calls.write(a_note("late"))
            return found

        return reading

    monkeypatch.setattr("headway.service._list.open_watch", written_after(open_watch))
    monkeypatch.setattr("headway.service._list.owned_parts", written_after(owned_parts))
    began = calls.backend.position
    reply = await calls.list_type(a_type(), pb.Tenancy())
    assert [id_of(each).name for each in reply.resources] == ["early"]
    assert at(reply.position) == began
    began = calls.backend.position
    assert at((await calls.list_by_owner(an_id("early", uid=ULID))).position) == began


async def test_known_position_is_compared_with_the_history_that_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that is put back while a call reads it answers from the present history, which lacks the position."""
    backend = RestorableBackend()
    async with reached("memory", backend) as calls:
        await calls.write(a_note("kept"))

        def put_back_before(read: Any) -> Any:
            async def reading(*given: Any) -> Any:
                backend.restore(backup, new_id=False)
                for name in ("one", "two"):
                    await calls.write(a_note(name))
                return await read(*given)

            return reading

        nobody = an_id("nobody", uid="none")
        monkeypatch.setattr("headway.service._list.owned_parts", put_back_before(owned_parts))
        monkeypatch.setattr("headway.service._position.current_position", put_back_before(current_position))
        for call in (partial(calls.list_by_owner, nobody), partial(position_of, calls)):
            backup = backend.back_up()
            await calls.write(a_note(f"lost-{backup.revision}"))
            known = backend.position
            await refused(call(known), Status.DATA_LOSS, f"position {known.revision}")


async def position_of(calls: Calls, known: Position) -> store_pb.PositionResponse:
    request = store_pb.PositionRequest(type=a_type(), known=known.message())
    return await calls.channel.unary(POSITION, request, store_pb.PositionResponse)
