"""Caches of programs: opened primed, read without waiting, kept up to date, and ended with their block."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

import headway
from headway.access import Access, Token, new_token
from headway.errors import (
    DeclarationError,
    InvalidArgument,
    NotHeadway,
    NotPrimed,
    NotWatched,
    PermissionDenied,
    StoreChanged,
)
from headway.resource import Position
from tests.helpers.cached import HOW, Staff, authorizer, names, readers
from tests.helpers.resources import Account

BOTH = pytest.mark.parametrize("how", HOW)


@BOTH
async def test_cache_is_entered_with_everything_that_the_store_has(how: str) -> None:
    """All types are complete up to the position of the store at the time of the call."""
    staff = Staff()
    async with staff.open(listen=True):
        for number in range(300):
            await staff.write_team(f"team-{number:03d}")
        last = await staff.write_account("ada", "al")
        async with staff.cache(how) as cache:
            assert len(cache.list(staff.team)) == 300
            assert names(cache.index(staff.by_login, "al")) == ["ada"]
            assert cache.position.revision >= int(last.version)


@BOTH
async def test_cache_follows_every_change(how: str) -> None:
    """`wait_for` takes a written resource, a revision and a position, and then the cache shows the write."""
    staff = Staff()
    async with staff.open(listen=True), staff.cache(how) as cache:
        core = await staff.write_team("core", "ada")
        await cache.wait_for(core)
        found = cache.get(staff.team, "core")
        assert found is not None
        assert found.data.members == ["ada"]
        found.data.members.append("mine to change")
        await staff.engine.client.delete(core)
        await cache.wait_for(staff.store.position.revision)
        assert cache.list(staff.team) == []
        docs = await staff.write_team("docs")
        await cache.wait_for(Position(staff.store.position.store_id, "", int(docs.version)))
        assert names(cache.list(staff.team)) == ["docs"]


@BOTH
async def test_view_shows_several_types_at_one_revision(how: str) -> None:
    """It does not change while it is open."""
    staff = Staff()
    async with staff.open(listen=True), staff.cache(how) as cache:
        await cache.wait_for(await staff.write_team("core"))
        async with cache.view(staff.team, staff.account) as view:
            await cache.wait_for(await staff.write_account("ada"))
            assert view.list(staff.account) == []
        assert names(cache.list(staff.account)) == ["ada"]


@BOTH
async def test_p2_wait_ends_at_its_revision_and_a_deadline_leaves_the_state_readable(how: str) -> None:
    """A wait for a revision that the cache has ends at once. A wait without an end does not affect later reads."""
    staff = Staff()
    async with staff.open(listen=True), staff.cache(how) as cache:
        written = await staff.write_team("core")
        with trio.fail_after(60):
            await cache.wait_for(written)
            assert names(cache.list(staff.team)) == ["core"]
            await cache.wait_for(written)
            await cache.wait_for(0)
        here = cache.position.revision
        with trio.move_on_after(0.05) as deadline:
            await cache.wait_for(here + 1)
        assert deadline.cancelled_caught
        assert (cache.position.revision, names(cache.list(staff.team))) == (here, ["core"])
        assert not cache._waits


@BOTH
async def test_exception_of_the_block_leaves_unwrapped(how: str) -> None:
    """It is the same object, with its cause."""
    staff = Staff()
    raised = ValueError("mine")
    async with staff.open(listen=True):
        with pytest.raises(ValueError, match="mine") as caught:
            async with staff.cache(how):
                raise raised from KeyError("cause")
        assert caught.value is raised
        assert isinstance(raised.__cause__, KeyError)
        group = ExceptionGroup("theirs", [ValueError("one")])
        with pytest.raises(ExceptionGroup) as grouped:
            async with staff.cache(how), staff.cache(how):
                raise group
        assert grouped.value is group


@BOTH
async def test_cache_is_closed_with_its_block(how: str) -> None:
    """Reads and waits raise NotPrimed then, and no task is left."""
    staff = Staff()
    async with staff.open(listen=True):
        async with staff.cache(how) as cache:
            assert cache.primed
        with pytest.raises(NotPrimed, match="its block has ended"):
            cache.list(staff.team)
        with pytest.raises(NotPrimed):
            await cache.wait_for(1)
        with pytest.raises(NotPrimed):
            cache.status()


async def test_p3_cache_of_the_process_shares_one_stream(autojump_clock: MockClock) -> None:
    """However many caches read a type, it has one stream, which is closed with the last of them."""
    staff = Staff()
    async with staff.open():
        await staff.write_team("core")
        async with staff.cache() as first, staff.cache() as second:
            assert sorted(staff.channel.opened) == [(staff.account.kind, False), (staff.team.kind, False)]
            stored = [cache._content(staff.team).find(("default", "default", "core")) for cache in (first, second)]
            assert stored[0] is stored[1]
            in_store, _ = await staff.store.read(staff.team.kind, ("default", "default", "core"))
            assert stored[0] is in_store, "the engine's process copies resources into its caches"
            assert len(staff.channel.streams(staff.team).open) == 1
        await wait_all_tasks_blocked()
        assert staff.channel.streams(staff.team).open == []


async def stay(staff: Staff, token: str, change: Callable[[], object]) -> None:
    """Stay in the block of a cache, after changing what its token may do."""
    with trio.fail_after(60):
        async with staff.cache("TCP", token=token):
            change()
            await trio.sleep_forever()


async def test_p7_revoked_token_ends_the_block_with_a_named_error() -> None:
    """The error says which type is denied, and why. It is not in a group, although two types are denied."""
    text, token = new_token(["readers"])
    access = authorizer(readers("view"), token)
    gone = Token(accessor=token.accessor, hash=token.hash, policies=["readers"], revoked=True)
    staff = Staff()
    async with staff.open(listen=True, access=access):
        with pytest.raises(PermissionDenied, match="revoked"):
            await stay(staff, text, lambda: access.replace(Access([readers("view")], [gone])))


async def test_exception_of_a_block_that_a_revoked_token_ends_is_kept() -> None:
    """The block fails while it is canceled. Its exception is the one that the program has to see."""
    text, token = new_token(["readers"])
    access = authorizer(readers("view"), token)
    staff = Staff()

    async def fail_when_canceled() -> None:
        try:
            access.replace(Access([readers("view")], []))
            await trio.sleep_forever()
        finally:
            raise ValueError("mine")

    with trio.fail_after(60):
        async with staff.open(listen=True, access=access):
            with pytest.raises(ValueError, match="mine") as caught:
                async with staff.cache("TCP", token=text):
                    await fail_when_canceled()
    assert isinstance(caught.value.__context__, PermissionDenied)


async def test_lost_right_to_a_type_ends_the_block() -> None:
    """The stream is asked to begin again, and is then denied."""
    text, token = new_token(["readers"])
    access = authorizer(readers("view"), token)
    staff = Staff()
    async with staff.open(listen=True, access=access):
        with pytest.raises(PermissionDenied, match="cannot be watched"):
            await stay(staff, text, lambda: access.replace(Access([readers("delete")], [token])))


async def test_server_that_is_no_engine_is_named() -> None:
    """A web server does not become an engine by waiting."""
    staff = Staff()

    async def answer(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, answer, 0)
        address = f"127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        with pytest.raises(NotHeadway), trio.fail_after(60):
            async with headway.open_cache(address, staff.app, watches=[staff.team], report=lambda _: None):
                pytest.fail("it was entered")
        nursery.cancel_scope.cancel()


async def test_undeclared_parts_are_refused_with_their_names() -> None:
    """Before anything is opened, or at the read."""
    staff = Staff()
    other = headway.App("other").type("other", "v1", "Account", Account)
    by_login = headway.indexes.by(other, "login", lambda account: account.data.login)
    async with staff.open():
        for options, text in (
            ({"watches": []}, "at least one type"),
            ({"watches": [other]}, "other.v1.Account is not a type of the apps"),
            ({"watches": ["Team"]}, "'Team' is not a type"),
            ({"watches": [staff.team, staff.team]}, "twice"),
            ({"indexes": [by_login]}, "add <ResourceType other.v1.Account> to `watches`"),
            ({"indexes": [staff.by_login, staff.by_login]}, "twice"),
        ):
            with pytest.raises(DeclarationError, match=text):
                async with staff.cache(**options):
                    pytest.fail("it was entered")
        async with staff.cache(watches=[staff.team], indexes=[]) as cache:
            with pytest.raises(NotWatched, match=r"this cache doesn't watch staff\.v1\.Account"):
                cache.list(staff.account)
            with pytest.raises(NotWatched, match="this cache doesn't"):
                cache.index(staff.by_login, "al")
            for wrong in ("core", -1, True, staff.team.new("unstored")):
                with pytest.raises(InvalidArgument, match=r"wait_for\(\) expects"):
                    await cache.wait_for(wrong)  # type: ignore[arg-type]  # the test passes wrong arguments
            with pytest.raises(StoreChanged, match="belongs to store elsewhere"):
                await cache.wait_for(Position("elsewhere", "", 1))


async def test_status_says_for_how_long_the_cache_has_been_cut_off(autojump_clock: MockClock) -> None:
    """Reads go on meanwhile. When the stream is back, the status says so."""
    staff = Staff()
    async with staff.open():
        await staff.write_team("core")
        async with staff.cache() as cache:
            status = cache.status()
            assert (status.lag, status.cut_off, status.cut_off_seconds, status.problem) == (0, "", 0.0, None)
            assert status.position == cache.position
            staff.channel.cut(staff.team)
            await trio.sleep(100)
            written = await staff.write_account("ada")
            await trio.sleep(1)
            status = cache.status()
            assert 100 <= status.cut_off_seconds <= 102
            assert "staff.v1.Team" in status.cut_off
            assert status.position.revision < int(written.version)
            assert status.lag >= 1
            assert names(cache.list(staff.team)) == ["core"]
            staff.channel.mend()
            await cache.wait_for(written)
            assert cache.status().cut_off_seconds == 0.0
