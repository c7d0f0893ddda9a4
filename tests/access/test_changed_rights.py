"""Views that outlive a change of their caller's rights show what may be read now: nothing less, and nothing else."""

from __future__ import annotations

import pytest
import trio
from grpclib.const import Status

import headway
from headway import rpc
from headway.access import Access, Authorizer, Policy, Rule, new_token
from headway.errors import HeadwayError
from headway.resource import Bookmark, EndOfSnapshot, pb, position
from headway.service import WATCH_LIST, WatchDecoder
from tests.helpers.cached import Staff, names
from tests.helpers.service_errors import status_of

TEXT, TOKEN = new_token(["readers"])
TEAM = "staff.v1.Team"


def rule(verbs: list[str], type: str, namespace: str = "*", name_prefix: str = "") -> Rule:
    return Rule(verbs=verbs, type=type, partition="*", namespace=namespace, name_prefix=name_prefix)


def reading(name_prefix: str = "", *others: Rule) -> Access:
    """Return rules to watch all types, and to read the teams with a prefix and all accounts."""
    rules = [
        rule(["list", "watch"], "staff.*.*"),
        rule(["read"], TEAM, "*", name_prefix),
        rule(["read"], "staff.v1.Account"),
        *others,
    ]
    return Access([Policy("readers", rules)], [TOKEN])


async def test_p7_cache_shows_what_may_be_read_after_a_change_of_rights() -> None:
    """A resumed stream would keep what was hidden as it was, whatever happens to it, and lack what was shown."""
    access = Authorizer(reading())
    staff = Staff()
    with trio.fail_after(60):
        async with staff.open(listen=True, access=access):
            for name in ("ada", "ben"):
                await staff.write_team(name)
            async with staff.cache("TCP", token=TEXT) as cache, cache.notify() as updates:
                teams = updates.list(staff.team)
                await updates.primed()
                assert names(teams.value) == ["ada", "ben"]
                for prefix, shown in (("a", ["ada"]), ("", ["ada", "ben"])):
                    access.replace(reading(prefix))
                    async for _ in updates:
                        if names(teams.value) == shown:
                            break
                    # It is not only the end of the change that is right. Each later change is checked, too.
                    await cache.wait_for(await staff.write_account("al"))
                    assert names(cache.list(staff.team)) == shown
                    await staff.write_team("ben", prefix or "all")
                    await cache.wait_for(await staff.write_team("ada", prefix or "all"))
                    assert {team.name: team.data.members for team in cache.list(staff.team)} == {
                        name: [prefix or "all"] for name in shown
                    }


class Watches:
    """Watches of teams by hand."""

    def __init__(self, staff: Staff, channel: rpc.RemoteChannel) -> None:
        self._type = staff.team.name.message()
        self._channel = channel

    async def position(self) -> pb.Position:
        """Return the position of a list."""
        request = pb.ListRequest(type=self._type, tenancy=pb.Tenancy(partition="*", namespace="*"))
        answer = await self._channel.unary(
            "/headway.resource.v1.ResourceService/List", request, pb.ListResponse, metadata={"x-consul-token": TEXT}
        )
        assert answer.position is not None
        return answer.position

    async def first(self, after: pb.Position | None) -> object:
        """Return the first item of a watch that is not a part of a snapshot."""
        request = pb.WatchListRequest(
            type=self._type, tenancy=pb.Tenancy(partition="*", namespace="*"), resume_after=after, bookmarks=True
        )
        async with self._channel.stream(WATCH_LIST, request, metadata={"x-consul-token": TEXT}) as items:
            async for item in items:
                if isinstance(item, Bookmark | EndOfSnapshot):
                    return item
        raise AssertionError("the watch has ended")


OTHER = rule(["read", "write"], "staff.v1.Secret")


@pytest.mark.parametrize(
    ("before", "after", "resumes"),
    [
        (reading("a"), reading("a", OTHER), True),
        (reading("a"), reading("a", rule(["write"], TEAM)), True),
        (reading("a"), reading("a", rule(["view"], TEAM, "*", "a")), True),
        (reading("a"), reading("b"), False),
        (reading("a"), reading("a", rule(["read"], TEAM, "*", "b")), False),
        (reading("a"), reading("a", rule(["view"], "*", "sales")), False),
    ],
)
async def test_watch_resumes_as_long_as_it_shows_the_same(before: Access, after: Access, resumes: bool) -> None:
    """A change of rights to other types, or to other verbs, costs no snapshot."""
    access = Authorizer(before)
    staff = Staff()
    with trio.fail_after(60):
        async with (
            staff.open(listen=True, access=access),
            rpc.open_channel(staff.engine.addresses, decoders={WATCH_LIST: WatchDecoder}) as channel,
        ):
            watches = Watches(staff, channel)
            end = await watches.first(None)
            assert isinstance(end, EndOfSnapshot)
            listed = await watches.position()
            assert position(listed) == end.position
            access.replace(after)
            if resumes:
                found = await watches.first(listed)
                assert isinstance(found, Bookmark)
                assert found.resumed
                assert found.position == end.position
            else:
                with pytest.raises(HeadwayError, match="under other rights to read") as caught:
                    await watches.first(listed)
                assert status_of(caught.value) is Status.OUT_OF_RANGE


async def test_position_reveals_no_rule() -> None:
    """It has a digest, which is the same for all callers who may read the same."""
    access = Authorizer(reading("secret-project"))
    staff = Staff()
    with trio.fail_after(60):
        async with (
            staff.open(listen=True, access=access),
            headway.connect(staff.engine.addresses, staff.app, token=TEXT, insecure=True),
            rpc.open_channel(staff.engine.addresses, decoders={WATCH_LIST: WatchDecoder}) as channel,
        ):
            found = await Watches(staff, channel).position()
            assert len(found.versions) == len("#") + 16
            assert "secret" not in str(found)
