"""The authority in engines: several on one store, rotations, TLS in each of their moments, and no key in sight."""

from __future__ import annotations

import datetime
import itertools
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import headway
from mesh.certificates import IdentityKey, Leaf, certificates
from mesh.certificates.controllers import KEY, load
from mesh.certificates.messages import CertificateAuthority, RootState
from mesh.certificates.sealing import Sealing
from mesh.certificates.types import CERTIFICATE_AUTHORITY, TRUST_BUNDLE, TRUST_REPORT
from tests.mesh.certificates.handshakes import shake
from tests.mesh.certificates.planes import Plane, Proxy, SharedMemory, key_file, now

SECOND = datetime.timedelta(seconds=1)
WEB, API = IdentityKey("default", "default", "web"), IdentityKey("default", "default", "api")


def authority(rotation: str = "", trusted_after: float = 40) -> headway.Resource[CertificateAuthority]:
    """Return an authority with times of seconds."""
    data = CertificateAuthority(
        rotation=rotation,
        leaf_lifetime=60 * SECOND,
        trusted_after=trusted_after * SECOND,
        removed_after=90 * SECOND,
    )
    return CERTIFICATE_AUTHORITY.new("mesh", data)


@asynccontextmanager
async def running(*planes: Plane) -> AsyncIterator[tuple[trio.Nursery, SharedMemory]]:
    """Run control planes on one store."""
    async with SharedMemory() as store, trio.open_nursery() as nursery:
        for plane in planes:
            await nursery.start(plane.run, store)
        yield nursery, store
        nursery.cancel_scope.cancel()


async def wait_reason(plane: Plane, reason: str, within: float = 200) -> None:
    """Wait until a rotation waits for this."""
    with trio.fail_after(within):
        while await plane.reason() != reason:  # noqa: ASYNC110  # the status is the subject
            await trio.sleep(0.5)


async def wait_served(*proxies: Proxy) -> None:
    """Wait until proxies have a leaf."""
    with trio.fail_after(60):
        while not all(each.leaf for each in proxies):  # noqa: ASYNC110  # what proxies have is the subject
            await trio.sleep(0.5)


def check(proxies: Sequence[Proxy]) -> None:
    """Check that each proxy has a leaf that is valid, and that its next ones accept it and are accepted."""
    for one, other in itertools.pairwise([*proxies, proxies[0]]):
        assert one.leaf is not None
        assert other.leaf is not None
        assert now() < one.leaf.expires
        shake(one.leaf, one.roots, other.leaf, other.roots)


async def test_lc7_lc8_lc9_w3_handshakes_succeed_at_each_moment_of_a_rotation_with_crashes(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Three control planes. The leader is killed once in each phase, and another one takes its proxies."""
    key = key_file(tmp_path)
    names = (f"plane-{number}" for number in itertools.count(1))
    proxies = [Proxy(WEB, takes=1), Proxy(API, takes=3), Proxy(WEB, takes=0), Proxy(API, takes=2)]
    planes = [Plane(next(names), key, [proxies[0], proxies[1]]), Plane(next(names), key, [proxies[2]])]
    planes.append(Plane(next(names), key, [proxies[3]]))
    async with running(*planes) as (nursery, store):
        await planes[0].engine.client.apply(authority())
        await wait_served(*proxies)
        before = [each.leaf for each in proxies]
        await planes[0].engine.client.apply(authority("a"))
        seen: list[str] = []
        with trio.fail_after(600):
            while True:
                check(proxies)
                reason = await planes[-1].reason()
                if reason != (seen or [""])[-1] and (seen or reason != "OneRoot"):
                    seen.append(reason)
                    if reason == "OneRoot":
                        break
                    # The oldest is the leader.
                    gone = planes.pop(0)
                    await gone.kill()
                    planes.append(Plane(next(names), key, gone.proxies))
                    await nursery.start(planes[-1].run, store)
                await trio.sleep(1.7)
        assert seen == ["WaitingForProxies", "OldRootTrusted", "OneRoot"]
        with trio.fail_after(20):
            while {each.roots for each in proxies} != {planes[-1].leaves.roots()}:
                check(proxies)
                await trio.sleep(0.5)
        [root] = planes[-1].leaves.roots()
        check(proxies)
        # Leaves of the old root are refused now.
        old, new = before[0], proxies[1].leaf
        assert old is not None
        assert new is not None
        with pytest.raises(ssl.SSLError):
            shake(new, (root,), old, (root,))


async def test_rotation_ends_early_if_all_processes_acknowledge_and_else_with_the_time(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    key = key_file(tmp_path)
    for acknowledges, least, most in ((True, 3, 15), (False, 39, 48)):
        slow = Proxy(API, takes=3)
        planes = [Plane("one", key, [Proxy(WEB)]), Plane("two", key, [slow], acknowledges=acknowledges)]
        async with running(*planes):
            client = planes[0].engine.client
            await client.apply(authority())
            await wait_served(slow)
            await client.apply(authority("a"))
            begun = trio.current_time()
            await wait_reason(planes[0], "WaitingForProxies")
            [condition, _] = (await client.read(CERTIFICATE_AUTHORITY, "mesh")).status[KEY].conditions
            assert "of 2 processes report" in condition.message
            await wait_reason(planes[0], "OldRootTrusted")
            assert least < trio.current_time() - begun < most


async def test_engines_agree_on_the_first_root_and_leaves_of_both_are_accepted(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    key = key_file(tmp_path)
    planes = [Plane("one", key, [Proxy(WEB)]), Plane("two", key, [Proxy(API)])]
    async with running(*planes):
        await trio.sleep(5)
        assert planes[0].leaves.roots() == planes[1].leaves.roots() == ()
        await planes[1].engine.client.apply(authority())
        proxies = [*planes[0].proxies, *planes[1].proxies]
        await wait_served(*proxies)
        assert len({each.roots for each in proxies}) == 1
        check(proxies)


async def test_report_of_a_process_that_ended_is_removed(tmp_path: Path, autojump_clock: MockClock) -> None:
    key = key_file(tmp_path)
    planes = [Plane("one", key), Plane("two", key)]
    async with running(*planes):
        client = planes[0].engine.client
        await client.apply(authority())
        await trio.sleep(20)
        assert {each.name for each in await client.list(TRUST_REPORT)} == {"one", "two"}
        await planes[1].kill()
        await trio.sleep(80)
        assert {each.name for each in await client.list(TRUST_REPORT)} == {"one"}
        await client.delete(TRUST_REPORT.id("one"))
        await trio.sleep(1)
        assert {each.name for each in await client.list(TRUST_REPORT)} == {"one"}


async def test_process_with_another_key_file_says_so_and_delays_a_rotation_and_gives_no_leaf(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Its proxies get the roots, so that nobody refuses them."""
    good, wrong = key_file(tmp_path), key_file(tmp_path, "wrong.key")
    planes = [Plane("one", good, [Proxy(WEB)]), Plane("two", wrong)]
    async with running(*planes):
        client = planes[0].engine.client
        await client.apply(authority())
        await wait_served(*planes[0].proxies)
        await trio.sleep(1)
        assert planes[1].leaves.roots() == planes[0].leaves.roots()
        with pytest.raises(headway.errors.FailedPrecondition, match="cannot use the key of the root"):
            await planes[1].leaves.leaf(API)
        shown = "\n".join(map(repr, planes[1].events))
        assert f"the key file {wrong} does not open the stored key" in shown
        await client.apply(authority("a"))
        begun = trio.current_time()
        await wait_reason(planes[0], "OldRootTrusted")
        assert trio.current_time() - begun > 39


async def test_status_says_that_the_leaders_key_file_is_the_wrong_one(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    good, wrong = key_file(tmp_path), key_file(tmp_path, "wrong.key")
    async with SharedMemory() as store, trio.open_nursery() as nursery:
        first = Plane("one", good, [Proxy(WEB)])
        await nursery.start(first.run, store)
        await first.engine.client.apply(authority())
        await wait_served(*first.proxies)
        await first.kill()
        second = Plane("two", wrong)
        await nursery.start(second.run, store)
        with trio.fail_after(100):
            while True:
                stored = await second.engine.client.read(CERTIFICATE_AUTHORITY, "mesh")
                found = stored.status[KEY].conditions[1]
                if found.reason == "WrongKeyFile":
                    break
                await trio.sleep(1)
        assert str(wrong) in found.message
        nursery.cancel_scope.cancel()


def materials(leaf: Leaf | None, root_key: bytes, file: bytes) -> list[str]:
    """Return pieces of keys, and a mark of each key.

    The third line of a key has the public key alone, which certificates may have in the same form.
    """
    assert leaf is not None
    pieces = [line for text in (leaf.key, root_key.decode()) for line in text.splitlines()[1:3]]
    return ["PRIVATE KEY", file.decode(), *pieces]


async def test_no_key_reaches_the_store_or_events_or_answers(tmp_path: Path, autojump_clock: MockClock) -> None:
    """Only what the store keeps and a client reads is searched, and what is reported: logs are made of that."""
    key = key_file(tmp_path)
    plane = Plane("one", key, [Proxy(WEB)])
    async with running(plane):
        client = plane.engine.client
        await client.apply(authority())
        await wait_served(*plane.proxies)
        await client.apply(authority("a"))
        await wait_reason(plane, "OldRootTrusted")
        bundle = await client.read(TRUST_BUNDLE, "mesh")
        sealed = bytes(bundle.data.roots[1].sealed_key)
        secret = Sealing(key).unseal(sealed)
        stored = [each async for each in everything(client)]
        shown = "\n".join(
            [
                *map(repr, [*stored, *plane.events, plane.leaves, plane.proxies, vars(plane.leaves)]),
                *(repr(each.data) for each in stored),
            ]
        )
        for line in materials(plane.proxies[0].leaf, secret, key.read_bytes()):
            assert line not in shown
        assert sealed.decode() not in repr(bundle.data)
        assert sealed.decode() not in shown
        assert bundle.data.roots[0].state is RootState.ROOT_STATE_RETIRED
        assert not bundle.data.roots[0].sealed_key


async def everything(client: headway.Client) -> AsyncIterator[headway.Resource[Any]]:
    """Yield all resources of the authority."""
    types: list[headway.ResourceType[Any]] = [CERTIFICATE_AUTHORITY, TRUST_BUNDLE, TRUST_REPORT]
    for type in types:
        for each in await client.list(type):
            yield each


async def test_swapped_key_is_found(tmp_path: Path, autojump_clock: MockClock) -> None:
    """A sealed key that is that of another root is refused."""
    key = key_file(tmp_path)
    plane = Plane("one", key, [Proxy(WEB)])
    async with running(plane):
        client = plane.engine.client
        await client.apply(authority())
        await wait_served(*plane.proxies)
        await client.apply(authority("a"))
        await wait_reason(plane, "WaitingForProxies")
        first, second = (await client.read(TRUST_BUNDLE, "mesh")).data.roots
        load(first, Sealing(key))
        first.sealed_key = second.sealed_key
        with pytest.raises(ValueError, match=f"what the key file {key} opens is not the key of the root"):
            load(first, Sealing(key))


async def test_extension_of_the_app_serves_leaves(tmp_path: Path) -> None:
    """As a program uses it, in real time."""
    leaves, extension = certificates(key_file(tmp_path))
    async with headway.open_engine("memory:", extensions=[extension]) as engine:
        await engine.client.apply(authority())
        with trio.fail_after(10):
            leaf = await leaves.leaf(WEB)
        assert leaf.identity == "spiffe://cluster.local/ap/default/ns/default/identity/web"
        shake(leaf, leaves.roots(), leaf, leaves.roots())
